"""Columns that stand in the paths of files: key=value directories, and the path itself."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from partwise.errors import ColumnError, SourceError
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.remote_files import bucket_of
from partwise.sources.files.written_numbers import is_canonical

# With so many digits, every number fits int64.
_INTEGER = re.compile(r"-?[0-9]{1,18}").fullmatch
_NULL = "__HIVE_DEFAULT_PARTITION__"


def _path_values(file: FoundFile) -> dict[str, str | None]:
    below = PurePosixPath(file.bare_path()[len(file.base) :]).parent
    values: dict[str, str | None] = {}
    for part in below.parts:
        name, sign, value = part.partition("=")
        try:
            if sign:
                # Strictly: all bytes that are no text would become one value.
                text = None if value == _NULL else unquote(value, errors="strict")
                values[unquote(name, errors="strict")] = text
        except UnicodeDecodeError as error:
            raise SourceError(
                f"The path of file {file.path!r} has {part!r}, which stands for bytes that are not "
                "UTF-8: name the folder otherwise."
            ) from error
    return values


def hive_names(file: FoundFile) -> list[str]:
    """The columns that stand in the directory names of a file's path."""
    return list(_path_values(file))


def hive_codes(files: Sequence[FoundFile]) -> dict[str, str]:
    """Return the columns of integers in directory names that are written as codes, such as 01."""
    return {
        name: text
        for file in files
        for name, text in _path_values(file).items()
        if text is not None and _INTEGER(text) and not is_canonical(text)
    }


def hive_columns(
    files: Sequence[FoundFile], types: Mapping[str, pa.DataType]
) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """The columns that stand in directory names such as `year=2014`.

    Those without a declared type are integers where every value is one, else text;
    `__HIVE_DEFAULT_PARTITION__` is null.

    Returns:
        Their schema, and for each file its values by name.
    """
    values: list[dict[str, Any]] = [dict(_path_values(file)) for file in files]
    names = list(values[0])
    for file, found in zip(files, values, strict=True):
        if list(found) != names:
            raise SourceError(
                f"The directories of file {file.path!r} name the columns {list(found)}, those of "
                f"{files[0].path!r} {names}: lay all files out alike."
            )
    fields = []
    for name in names:
        known = [found[name] for found in values if found[name] is not None]
        kind = types.get(name, pa.string())
        if name not in types and known and all(_INTEGER(value) for value in known):
            kind = pa.int64()
        for file, found in zip(files, values, strict=True):
            found[name] = path_value(file, name, found[name], kind)
        fields.append(pa.field(name, kind))
    return pa.schema(fields), values


def path_value(file: FoundFile, name: str, text: str | None, kind: pa.DataType) -> Any:
    """The value that a directory's name gives a column."""
    try:
        return pa.scalar(text, pa.string()).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise ColumnError(
            f"The path of file {file.path!r} says {name}={text}, which is not a value of type "
            f"{kind}: name the files otherwise, or declare another type."
        ) from exc


def relative_paths(files: Sequence[FoundFile]) -> list[str]:
    """The path of each file below the folder that holds all that the caller named.

    With one path named that is the folder itself, or the part of a glob before its first wildcard;
    with several it is the deepest folder that they share. In several buckets files keep their
    URLs.
    """
    places = {None if file.access is None else bucket_of(file.path) for file in files}
    if len(places) > 1:
        return [file.path for file in files]
    bare = [file.bare_path() for file in files]
    base = os.path.commonpath([file.base for file in files])
    return [os.path.relpath(path, base).replace(os.sep, "/") for path in bare]
