"""What a source is, to those who read rows without caring where they come from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from partwise.sources.fragments import Fragment, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """What is known of a source before its rows are read."""

    fingerprint: str
    """SHA-256 over the chosen columns, the filter, and what identifies the rows: paths, sizes, time
    stamps and inodes (or etags) of files, the fingerprint of a dataset, the rows of data in memory.
    Random bytes where the rows would have to be read, as those of a query. Equal fingerprints mean
    equal rows."""

    recurs: bool
    """Whether the fingerprint can be equal again; else the rows would have to be read."""

    rows: int | None
    """How many rows it has; None where that is unknown before they are read."""

    size_bytes: int
    """An estimate of its size in Arrow memory."""

    recipe: dict[str, Any] | None
    """What `data_of_recipe` and `open_source` need in another process, as JSON; None where nothing
    opens the rows again, such as data in memory."""


class Source(Protocol):
    """Rows as Arrow batches; read more than once, but for a stream that reading consumes."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @property
    def selection(self) -> Selection:
        """What is taken of the fragments."""

    def narrowed(self, columns: Sequence[str]) -> "Source":
        """The same source, of whose rows fewer columns are read; its description stays as it is.

        Args:
            columns: Some of the schema's.
        """

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:
        """The parts that the rows come in, in their order.

        Args:
            keys: The columns of which `Fragment.known` is asked.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, from the first one again at each call."""

    def buckets(self) -> frozenset[str]:
        """The buckets that the rows are read from, as `bucket_of` names them."""

    def refuse_empty(self) -> None:
        """Raise `SourceError` where it is the filter that leaves no row."""

    def description(self) -> SourceDescription:
        """What is known of the source before its rows are read."""


def read_rows(source: Source) -> Iterator[pa.RecordBatch]:
    """Read the fragments of a source; its own error where the filter leaves no row."""
    none = True
    for fragment in source.fragments():
        for batch in source.selection.batches(fragment):
            none = False
            yield batch
    if none:
        source.refuse_empty()
