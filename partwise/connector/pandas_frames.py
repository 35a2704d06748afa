"""Tables as pandas frames, of pandas' types or of Arrow's."""

import json
import re
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from partwise.connector.categories import without_null_categories
from partwise.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

PandasTypes = Literal["numpy", "arrow"]
"""Types of a pandas frame: as `pandas.read_parquet` gives them, or Arrow's own."""


_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_NULLABLE = {"Float32": "float", "Float64": "double", "boolean": "bool"}
_NULLABLE |= {
    f"{name}{bits}": f"{name}{bits}".lower() for name in ("Int", "UInt") for bits in (8, 16, 32, 64)
}
"""Arrow's names of the types that only pandas has."""


def pandas_frame(table: pa.Table, types: PandasTypes) -> "pd.DataFrame":
    """Turn a table into a pandas frame.

    Its index counts from 0, unless pandas wrote the rows with one that has names.
    """
    if types not in ("numpy", "arrow"):
        raise InputError(f"types={types!r} is unknown: pass 'numpy' or 'arrow'.")
    table = without_null_categories(table)
    frame: pd.DataFrame
    if types == "arrow":
        import pandas

        frame = table.to_pandas(types_mapper=pandas.ArrowDtype, ignore_metadata=True)
    else:
        frame = _as_read(table).to_pandas()
    return frame


def _as_read(table: pa.Table) -> pa.Table:
    """Take from what pandas wrote beside a table what does not hold for these rows.

    It is of the rows of a whole file, of which these may be some, in another order and beside those
    of other files: an index that counts would number them as they stood there, and a type of
    pandas' own may be narrower than the column.
    """
    written = (table.schema.metadata or {}).get(b"pandas")
    if written is None:
        return table
    found = json.loads(written)
    found["index_columns"] = [
        each
        for each in found["index_columns"]
        if each in table.column_names and not _UNNAMED_INDEX.fullmatch(each)
    ]
    found["columns"] = [each for each in found["columns"] if _holds(each, table.schema)]
    return table.replace_schema_metadata(
        {**table.schema.metadata, b"pandas": json.dumps(found).encode()}
    )


def _holds(column: dict[str, Any], schema: pa.Schema) -> bool:
    """Whether what pandas wrote of a column is so: it has the type, and is no unnamed index."""
    place = schema.get_field_index(str(column.get("field_name")))
    if place < 0 or _UNNAMED_INDEX.fullmatch(schema.names[place]):
        return False
    arrows = _NULLABLE.get(str(column.get("numpy_type")))
    return arrows is None or arrows == str(schema.field(place).type)
