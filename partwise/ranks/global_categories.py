"""The categories of the rows of all ranks: one list for each column, the same on every rank.

Ranks that coded categories by their own rows would train on differing meanings of the same code,
which no library notices.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from partwise.ranks.gathering import gather_tables
from partwise.ranks.protocols import Exchange
from partwise.tables.categories import categories_of_rows, with_own_categories, without_order
from partwise.tables.features import find_categories


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalCategories:
    """The distinct values of columns in the rows of all ranks."""

    values: Mapping[str, pa.ChunkedArray]
    """By column; a dictionary column's have one dictionary, of an order that all ranks' have."""

    def lists(self) -> dict[str, list[Any]]:
        """The values in ascending order, without nulls and NaN; a code is a place among them."""
        return {name: find_categories(column) for name, column in self.values.items()}

    def coded(self) -> pa.Table | None:
        """What `categories_of_rows` gives of the columns that have a dictionary; None: none has.

        The run keeps it, so that rows that come later have the codes of these.
        """
        lists = {}
        for name, column in self.values.items():
            own = categories_of_rows(pa.table({name: column}), ())
            if own is not None:
                lists[name] = own.column(name)
        return pa.table(lists) if lists else None


class Batches(Protocol):
    """Rows that can be read again and again, such as a `Share`."""

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, from the first one again at each call."""


def global_categories(
    exchange: Exchange, share: Batches, columns: Sequence[str]
) -> GlobalCategories:
    """Find the distinct values of columns in the rows of all ranks; each has to call it alike."""
    found: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for batch in share.batches():
        for name, arrays in found.items():
            arrays.append(pc.unique(batch.column(name)))
    values = {}
    for name, arrays in found.items():
        column = pa.chunked_array(arrays, share.schema.field(name).type)
        # Once more over the batches of this rank, so that little is sent.
        own = pa.table({name: _unified(column)})
        values[name] = _joined([table.column(name) for table in gather_tables(exchange, own)])
    return GlobalCategories(values=values)


def _unified(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.chunked_array([pc.unique(column)], column.type)


def _joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Join a column of all ranks; where one of them found no order, there is none."""
    kinds = {column.type for column in columns}
    columns = columns if len(kinds) == 1 else [without_order(column) for column in columns]
    table = pa.concat_tables([pa.table({"": column}) for column in columns])
    return with_own_categories(table).column(0)
