"""Which rows go into which batch: in their order or shuffled, for one process or for several.

A shuffle draws an order of *blocks* of neighbouring rows, and then shuffles the rows of a *window*
of 256 blocks. A table of up to one window (4 million rows, or 256 MB if that is less) is therefore
shuffled uniformly: every order of its rows is equally likely. In a larger one, each window holds
blocks from all over the table, so that reading it touches parts of a mapped file that fit into
memory, and only the row numbers of one window are ever held.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partwise.errors import InputError

WINDOW_BYTES = 256 * 2**20
WINDOW_ROWS = 2**22
_BLOCKS_PER_WINDOW = 256
_GROUP_BYTES = 8 * 2**20
_GROUP_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """How rows are dealt into batches; equal values deal them equally in every process."""

    rows: int
    """How many rows there are."""

    row_bytes: int
    """The size of a row, at least 1."""

    batch_rows: int
    """Rows per batch."""

    shuffle: bool
    drop_last: bool
    """Whether a last batch of fewer rows is left out."""

    seed: int
    """Of the shuffle, with the epoch's number."""

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise InputError(f"batch_size={self.batch_rows} cannot be cut: pass 1 or more.")
        if self.seed < 0:
            raise InputError(f"seed={self.seed} cannot seed a shuffle: pass 0 or more.")

    @property
    def batches(self) -> int:
        """How many batches there are."""
        whole, rest = divmod(self.rows, self.batch_rows)
        return whole + (1 if rest and not self.drop_last else 0)

    def groups(self, epoch: int, worker: int = 0, workers: int = 1) -> Iterator[np.ndarray]:
        """Deal the rows of an epoch.

        Batch i belongs to worker i % workers. The batches do not depend on the number of workers:
        a DataLoader, which takes from its workers in turn, gives them in one order for any number.

        Yields:
            Row numbers, int64 of shape (m, batch_rows): some of the worker's batches, few enough to
            be read at once. The last one may be of shape (1, rows that are left).
        """
        together = max(1, self.rows_together // self.batch_rows)
        rest = np.empty(0, np.int64)
        dealt = 0
        for window in self._windows(epoch):
            rows = np.concatenate([rest, window]) if len(rest) else window
            whole = len(rows) // self.batch_rows
            cut = rows[: whole * self.batch_rows].reshape(whole, self.batch_rows)
            # Counted from the first batch of the epoch, not from that of the window.
            own = cut[(worker - dealt) % workers :: workers]
            for start in range(0, len(own), together):
                yield own[start : start + together]
            dealt += whole
            # They go in front of the next window, so that only the last batch of all can be short.
            rest = rows[whole * self.batch_rows :]
        if len(rest) and not self.drop_last and dealt % workers == worker:
            yield rest[None, :]

    @property
    def rows_together(self) -> int:
        """How many rows are read at once, where batches are smaller."""
        return max(1, min(_GROUP_ROWS, _GROUP_BYTES // self.row_bytes))

    def _windows(self, epoch: int) -> Iterator[np.ndarray]:
        """The numbers of all rows in the order of an epoch, a window at a time."""
        window_rows = max(1, min(WINDOW_ROWS, WINDOW_BYTES // self.row_bytes))
        if not self.shuffle:
            for start in range(0, self.rows, window_rows):
                yield np.arange(start, min(start + window_rows, self.rows))
            return
        # Each worker draws the order of all rows, alike, and takes its own batches of it.
        random = np.random.default_rng([self.seed, epoch])
        block_rows = max(1, window_rows // _BLOCKS_PER_WINDOW)
        if self.rows <= window_rows:
            yield random.permutation(self.rows)
            return
        blocks = random.permutation(-(-self.rows // block_rows))
        for start in range(0, len(blocks), _BLOCKS_PER_WINDOW):
            firsts = blocks[start : start + _BLOCKS_PER_WINDOW] * block_rows
            rows = (firsts[:, None] + np.arange(block_rows)).ravel()
            # Only the table's last block is short.
            rows = rows[rows < self.rows]
            random.shuffle(rows)
            yield rows
