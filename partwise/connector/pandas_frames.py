"""Tables as pandas frames, of pandas' types or of Arrow's."""

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from partwise.connector.categories import without_null_categories
from partwise.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

PandasTypes = Literal["numpy", "arrow"]
"""Types of a pandas frame: as `pandas.read_parquet` gives them, or Arrow's own."""


def pandas_frame(table: pa.Table, types: PandasTypes) -> "pd.DataFrame":
    """Turn a table into a pandas frame."""
    if types not in ("numpy", "arrow"):
        raise InputError(f"types={types!r} is unknown: pass 'numpy' or 'arrow'.")
    table = without_null_categories(table)
    frame: pd.DataFrame
    if types == "arrow":
        import pandas

        frame = table.to_pandas(types_mapper=pandas.ArrowDtype, ignore_metadata=True)
    else:
        frame = table.to_pandas()
    return frame
