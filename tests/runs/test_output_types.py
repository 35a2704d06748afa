"""Columns of types that do not go together are told with the partitions that returned them."""

import pyarrow as pa
import pytest

from partwise.runs.output_types import unfit_types

LEDGER = pa.table(
    {
        "key.shop": ["a", "b", "c", "d", "e"],
        "partition_id": ["a", "b", "c", "d", "e"],
        "rows_file": ["1", "1", "2", "1", "1"],
    }
)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (pa.int64(), pa.int8(), None),
        (pa.int64(), pa.float64(), None),
        (pa.null(), pa.string(), None),
        (pa.string(), pa.large_string(), None),
        (pa.int64(), pa.string(), "int64 in 4 partitions (a, b, d, ...) and string in 1 partition"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "timestamp[us] in 4 partitions"),
        (pa.bool_(), pa.float64(), "and double in 1 partition (c)"),
        (pa.list_(pa.int64()), pa.int64(), "and int64 in 1 partition (c)"),
    ],
)
def test_types_are_told_where_no_table_holds_them(first, second, told) -> None:
    schemas = {
        "1": pa.schema([("row", pa.int64()), ("x", first)]),
        "2": pa.schema([("x", second), ("own", pa.string())]),
    }
    tables = [schema.empty_table() for schema in schemas.values()]
    found = unfit_types(LEDGER, schemas)
    if told is None:
        pa.concat_tables(tables, promote_options="permissive")
        assert found is None
        return
    with pytest.raises((pa.ArrowTypeError, pa.ArrowInvalid)):
        pa.concat_tables(tables, promote_options="permissive")
    assert found is not None
    assert found.startswith("column 'x' is ")
    assert told in found
