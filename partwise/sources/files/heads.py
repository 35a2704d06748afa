"""What the heads of all files say, read at once where the files are remote."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.formats import FileHead, read_head
from partwise.sources.files.reading_options import ReadingOptions
from partwise.sources.files.remote_files import Found, at_once


def of_each(
    files: Sequence[FoundFile], read: Callable[..., Found], *arguments: Sequence[Any]
) -> list[Found]:
    """Return what heads of files say.

    `arguments` are, of each file, what `read` gets.
    """
    return at_once(any(file.access is not None for file in files), read, *arguments)


def read_heads(
    files: Sequence[FoundFile], late: Sequence[str], options: ReadingOptions
) -> list[FileHead]:
    """Return the heads of files.

    `late` are columns that lines of JSON may have though the first ones do not.
    """
    heads = of_each(files, lambda file: read_head(file, options), files)
    if files[0].format != "json":
        return heads
    found = []
    for head in heads:
        there = set(head.schema.names)
        new = [pa.field(name, pa.null()) for name in late if name not in there]
        found.append(dataclasses.replace(head, schema=pa.schema([*head.schema, *new])))
    return found
