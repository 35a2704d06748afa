"""Files as rows: one schema for all of them, and the parts in which they are read."""

import copy
import dataclasses
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.sources.files.csv_numbers import WHOLE_TYPES
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.earlier_options import earlier_options
from partwise.sources.files.file_set import Files
from partwise.sources.files.findings import tell_findings
from partwise.sources.files.formats import naming, read_batches, reading_schema
from partwise.sources.files.guessed_numbers import GuessedNumbers
from partwise.sources.files.heads import read_heads
from partwise.sources.files.parquet_files import with_row_groups
from partwise.sources.files.parts import divide_file
from partwise.sources.files.path_columns import hive_columns, hive_names, relative_paths
from partwise.sources.files.reading_options import (
    CsvOptions,
    ReadingOptions,
    values_as,
    values_decided,
)
from partwise.sources.files.remote_files import bucket_of
from partwise.sources.files.written_numbers import KeyNumbers, check_exact, check_whole
from partwise.sources.files.written_ways import Way
from partwise.sources.fragments import Fragment, Place, unknown_identity
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_ordered_number
from partwise.tables.dictionaries import plain_storage
from partwise.tables.filters import Conditions, filter_batch
from partwise.tables.schemas import cast_batch, common_schema

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FarPart:
    """Row groups of a file in a bucket."""

    path: str
    pieces: range | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFragment:
    """A file, or some row groups, stripes or record batches of one."""

    file: FoundFile
    pieces: range | None
    """The row groups, stripes or record batches that belong to it; None: all of the file."""
    names: tuple[str, ...]
    """The columns that are read from the file itself, as they are named there."""
    file_schema: pa.Schema
    """The types with which the file is read, where its format says none."""
    schema: pa.Schema
    """Of the batches that it gives."""
    constants: Mapping[str, Any]
    """The values of columns that the file itself lacks."""
    stated: Mapping[str, Any]
    """The values that the file's path says of columns which the file has as well."""
    known: Mapping[str, pa.Scalar]
    rows: int | None
    size_bytes: int
    row_bytes: int
    options: ReadingOptions
    """How the file is read, where its format does not say it."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """How all files write the numbers of a key column, where there are several."""
    as_written: tuple[str, ...] = ()
    """Key columns whose numbers are not declared: no two that are written may be one key. Those of
    CSV files are read as text."""
    whole: tuple[str, ...] = ()
    """Columns of whole numbers by this file's first rows, which others make doubles."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Those of `names` that have another name in `schema`, with that."""

    @property
    def place(self) -> Place:
        """A URL can be read anywhere; a path where this machine's disk is seen."""
        return "disk" if self.file.access is None else "anywhere"

    def __str__(self) -> str:
        return f"file {self.file.path!r}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        what, keys = str(self), self._key_numbers()
        with naming(self.file):
            file = self.fetch_file()
            if file.content is None:
                file.check_unchanged()
            for batch in read_batches(
                file,
                self.names,
                self.file_schema,
                self.pieces,
                self.row_bytes,
                self.options,
            ):
                for place, name in enumerate(batch.schema.names):
                    if name in keys:
                        batch = batch.set_column(place, name, keys[name].read(batch.column(place)))
                    elif name in self.as_written:
                        check_exact(batch.column(place), name, what)
                    elif name in self.whole:
                        check_whole(batch.column(place), name, what)
                if self.renamed:
                    names = [self.renamed.get(name, name) for name in batch.schema.names]
                    batch = batch.rename_columns(names)
                whole = cast_batch(batch, self.schema, self.constants, what)
                for name, value in self.stated.items():
                    _check_stated(whole.column(name), value, name, what)
                yield whole
            if file.content is None:
                # Once more, since it may have been written to meanwhile.
                file.check_unchanged()

    @property
    def far_file(self) -> "FoundFile | _FarPart | None":
        """What there is to fetch of its file: of a large one in a bucket, what it reads of it."""
        if self.file.is_small_and_far:
            return self.file
        if self.file.is_far and self.file.format == "parquet":
            return _FarPart(path=self.file.path, pieces=self.pieces, size_bytes=self.size_bytes)
        return None

    def fetch_file(self) -> FoundFile:
        """Return its file with what there is to fetch of it, or as it is.

        Raises:
            SourceError: It cannot be read, or was replaced since it was found.
        """
        far = self.far_file
        if far is None:
            return self.file
        with naming(self.file):
            if far is self.file:
                file = self.file.fetched()
            else:
                file = with_row_groups(self.file, self.names, self.pieces)
            # Afterwards: what is as it was found was so when it was read.
            file.check_unchanged()
        return file

    def with_file(self, file: FoundFile) -> "FileFragment":
        """Return such a fragment of the file that was fetched."""
        return replace(self, file=file)

    def _key_numbers(self) -> dict[str, KeyNumbers]:
        """What makes numbers of the texts of key columns."""
        options = self.options
        if not isinstance(options, CsvOptions):
            return {}
        return {
            name: KeyNumbers(
                self.schema.field(name).type, options, name, str(self), self.ways.get(name)
            )
            for name in self.as_written
        }


