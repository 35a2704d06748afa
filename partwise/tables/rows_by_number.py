"""Taking rows of a table of many chunks by their numbers."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa


class RowsByNumber:
    """Takes rows of a table of many chunks; `Table.take` would join all its chunks first."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._batches = table.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        """Neighbouring rows, without a copy where they lie in one chunk."""
        return join_batches(self._table.slice(start, rows).to_batches())

    def take(self, rows: np.ndarray) -> pa.RecordBatch:
        """Rows in any order, at least one, read in the order in which they lie."""
        order = np.argsort(rows)
        ascending = rows[order]
        cuts = np.searchsorted(ascending, self._starts)
        parts = [
            self._batches[index].take(pa.array(ascending[first:last] - self._starts[index]))
            for index, (first, last) in enumerate(itertools.pairwise(cuts))
            if last > first
        ]
        places = np.empty(len(rows), np.int64)
        places[order] = np.arange(len(rows))
        return join_batches(parts).take(pa.array(places))


def join_batches(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches of one schema, at least one; one alone is not copied."""
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
