"""The labelled rows of a rank, and their batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """The labelled rows that a rank has of a source, as they lie on its disk."""

    table: pa.Table
    """All rows, those without a label too; mapped, in as many chunks as there are batches."""
    places: np.ndarray | None
    """int64, shape (n,): the rows with a label, ascending. None: all of them."""
    labels: np.ndarray
    """Single, shape (n,), finite: as both libraries keep labels."""
    weights: np.ndarray | None
    """Single, shape (n,), finite and not negative."""
    group_sizes: np.ndarray | None
    """int32: how many neighbouring rows each group has; they sum up to n."""

    @property
    def rows(self) -> int:
        """How many rows have a label."""
        return len(self.labels)


def pieces(rows: RankTable) -> Iterator[tuple[int, int]]:
    """Give the first row and the one after the last of batches, at least one, in order.

    A query is never divided: XGBoost takes its part in a second batch for another query.
    """
    ends = np.arange(_BATCH_ROWS, rows.rows + _BATCH_ROWS, _BATCH_ROWS).clip(max=rows.rows)
    if rows.group_sizes is not None and rows.rows:
        queries = np.cumsum(rows.group_sizes)
        ends = np.unique(queries[np.searchsorted(queries, ends)])
    start = 0
    # XGBoost takes no batch at all for an error, and a batch of no rows for a rank without rows.
    for end in ends.tolist() or [0]:
        yield start, end
        start = end


def labelled(rows: RankTable, start: int, end: int) -> pa.Table:
    """Return labelled rows by their numbers."""
    if rows.places is None:
        return rows.table.slice(start, end - start)
    places = rows.places[start:end]
    if not len(places):
        return rows.table.slice(0, 0)
    first = int(places[0])
    return rows.table.slice(first, int(places[-1]) - first + 1).take(pa.array(places - first))