def _check_stated(column: pa.Array, value: Any, name: str, what: str) -> None:
    """Raise `ColumnError` where a column holds another value than its file's path says."""
    plain = column.cast(plain_storage(column.type))
    if value is None:
        differing = plain.drop_null()
    else:
        same = pc.equal(plain, pa.scalar(value, plain.type)).fill_null(False)
        differing = plain.filter(pc.invert(same))
    if len(differing):
        raise ColumnError(
            f"Column {name!r} of {what} holds {differing[0].as_py()!r}, but its path says "
            f"{value!r}: move the file, or rename its folder."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What is taken of files of one schema.

    Their fragments have it in common, so that a pickle of a thousand has it once.
    """

    names: tuple[str, ...]
    """The columns that they have."""
    lacking: tuple[str, ...]
    file_schema: pa.Schema
    as_written: tuple[str, ...]
    whole: tuple[str, ...]


class FileRows:
    """The rows of files of one format, in the order given.

    A column that stands in the files and in their paths is read from the files, and must say the
    same. `found` are the files, where they were found already.
    """

    def __init__(self, requested: Files, found: Sequence[FoundFile] = ()) -> None:
        self._requested = requested
        files = list(found) or requested.found()
        self._files = files
        declared = requested.arrow_types()
        in_path = {*hive_names(files[0]), requested.file_column}
        late = [name for name in declared if name not in in_path]
        options = requested.options_for(files[0].format)
        self._heads = read_heads(files, late, options)
        tell_findings(files, self._heads, options)
        self._numbers = GuessedNumbers(files, self._heads)
        self._known = frozenset(declared)
        self._warned: set[str] = set()
        self._lay_out(declared)

    def _lay_out(self, declared: Mapping[str, pa.DataType]) -> None:
        requested, files = self._requested, self._files
        heads = zip(self._heads, files, strict=True)
        named = [(head.schema, f"file {file.path!r}") for head, file in heads]
        own = common_schema(named, requested.schema, {**self._unsigned(), **declared})
        own_types = {each.name: plain_storage(each.type) for each in own}
        hive, self._path_values = hive_columns(files, {**declared, **own_types})
        extra = [each for each in hive if each.name not in own.names]
        if requested.file_column is not None:
            if requested.file_column in {*own.names, *hive.names}:
                raise ColumnError(
                    f"The files have a column {requested.file_column!r} of their own: choose "
                    "another name for file_column."
                )
            if (kind := declared.get(requested.file_column, pa.string())) != pa.string():
                raise ColumnError(
                    f"Files(types=...) declares {requested.file_column!r} as {kind}, and it is the "
                    "column of paths, which are text: leave it out of types."
                )
            extra.append(pa.field(requested.file_column, pa.string()))
            for values, path in zip(self._path_values, relative_paths(files), strict=True):
                values[requested.file_column] = path
        self.schema = pa.schema([*own, *extra], metadata=own.metadata)
        if unknown := sorted(declared.keys() - set(self.schema.names)):
            raise ColumnError(
                f"Files(types=...) declares column {unknown[0]!r}, which no file has: the columns "
                f"are {names_in_words(self.schema.names)}."
            )
        self._own_schema = own

    def _unsigned(self) -> dict[str, pa.DataType]:
        """Columns that some files show to be of integers from 2^63 on, and others of small ones."""
        if self._requested.schema == "strict" or self._files[0].format not in ("csv", "json"):
            return {}
        found: dict[str, set[pa.DataType]] = defaultdict(set)
        for head in self._heads:
            for column in head.schema:
                found[column.name].add(column.type)
        integers = {pa.int64(), pa.uint64()}
        return {name: pa.uint64() for name, kinds in found.items() if kinds == integers}

    def values_as(self, recipe: Mapping[str, Any], place: int | None = None) -> "FileRows":
        """The rows as the options of an earlier call read them, where this one gives none.

        `place` is that of the rows in a list of as many sources; None: in no such list.
        """
        kind = self._files[0].format
        options = self._requested.options_for(kind)
        if options is None:
            return self
        earlier = earlier_options(recipe, kind, self._requested.names, place)
        if earlier is None:
            own = options.model_dump(exclude_defaults=True)
            if not values_decided(own):
                logger.warning(
                    "%s is read with none of the options that decide values, and the training run "
                    "read some %s files with such and others without: say how this one is written.",
                    *(self._files[0].path, kind),
                )
            return self
        asked, taken, others = values_as(options, earlier)
        for name in others:
            logger.warning(
                "%s is read with %s=%r, and the rows of the training run were read with %s.",
                *(self._files[0].path, name, getattr(asked, name)),
                repr(earlier[name]) if name in earlier else "none",
            )
        if not taken:
            return self
        said = ", ".join(f"{name}={value!r}" for name, value in taken.items())
        logger.info("%s is read with %s, as in the training run.", self._files[0].path, said)
        changed: dict[str, Any] = {kind: asked}
        return FileRows(dataclasses.replace(self._requested, **changed), self._files)

    def keyed_by(self, classes: Mapping[str, str]) -> "FileRows":
        """The rows with key columns as text whose numbers are written as codes, such as 01.

        `classes` has the key columns, with the class of their keys where an earlier run says it,
        else "". A class that is known is taken as the declaration of a type is.
        """
        guessed = [n for n in classes if n not in self._known and self._is_guessed(n)]
        self._numbers.look_for_codes(
            [name for name in guessed if not classes[name]], self._own_schema
        )
        found = {name: self._key_type(name, classes[name]) for name in guessed}
        types = {name: kind for name, kind in found.items() if kind is not None}
        # With the heads that are read: only what is made of them is made once more.
        other = copy.copy(self)
        other._known = self._known | {name for name, known in classes.items() if known}
        if types:
            other._lay_out({**self._requested.arrow_types(), **types})
        return other

    def _key_type(self, name: str, known: str) -> pa.DataType | None:
        """Return the type of a key column of a class, or of codes; None: the one that it has."""
        if known == "string" or (not known and self._numbers.are_codes(name)):
            return pa.string()
        if pa.types.is_integer(self.schema.field(name).type):
            # As which whole numbers look though others of the column were none.
            return {"float": pa.float64(), "decimal": WHOLE_TYPES[-1]}.get(known)
        return None

    def _is_guessed(self, name: str) -> bool:
        """Whether the type of a column is one that its values look like."""
        is_own = self._own_schema.get_field_index(name) >= 0
        return self._files[0].format == "csv" if is_own else name in hive_names(self._files[0])

    def _may_merge(self, kind: pa.DataType) -> bool:
        """Whether different numbers of files may be one number of a type that was guessed."""
        is_json = self._files[0].format == "json" and pa.types.is_floating(kind)
        return is_json or (self._files[0].format == "csv" and is_ordered_number(kind))

    def _becomes_doubles(self, name: str, kind: pa.DataType) -> bool:
        """Whether numbers of a file that look like whole ones are read as doubles: undeclared."""
        return (
            self._files[0].format in ("csv", "json")
            and kind in WHOLE_TYPES
            and pa.types.is_floating(self._own_schema.field(name).type)
            and name not in self._requested.arrow_types()
        )

    def _warn_of_codes(self, names: Sequence[str]) -> None:
        for name in names:
            kind = self.schema.field(name).type
            is_new = name not in self._known and name not in self._warned
            if is_new and is_ordered_number(kind) and self._is_guessed(name):
                self._warned.add(name)
                self._numbers.warn(name, kind)

    @property
    def rows(self) -> int | None:
        """Rows in all files, None where the format does not say."""
        counts = [head.rows for head in self._heads]
        return None if None in counts else sum(count or 0 for count in counts)

    def size_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of some columns in Arrow memory."""
        return sum(head.column_bytes.get(name, 0) for head in self._heads for name in names)

    def identity(self) -> bytes:
        """What changes when a file is added, removed, written again or replaced."""
        if any(file.identity is None for file in self._files):
            return unknown_identity()
        files = [[file.path, file.size_bytes, file.identity] for file in self._files]
        options = self._requested.recipe()
        # What they stand for counts, the files above, and not the pattern that found these.
        for name in ("paths", "folder"):
            options.pop(name, None)
        said: list[Any] = [files, options] if options else files
        # But the folder that was named decides which columns stand in paths, and with which values.
        if in_path := self._in_path():
            said = [files, options, in_path]
        return json.dumps(said).encode()

    def _in_path(self) -> dict[str, Any]:
        """What the folder that was named decides of the rows; empty without columns in paths."""
        # Of a hive column its name will do: its values are those of the files' own paths.
        decided: dict[str, Any] = {
            name: None for name in hive_names(self._files[0]) if name not in self._own_schema.names
        }
        if (name := self._requested.file_column) is not None:
            decided[name] = [values[name] for values in self._path_values]
        return decided

    def recipe(self) -> dict[str, Any] | None:
        """What finds the files again from another process."""
        return self._requested.recipe()

    def buckets(self) -> frozenset[str]:
        """The buckets of those files that lie in one."""
        return frozenset(bucket_of(f.path) for f in self._files if f.access is not None)

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> list[Fragment]:
        """The files, big ones in parts, without those whose paths or footers a filter excludes."""
        self._warn_of_codes([name for name in names if name not in keys])
        schema = pa.schema([self.schema.field(name) for name in names])
        fragments: list[Fragment] = []
        alike, taken = self._heads[0].schema, self._taken(self._heads[0].schema, names, keys)
        for file, head, in_path in zip(self._files, self._heads, self._path_values, strict=True):
            if not head.schema.equals(alike):
                alike, taken = head.schema, self._taken(head.schema, names, keys)
            own = taken.names
            constants = {name: in_path.get(name) for name in taken.lacking}
            left = self._without_constants(constants, conditions)
            # Its path alone says that no row of it passes.
            if left == []:
                continue
            known = {
                key: pa.scalar(constants[key], schema.field(key).type)
                for key in keys
                if key in constants
            }
            asked = [key for key in keys if key in own]
            row_bytes = head.row_bytes(own)
            stated = {name: in_path[name] for name in own if name in in_path}
            size_bytes = sum(head.column_bytes.get(name, 0) for name in own)
            fragments += [
                FileFragment(
                    file=file,
                    pieces=part.pieces,
                    names=own,
                    file_schema=taken.file_schema,
                    schema=schema,
                    constants=constants,
                    stated=stated,
                    known={**known, **part.known},
                    rows=part.rows,
                    size_bytes=int(size_bytes * part.share),
                    row_bytes=row_bytes,
                    options=head.options,
                    as_written=taken.as_written,
                    whole=taken.whole,
                    ways=self._numbers.ways,
                )
                for part in divide_file(file, head, self._own_schema, left, asked)
            ]
        return fragments

    def _taken(self, there: pa.Schema, names: Sequence[str], keys: Sequence[str]) -> "_Taken":
        """Return what fragments take of files of a schema."""
        found = set(there.names)
        own = [name for name in names if name in found]
        written = [
            name
            for name in keys
            if name in own and name not in self._known
            if self._may_merge(self.schema.field(name).type)
        ]
        kind = self._files[0].format
        file_schema = reading_schema(kind, there, self._own_schema)
        # As text, of which `KeyNumbers` makes numbers, and sees if one is written in two ways.
        for name in written if kind == "csv" else ():
            place = file_schema.get_field_index(name)
            file_schema = file_schema.set(place, pa.field(name, pa.string()))
        return _Taken(
            names=tuple(own),
            lacking=tuple(name for name in names if name not in found),
            file_schema=file_schema,
            as_written=tuple(written),
            whole=tuple(
                name
                for name in own
                if name not in keys and self._becomes_doubles(name, there.field(name).type)
            ),
        )

    def _without_constants(
        self, constants: Mapping[str, Any], conditions: Conditions | None
    ) -> Conditions | None:
        """Settle what a filter says of columns in a path.

        Returns:
            The lists of conditions on other columns, of which one must hold: none of them, where no
            row of the file can pass; None, where all do.
        """
        if conditions is None:
            return None
        schema = pa.schema([self.schema.field(name) for name in constants])
        row = pa.RecordBatch.from_pylist([dict(constants)], schema=schema)
        left: Conditions = []
        for conjunction in conditions:
            settled = [c for c in conjunction if c[0] in constants]
            if settled and not filter_batch(row, [settled]).num_rows:
                continue
            rest = [c for c in conjunction if c[0] not in constants]
            if not rest:
                return None
            left.append(rest)
        return left
