"""Batches of arrays from a table, for one process or for several: what tensors are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partwise.connector.batch_order import BatchOrder
from partwise.connector.spooling import PortableTable
from partwise.connector.tensor_columns import ColumnForm, Values, batch_values, column_form
from partwise.errors import InputError
from partwise.tables.rows_by_number import RowsByNumber

_SLICED_ROWS = 256


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads batches of a table in an order; can be pickled."""

    rows: PortableTable
    forms: Mapping[str, ColumnForm]
    order: BatchOrder
    single: bool
    """Whether rows are given one by one."""

    def expanded(self) -> "BatchReader":
        """Return a reader of the same batches, in which each number of a row is an array of one."""
        return replace(self, forms={name: form.expanded() for name, form in self.forms.items()})

    def read(self, epoch: int, worker: int = 0, workers: int = 1) -> Iterator[dict[str, Any]]:
        """Read the batches of an epoch that are a worker's own.

        Yields:
            For each batch, its columns in their forms; for each row, where these are given one by
            one, an item of each. Arrays may be read-only, and may be views of larger ones.
        """
        table = RowsByNumber(self.rows.table)
        # Neighbours are a slice, which copies nothing; of small batches many are taken at once.
        sliced = not self.order.shuffle and self.order.batch_rows >= _SLICED_ROWS
        for group in self.order.groups(epoch, worker, workers):
            if sliced:
                for rows in group:
                    yield batch_values(table.slice(rows[0], len(rows)), self.forms)
            else:
                yield from self._cut(batch_values(table.take(group.ravel()), self.forms), group)

    def _cut(self, columns: dict[str, Values], group: np.ndarray) -> Iterator[dict[str, Any]]:
        if self.single:
            for row in range(len(group)):
                yield {name: values[row] for name, values in columns.items()}
            return
        size = group.shape[1]
        for start in range(0, group.size, size):
            yield {name: values[start : start + size] for name, values in columns.items()}


def open_reader(
    rows: PortableTable, *, batch_size: int | None, shuffle: bool, drop_last: bool, seed: int
) -> BatchReader:
    """Choose the forms of all columns, and the order of the batches."""
    if batch_size is None and drop_last:
        raise InputError("drop_last=True leaves out a batch, but there are none: pass batch_size.")
    table = rows.table
    order = BatchOrder(
        rows=table.num_rows,
        row_bytes=max(1, table.nbytes // max(1, table.num_rows)),
        batch_rows=1 if batch_size is None else batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        seed=seed,
    )
    forms = {name: column_form(table.column(name)) for name in table.column_names}
    return BatchReader(rows, forms, order, single=batch_size is None)
