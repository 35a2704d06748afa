"""What a source is, to those who read rows without caring where they come from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from partwise.tasks.data.rows.fragments import Fragment, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """What is known of a source before its rows are read."""

    fingerprint: str
    """SHA-256 over paths, sizes and mtimes (or etags), filter and columns; over the rows of data
    in memory. Equal fingerprints mean equal rows."""

    recurs: bool
    """Whether the fingerprint can be equal again; else only reading the rows would tell."""

    rows: int | None
    """How many rows it has; None where only reading would tell."""

    size_bytes: int
    """An estimate of its size in Arrow memory."""

    recipe: dict[str, Any] | None
    """What `reopen_source` needs in another process, as JSON; None for data in memory."""


class Source(Protocol):
    """Rows as a stream of Arrow batches, which can be read more than once."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @property
    def selection(self) -> Selection:
        """What is taken of the fragments."""

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:
        """The parts that the rows come in, in their order.

        Args:
            keys: The columns of which `Fragment.known` is asked.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, from the first one again at each call."""

    def refuse_empty(self) -> None:
        """Raise `SourceError` where it is the filter that leaves no row."""

    def description(self) -> SourceDescription:
        """What is known of the source before its rows are read."""
