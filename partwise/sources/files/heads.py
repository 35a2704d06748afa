"""What the heads of all files say, read at once where the files are remote."""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.formats import read_head
from partwise.sources.files.reading_options import ReadingOptions
from partwise.sources.files.remote_files import at_once


def read_heads(
    files: Sequence[FoundFile], late: Sequence[str], options: ReadingOptions
) -> list[FileHead]:
    """Return the heads of files.

    `late` are columns that lines of JSON may have though the first ones do not.
    """
    heads = at_once(lambda file: read_head(file, options), files)
    if files[0].format != "json":
        return heads
    found = []
    for head in heads:
        there = set(head.schema.names)
        new = [pa.field(name, pa.null()) for name in late if name not in there]
        found.append(dataclasses.replace(head, schema=pa.schema([*head.schema, *new])))
    return found
