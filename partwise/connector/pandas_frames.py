"""Tables as pandas frames, of pandas' types or of Arrow's."""

import functools
import json
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from partwise.connector.categories import with_joinable_categories
from partwise.errors import ColumnError, InputError
from partwise.tables.features import UNNAMED_INDEX

if TYPE_CHECKING:
    import pandas as pd

PandasTypes = Literal["numpy", "arrow"]
"""Types of a pandas frame: as `pandas.read_parquet` gives them, or Arrow's own."""


_NULLABLE = {"Float32": "float", "Float64": "double", "boolean": "bool"}
_NULLABLE |= {
    f"{name}{bits}": f"{name}{bits}".lower() for name in ("Int", "UInt") for bits in (8, 16, 32, 64)
}
"""Arrow's names of the types that only pandas has."""


_NO_FORM = (NotImplementedError, ValueError, OverflowError)
"""What Arrow raises of types, and of values such as dates beyond the year 9999."""


def pandas_frame(table: pa.Table, types: PandasTypes) -> "pd.DataFrame":
    """Turn a table into a pandas frame.

    Its index counts from 0, unless pandas wrote the rows with one that has names.
    """
    if types not in ("numpy", "arrow"):
        raise InputError(f"types={types!r} is unknown: pass 'numpy' or 'arrow'.")
    table = _with_chunks(with_joinable_categories(table))
    frame: pd.DataFrame
    if types == "arrow":
        import pandas

        frame = table.to_pandas(types_mapper=pandas.ArrowDtype, ignore_metadata=True)
        return frame
    try:
        frame = _as_read(table).to_pandas()
    except _NO_FORM as error:
        raise _formless(table, error) from error
    return frame


def _with_chunks(table: pa.Table) -> pa.Table:
    """Give each column a chunk: pyarrow (26) ends the process at list views that have none."""
    if table.num_rows:
        return table
    columns = [
        column if column.num_chunks else pa.chunked_array([pa.nulls(0, column.type)])
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _formless(table: pa.Table, error: Exception) -> ColumnError:
    """Return the error of a table of which Arrow makes no frame: lists of views, for example."""
    for index, field in enumerate(table.schema):
        try:
            table.select([index]).to_pandas()
        except _NO_FORM as reason:
            return ColumnError(
                f"Column {field.name!r} of type {field.type} has no form in pandas ({reason}): "
                'leave it out, cast it, or take types="arrow".'
            )
    return ColumnError(f"The rows have no form in pandas: {error}")


def _as_read(table: pa.Table) -> pa.Table:
    """Take from what pandas wrote beside a table what does not hold for these rows.

    It is of the rows of a whole file, of which these may be some, in another order and beside those
    of other files: an index that counts would number them as they stood there, and a type of
    pandas' own may be narrower than the column.
    """
    schema = table.schema
    metadata = schema.metadata or {}
    written = metadata.get(b"pandas")
    if written is None:
        return table
    others = tuple(
        name
        for name, kind in _own_types(written).items()
        if (place := schema.get_field_index(name)) >= 0 and str(schema.field(place).type) != kind
    )
    return table.replace_schema_metadata({**metadata, b"pandas": _edited(written, others)})


# Both once for all partitions of a file: of 500 columns the text has 50 KB.
@functools.lru_cache(maxsize=16)
def _own_types(written: bytes) -> dict[str, str]:
    """Return the columns that have types of pandas' own, with Arrow's names of these."""
    columns = json.loads(written)["columns"]
    return {
        str(column["field_name"]): kind
        for column in columns
        if (kind := _NULLABLE.get(str(column["numpy_type"])))
    }


@functools.lru_cache(maxsize=16)
def _edited(written: bytes, others: tuple[str, ...]) -> bytes:
    """Leave out the indexes without names, and the types of columns that are of others."""

    def stays(name: str) -> bool:
        return name not in others and not UNNAMED_INDEX.fullmatch(name)

    found = json.loads(written)
    indexes, columns = found["index_columns"], found["columns"]
    # One that only counts is described, and has no column.
    found["index_columns"] = [
        each for each in indexes if isinstance(each, str) and not UNNAMED_INDEX.fullmatch(each)
    ]
    found["columns"] = [each for each in columns if stays(str(each["field_name"]))]
    return json.dumps(found).encode()
