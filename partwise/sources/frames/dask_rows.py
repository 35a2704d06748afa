"""Dask DataFrames as rows: each partition is read by the worker that computes it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.errors import ColumnError
from partwise.sources.fragments import Fragment, OpaqueFragment, OpaqueRows, Place
from partwise.sources.frames.tables import check_column_names, pandas_table
from partwise.tables.comparisons import comparison
from partwise.tables.filters import Conditions
from partwise.tables.schemas import cast_batch

if TYPE_CHECKING:
    import pandas as pd
    from dask.delayed import Delayed

_ROWS_AT_ONCE = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskPart(OpaqueFragment):
    """A computed partition of a Dask DataFrame: a fragment in the process that computed it."""

    frame: "pd.DataFrame"
    schema: pa.Schema
    """Of the batches that it gives."""

    @property
    def place(self) -> Place:
        """Here: whoever has it has its rows."""
        return "here"

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.frame)

    @property
    def size_bytes(self) -> int:
        """Its size as pandas has it."""
        return int(self.frame.memory_usage(deep=False).sum())

    def __str__(self) -> str:
        return "a partition of the Dask frame"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Turn its rows into Arrow."""
        for start in range(0, len(self.frame), _ROWS_AT_ONCE):
            table = pandas_table(self.frame.iloc[start : start + _ROWS_AT_ONCE])
            for batch in table.select(self.schema.names).to_batches():
                yield cast_batch(batch, self.schema, {}, "the Dask frame")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskFragment(OpaqueFragment):
    """A partition of a Dask DataFrame that is still to be computed."""

    task: "Delayed"
    """Becomes a `DaskPart` on the worker that computes it."""

    @property
    def place(self) -> Place:
        """In a task of the cluster that the frame belongs to."""
        return "cluster"

    @property
    def rows(self) -> None:
        """Not known before it is computed."""
        return

    @property
    def size_bytes(self) -> int:
        """0: not known before it is computed."""
        return 0

    def __str__(self) -> str:
        return "a partition of the Dask frame"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Compute this partition, fetch it to this process and read it."""
        part: DaskPart = self.task.compute()
        return part.batches()


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
            DaskFragment(task=delayed(_part, pure=False)(part, schema))
            for part in frame.to_delayed()
        ]


def _part(frame: "pd.DataFrame", schema: pa.Schema) -> DaskPart:
    return DaskPart(frame=frame, schema=schema)


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
        if scalar is None:
            continue
        # Of another type, pandas would make doubles of both sides, or numbers of 32 bits.
        wanted = kind.to_pandas_dtype()(scalar.as_py())
        column = frame[name]
        match sign:
            case "=":
                frame = frame[column == wanted]
            case "<":
                frame = frame[column < wanted]
            case "<=":
                frame = frame[column <= wanted]
            case ">":
                frame = frame[column > wanted]
            case ">=":
                frame = frame[column >= wanted]
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
            if not columns[field.name].cat.categories.size or "__UNKNOWN_CATEGORIES__" in set(
                columns[field.name].cat.categories
            ):
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
