"""A partition as a Dask DataFrame whose rows stay where they are until a task needs them."""

import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.connector.pandas_frames import PandasTypes, pandas_frame
from partwise.connector.spooling import PortableTable
from partwise.errors import InputError

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

_PART_BYTES = 64 * 2**20


def dask_frame(rows: PortableTable, parts: int | None, types: PandasTypes) -> "dd.DataFrame":
    """Cut rows into slices, each of which a task turns into a pandas frame.

    `parts` None: parts of 64 MB.
    """
    import dask
    import dask.dataframe as dd

    table = rows.table
    count = max(1, -(-table.nbytes // _PART_BYTES)) if parts is None else parts
    if count < 1:
        raise InputError(f"npartitions={parts} cannot be cut: pass 1 or more.")
    name, meta = uuid.uuid4().hex, _meta(table, types)
    bounds = [index * table.num_rows // count for index in range(count + 1)]
    slices = [
        _Part(rows.slice(start, stop - start), f"{name}-{start}")
        for start, stop in itertools.pairwise(bounds)
    ]
    dtypes = meta.dtypes.to_dict()
    # Dask would turn lists, decimals and bytes into text as well.
    with dask.config.set({"dataframe.convert-string": False}):
        frame: dd.DataFrame = dd.from_map(
            _read_part, slices, types=types, dtypes=dtypes, meta=meta, label="rows"
        )
    return frame


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows, under a name by which Dask knows them: else it would hash them."""

    rows: PortableTable
    name: str

    def __dask_tokenize__(self) -> str:
        return self.name


def _read_part(
    part: _Part, *, types: PandasTypes, dtypes: dict[Any, Any], columns: list[str] | None = None
) -> "pd.DataFrame":
    """Make a frame of a part; Dask passes the columns that are used."""
    rows = part.rows if columns is None else part.rows.select(columns)
    frame = _columns_frame(rows.table, types)
    found = frame.dtypes.to_dict()
    # A slice without a null has whole numbers where another one, and so the frame, has floats.
    other = {name: dtypes[name] for name, dtype in found.items() if dtype != dtypes[name]}
    return frame.astype(other) if other else frame


def _columns_frame(table: pa.Table, types: PandasTypes) -> "pd.DataFrame":
    """A frame of all columns, also of those that were the index of a pandas source."""
    frame = pandas_frame(table, types)
    if frame.index.names != [None]:
        frame = frame.reset_index()
    columns: pd.DataFrame = frame[table.column_names]
    return columns


def _meta(table: pa.Table, types: PandasTypes) -> "pd.DataFrame":
    """A frame without rows, of the types that all rows together have.

    Whole numbers and booleans are of another type where there is a null.
    """
    frame = _columns_frame(table.slice(0, 0), types)
    changed = [
        field
        for field in table.schema
        if (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type))
        and table.column(field.name).null_count
    ]
    nulls = pa.table([pa.nulls(1, field.type) for field in changed], pa.schema(changed))
    nulls = nulls.replace_schema_metadata(table.schema.metadata)
    dtypes = _columns_frame(nulls, types).dtypes
    return frame.astype(dtypes.to_dict())
