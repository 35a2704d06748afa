"""What is known of a file before its rows are read."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.sources.files.reading_options import ReadingOptions
from partwise.sources.files.written_thousands import Thousands


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """What the head or footer of a file says."""

    schema: pa.Schema
    rows: int | None
    column_bytes: dict[str, int]
    """The estimated size of each column in Arrow memory."""
    metadata: pq.FileMetaData | None = None
    """The footer of a Parquet file."""
    encrypted: frozenset[str] = frozenset()
    """Columns that it hides without a key: to look at their metadata ends the process."""
    pieces: int = 0
    """The row groups, stripes or record batches that can be read each by itself; 0: none."""
    options: ReadingOptions = None
    """How the file is read, with what was found out about it."""
    codes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The columns of numbers that are written as codes are, such as 01, with a value of each: those
    that few of the first rows show."""
    thousands: Mapping[str, Thousands] = dataclasses.field(default_factory=dict)
    """How few of the first rows write the thousands of columns of numbers."""

    def row_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of a row of some columns, at least 1."""
        size = sum(self.column_bytes.get(name, 0) for name in names)
        return max(1, size // max(1, self.rows or 1))
