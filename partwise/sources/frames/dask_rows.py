"""Dask DataFrames as rows: each partition is read by the worker that computes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from partwise.errors import ColumnError
from partwise.sources.fragments import Fragment, LocalFragment, OpaqueRows, Place
from partwise.tables.comparisons import comparison
from partwise.tables.filters import Conditions
from partwise.tables.frames import check_column_names, pandas_table
from partwise.tables.schemas import cast_batch

if TYPE_CHECKING:
    import pandas as pd
    from dask.delayed import Delayed

_ROWS_AT_ONCE = 262_144
_PARTITION = "a partition of the Dask frame"
_COMPARE = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskFragment:
    """A partition of a Dask DataFrame, of which nothing is known before it is computed."""

    task: "Delayed"
    """Becomes a `LocalFragment` on the worker of its cluster that computes it."""
    rows: ClassVar[int | None] = None
    size_bytes: ClassVar[int] = 0
    known: ClassVar[Mapping[str, pa.Scalar]] = {}
    place: ClassVar[Place] = "cluster"

    def __str__(self) -> str:
        return _PARTITION

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Compute this partition, fetch it to this process and read it."""
        part: LocalFragment = self.task.compute()
        return part.batches()


def _computed(frame: "pd.DataFrame", schema: pa.Schema) -> LocalFragment:
    """Return a partition in the process that has computed it."""
    size_bytes = int(frame.memory_usage(deep=False).sum())
    stream = partial(_batches, frame, schema)
    return LocalFragment(stream=stream, rows=len(frame), size_bytes=size_bytes, what=_PARTITION)


def _batches(frame: "pd.DataFrame", schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(frame), _ROWS_AT_ONCE):
        table = pandas_table(frame.iloc[start : start + _ROWS_AT_ONCE])
        for batch in table.select(schema.names).to_batches():
            yield cast_batch(batch, schema, {}, "the Dask frame")


class DaskRows(OpaqueRows):
    """The rows of a Dask DataFrame; a named index is kept, one without a name is not."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.schema = _schema_of(frame._meta)

    def fragments(
        self,
        names: Sequence[str],
        conditions: Conditions | None,
        keys: Sequence[str] = (),  # noqa: ARG002 (nothing is known of them)
    ) -> list[Fragment]:
        """The frame's partitions; only their columns and rows that are asked for are computed."""
        from dask.delayed import delayed

        schema = pa.schema([self.schema.field(name) for name in names])
        frame = _filtered(self._frame, conditions, self.schema)
        frame = frame[[name for name in frame.columns if name in names]]
        return [
            DaskFragment(task=delayed(_computed, pure=False)(part, schema))
            for part in frame.to_delayed()
        ]


def _filtered(frame: Any, conditions: Conditions | None, schema: pa.Schema) -> Any:
    """Leave out rows that no list of conditions lets pass, as far as pandas compares as Arrow does.

    Dask hands comparisons of columns on to what reads its files.
    """
    if conditions is None or len(conditions) != 1:
        return frame
    for name, operator, value in conditions[0]:
        dtype = frame._meta.dtypes.get(name)
        numbers = isinstance(value, int | float) and not isinstance(value, bool)
        if dtype is None or dtype.kind not in "iuf" or not numbers:
            continue
        kind = schema.field(name).type
        sign, scalar = comparison(name, kind, operator, value)
        if scalar is not None and sign in _COMPARE:
            # Of another type, pandas would make doubles of both sides, or numbers of 32 bits.
            wanted = kind.to_pandas_dtype()(scalar.as_py())
            frame = frame[_COMPARE[sign](frame[name], wanted)]
    return frame


def _schema_of(meta: "pd.DataFrame") -> pa.Schema:
    import pandas as pd

    check_column_names(meta)
    schema = pandas_table(meta).schema
    fields = []
    columns = meta.reset_index() if any(name is not None for name in meta.index.names) else meta
    for field in schema:
        dtype = columns[field.name].dtype
        if dtype.kind == "O" and not isinstance(dtype, pd.api.extensions.ExtensionDtype):
            raise ColumnError(
                f"Column {field.name!r} of the Dask frame is of dtype object, which tells no type "
                "before it is computed: cast it, such as "
                f"frame.astype({{{field.name!r}: 'string[pyarrow]'}})."
            )
        if isinstance(dtype, pd.CategoricalDtype):
            if not dtype.categories.size or "__UNKNOWN_CATEGORIES__" in set(dtype.categories):
                raise ColumnError(
                    f"Column {field.name!r} of the Dask frame has categories that are not known "
                    f"before it is computed: use frame[{field.name!r}].cat.as_known(), or cast it, "
                    f"such as frame.astype({{{field.name!r}: 'string[pyarrow]'}})."
                )
            # Partitions of few categories would have narrower codes.
            values = field.type.value_type
            field = field.with_type(pa.dictionary(pa.int32(), values, ordered=dtype.ordered))
        fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)
