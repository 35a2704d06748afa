"""The rows of a rank as the batches that XGBoost reads: columns from Arrow, categories as codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.connector.boosting_data import plain_numbers
from partwise.connector.categories import with_categories
from partwise.tables.calendar import calendar_schema, source_columns, with_calendar
from partwise.tables.features import (
    REFUSED_BY_XGBOOST,
    Categories,
    column_within_single,
    feature_matrix,
    feature_names,
)
from partwise.trainers.ranks.table import RankTable, labelled, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import xgboost


@dataclass(frozen=True, slots=True)
class LabelledBatches:
    """The labelled rows of a rank, read again and again."""

    rows: RankTable
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        made = calendar_schema(self._read.schema, self.columns)
        return pa.schema([made.field(name) for name in self.columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        chosen = replace(self.rows, table=self._read)
        for start, end in pieces(chosen):
            table = with_calendar(labelled(chosen, start, end), self.columns)
            yield from table.select(list(self.columns)).to_batches()

    @property
    def _read(self) -> pa.Table:
        return self.rows.table.select(source_columns(self.columns, self.rows.table.schema))


class FeatureTables:
    """Turns rows into tables of features, which XGBoost reads column by column."""

    def __init__(self, names: Sequence[str], categories: Categories) -> None:
        self.names = names
        self.categories = categories
        self._codes: dict[str, tuple[pa.Array, pa.Array]] = {}

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the features, with categories as codes of an Arrow dictionary of text."""
        rows = with_calendar(rows, self.names)
        columns = [
            with_categories(self._coded(name, rows), self.categories[name])
            if name in self.categories
            else column_within_single(plain_numbers(rows.column(name)))
            for name in self.names
        ]
        return pa.table(columns, feature_names(self.names, REFUSED_BY_XGBOOST))

    def _coded(self, name: str, rows: pa.Table) -> pa.Array:
        column = rows.column(name)
        if not pa.types.is_dictionary(column.type):
            return self._looked_up(name, rows)
        codes = [self._of_dictionary(name, chunk) for chunk in column.chunks]
        return pa.concat_arrays(codes) if codes else pa.array([], pa.float32())

    def _of_dictionary(self, name: str, chunk: pa.DictionaryArray) -> pa.Array:
        """Look up each value of a dictionary once, and not that of each row."""
        known, codes = self._codes.get(name, (None, None))
        # Batches of one share have the same dictionary as a rule, whose values are looked up once.
        if known is None or not known.equals(chunk.dictionary):
            known = chunk.dictionary
            codes = self._looked_up(name, pa.table({name: known}))
            self._codes[name] = known, codes
        return pc.take(codes, chunk.indices)

    def _looked_up(self, name: str, rows: pa.Table) -> pa.Array:
        codes = feature_matrix(rows, [name], {name: self.categories[name]})[:, 0]
        return pa.array(codes, from_pandas=True)


def xgboost_batches(
    rows: RankTable, features: FeatureTables, cache_prefix: str | None = None
) -> xgboost.DataIter:
    """Return what gives XGBoost the rows of a rank, as often as it asks for them.

    With a cache_prefix XGBoost keeps its pages there, and not in memory.
    """
    import xgboost

    class Batches(xgboost.DataIter):
        def __init__(self) -> None:
            super().__init__(cache_prefix=cache_prefix)
            self.pieces = pieces(rows)

        def reset(self) -> None:
            self.pieces = pieces(rows)

        def next(self, input_data: Any) -> bool:
            piece = next(self.pieces, None)
            if piece is None:
                return False
            info: dict[str, Any] = {}
            if rows.weights is not None:
                info["weight"] = rows.weights[slice(*piece)]
            if queries is not None:
                info["qid"] = queries[slice(*piece)]
            table = features.of(labelled(rows, *piece))
            input_data(data=table, label=rows.labels[slice(*piece)], **info)
            return True

    sizes = rows.group_sizes
    queries = None if sizes is None else np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    return Batches()
