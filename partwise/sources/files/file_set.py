"""What a caller says of files: where they are, and how they are to be read."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from partwise.choices import Format, SchemaPolicy
from partwise.errors import InputError, SourceError
from partwise.formatting import lone_surrogate
from partwise.sources.files.discovery import FoundFile, absolute_path, find_files
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions, ReadingOptions
from partwise.sources.files.remote_files import Access


@dataclass(frozen=True, slots=True)
class Files:
    """Files or tables, and how they are to be read; a plain value without secrets.

    Where files are in buckets, their keys are those of the environment, of a profile, or of a
    `FilesBlock`.

    Args:
        paths: A path, glob, folder or URL, or several. A folder can be a table of Delta (extra
            `delta`) or Iceberg (extra `iceberg`); of Iceberg, it can be a file of its metadata.
        format: Of all files, where their names do not say: "parquet", "csv", "json" (an object on
            each line), "orc", "ipc" or "excel".
        schema: What becomes of files whose columns differ. "cast": all have the columns of the
            first, of types that widen to a common one without loss, and what others have beyond
            them is not read. "strict": any difference of columns or types is refused. "union": the
            columns of all files, null where a file lacks one, of types that widen.
        types: The types of columns by name, as Arrow calls them: {"zip": "string", "day":
            "date32"}. They are for columns of directory names, and for files that say no types or
            differing ones.
        file_column: The name of a column to add, with each file's path below the folder or glob.
            With `partition_by` this column, each file is a partition.
        csv: How CSV files are read: delimiter, encoding, decimal comma and more. A mapping of the
            same words will do.
        folder: Where `paths` are, each the path of one file below it: taken as it is, with no
            wildcards, and in `file_column` as it is below the folder.
        excel: How Excel workbooks are read: which sheet, and more; they need the extra `excel`.
        version: Of a Delta table, the version to read; of an Iceberg table, the ID of the snapshot.
            None: the newest.
        endpoint_url: Of a service that speaks S3 but is not Amazon's own.
        region: Of the bucket.
        profile: In the AWS configuration files of the workers.

    Raises:
        SourceError: No path is given, or an empty one.
        InputError: A format, policy, type or option is unknown.

    Example:
        >>> files = Files("sales/*.jsonl", schema="union", file_column="file")
        >>> source = open_source(files)
        >>> european = Files("sales.csv", csv=CsvOptions(delimiter=";", decimal=","))
    """

    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]
    _: dataclasses.KW_ONLY
    format: Format | None = None
    schema: SchemaPolicy = "cast"
    types: Mapping[str, str] = field(default_factory=dict)
    file_column: str | None = None
    csv: CsvOptions | Mapping[str, Any] = field(default_factory=CsvOptions)
    excel: ExcelOptions | Mapping[str, Any] = field(default_factory=ExcelOptions)
    version: int | str | None = None
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        paths = [self.paths] if isinstance(self.paths, str | os.PathLike) else self.paths
        if not paths:
            raise SourceError("Files() has no path: name a file, folder, glob or URL.")
        if self.folder:
            object.__setattr__(self, "folder", absolute_path(self.folder).rstrip("/") or "/")
            paths = [_below(str(self.folder), path) for path in paths]
        object.__setattr__(self, "paths", tuple(absolute_path(path) for path in paths))
        if found := lone_surrogate(self.paths):
            raise InputError(f"Files() has a path with {found}: rename the file.")
        for name in ("format", "folder", "file_column", "endpoint_url", "region", "profile"):
            # Forms send an empty text where nothing was chosen.
            object.__setattr__(self, name, getattr(self, name) or None)
        for what, value, known in (
            ("format", self.format or "csv", get_args(Format)),
            ("schema", self.schema, get_args(SchemaPolicy)),
        ):
            if value not in known:
                raise InputError(f"Files({what}={value!r}) is unknown: use {', '.join(known)}.")
        if self.version is not None:
            object.__setattr__(self, "version", _version(self.version))
        object.__setattr__(self, "types", dict(self.types))
        self.arrow_types()
        for name, kind in (("csv", CsvOptions), ("excel", ExcelOptions)):
            object.__setattr__(self, name, _options(name, kind, getattr(self, name)))

    @property
    def names(self) -> list[str]:
        """The absolute paths and URLs."""
        return [str(path) for path in self.paths] if isinstance(self.paths, tuple) else []

    @property
    def access(self) -> Access:
        """What opens buckets, apart from their keys."""
        return Access(endpoint_url=self.endpoint_url, region=self.region, profile=self.profile)

    @property
    def log_version(self) -> int | None:
        """The version of the table as a number."""
        return None if self.version is None else int(self.version)

    def found(self) -> list[FoundFile]:
        """Find them.

        Raises:
            SourceError: There is none, or one cannot be read.
        """
        folder = None if self.folder is None else str(self.folder)
        return find_files(self.names, self.format, self.access, folder)

    def of_paths(self, paths: Sequence[str]) -> "Files":
        """Return other files, read in the same way."""
        return dataclasses.replace(self, paths=paths)

    def arrow_types(self) -> dict[str, pa.DataType]:
        """The declared types.

        Raises:
            InputError: Arrow has no such type.
        """
        types = {}
        for name, alias in self.types.items():
            try:
                types[name] = pa.type_for_alias(alias)
            except (ValueError, TypeError) as exc:
                raise InputError(
                    f"Files(types=...) declares column {name!r} as {alias!r}, which is not a type: "
                    "use a name of Arrow's, such as int64, double, string, date32 or timestamp[us]."
                ) from exc
        return types

    def options_for(self, form: Format) -> ReadingOptions:
        """How files of a format are read; None: the format says it.

        Raises:
            InputError: There are options for another format.
        """
        options = {"csv": self.csv, "excel": self.excel}
        for name, given in options.items():
            if name != form and given != type(given)():
                raise InputError(
                    f"The files are {form}, and there are options for {name} files: leave out "
                    f"{name}= of Files (--{name}-... on the command line)."
                )
        found = options.get(form)
        return found if isinstance(found, CsvOptions | ExcelOptions) else None

    def recipe(self) -> dict[str, Any]:
        """The value as JSON: the paths, and what is not as by default."""
        options: dict[str, Any] = {}
        for part in dataclasses.fields(self):
            value = getattr(self, part.name)
            if part.name == "version" and value is not None:
                # The ID of a snapshot has more digits than a number of JavaScript.
                value = str(value)
            if isinstance(value, BaseModel):
                value = value.model_dump(mode="json", exclude_defaults=True)
            if part.name != "paths" and value not in (None, {}, "cast"):
                options[part.name] = value
        return {"paths": self.names, **options}

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> "Files":
        """Read what `recipe` wrote, or a form sent.

        Raises:
            InputError: There is a word that no recipe has.
        """
        known = {part.name for part in dataclasses.fields(cls)}
        if "paths" not in recipe or (unknown := sorted(set(recipe) - known)):
            raise InputError(
                f"The source {dict(recipe)!r} cannot be read: it needs paths, and beside them "
                f"may have {', '.join(sorted(known - {'paths'}))}"
                + (f", but not {', '.join(unknown)}." if "paths" in recipe else ".")
            )
        return cls(**recipe)


def _below(folder: str, path: str | os.PathLike[str]) -> str:
    """Return the absolute path or URL of a file below a folder."""
    text = os.fspath(path)
    found = absolute_path(text if "://" in text else os.path.join(folder, text))
    inner = found.removeprefix(f"{folder.rstrip('/')}/")
    if inner in ("", found):
        raise InputError(
            f"Files(folder={folder!r}) has the path {text!r}, which is not below it: "
            "give the path of a file as it is in the folder."
        )
    return found


def _version(given: int | str) -> int | None:
    """Return a version as a number; an empty text, as forms send it, is none."""
    text = str(given).strip()
    if text and (not text.isascii() or not text.isdigit()):
        raise InputError(
            f"Files(version={given!r}) is not a version: it is a number, such as 12, or the ID of "
            "a snapshot."
        )
    return int(text) if text else None


def _options(name: str, kind: type[BaseModel], given: Any) -> BaseModel:
    try:
        return kind.model_validate(given or {})
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        place = ".".join([name, *map(str, first["loc"])])
        raise InputError(f"Files({place}={first['input']!r}) cannot be used: {reason}.") from error
