"""What a filter compares a column with is brought to the column's own type, without a loss."""

import datetime as dt
import math
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import ColumnError
from partwise.sources.opening import open_source
from partwise.tables.comparisons import comparison

PRICES = pa.array([Decimal("-0.16"), Decimal("1.10"), Decimal("57.21"), Decimal("100.00"), None])
WIDE = pa.array([Decimal("57.21"), Decimal("57.22")], pa.decimal128(38, 36))
LARGE = pa.array([0, 5, 2**63, 2**64 - 1, None], pa.uint64())
LONG = pa.array([-(2**63), 2**53, 2**53 + 1, 2**63 - 1, None])
CLOCKS = pa.array([dt.time(0), dt.time(12, 30), dt.time(23, 59, 59, 5000), None])
MOMENT = dt.datetime(2026, 3, 1, 12, 0, 0, 123_000)  # noqa: DTZ001
MOMENTS = pa.array([MOMENT, MOMENT + dt.timedelta(1), None], pa.timestamp("ms"))
HALVES = pa.array(np.array([0.5, 0.1, -2, np.inf, np.nan], np.float16))
SINGLES = pa.array([0.1, 16_777_216, math.inf, None], pa.float32())
DAYS = pa.array([dt.date(2026, 1, 1), None, dt.date(2026, 1, 2)]).dictionary_encode()


@pytest.mark.parametrize(
    ("column", "sign", "value", "expected"),
    [
        (PRICES, "=", 1.1, [1]),
        (PRICES, ">", 57.21, [3]),
        (PRICES, "<=", -0.16, [0]),
        (PRICES, "!=", 100, [0, 1, 2]),
        (PRICES, "<", Decimal("1.1000001"), [0, 1]),
        (PRICES.cast(pa.decimal32(9, 2)), "in", [1.1, 100, 3.14159], [1, 3]),
        (WIDE, ">", 57, [0, 1]),
        (WIDE, "<", 10**40, [0, 1]),
        (LARGE, ">", 5, [2, 3]),
        (LARGE, ">=", 2**63, [2, 3]),
        (LARGE, "<", 2.5, [0]),
        (LARGE, ">", -1, [0, 1, 2, 3]),
        (LARGE, "not in", [2**63, -1], [0, 1, 3, 4]),
        (LONG, "=", 2.0**53, [1]),
        (LONG, ">", 2.0**53, [2, 3]),
        (LONG, "<", 2**64, [0, 1, 2, 3]),
        (LONG, "=", 2**64, []),
        (LONG, "!=", 0.5, [0, 1, 2, 3]),
        (CLOCKS, ">", dt.time(12, 30), [2]),
        (CLOCKS, "in", ["12:30"], [1]),
        (CLOCKS.cast(pa.time32("ms")), "<=", "12:30:00.000000001", [0, 1]),
        (MOMENTS, "=", MOMENT, [0]),
        (MOMENTS, ">", MOMENT + dt.timedelta(microseconds=1), [1]),
        (HALVES, ">", 0, [0, 1, 3]),
        (HALVES, "in", [0.1, -2], [1, 2]),
        (SINGLES, "=", 0.1, [0]),
        (SINGLES, "in", [0.1], [0]),
        (SINGLES, "<", 16_777_217, [0, 1]),
        (SINGLES, ">", 1e300, [2]),
        (DAYS, ">", "2026-01-01", [2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("written", [False, True])
def test_rows_pass_as_python_compares(column, sign, value, expected, written, tmp_path):
    rows = pa.table({"row": range(len(column)), "x": column})
    data = rows
    if written:
        data = str(tmp_path / "a.parquet")
        pq.write_table(rows, data, row_group_size=1)
    source = open_source(data, filter=[[("x", sign, value)], [("row", "=", 99)], [("row", "<", 0)]])
    found = [r for f in source.fragments() for b in source.selection.batches(f)
             for r in b["row"].to_pylist()]  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_of_numpy_in_nanoseconds_are_times(unit):
    days = np.arange("2026-01-01", "2026-01-04", dtype="datetime64[D]").astype("datetime64[ns]")
    data = pa.table({"x": pa.array(days).cast(pa.timestamp(unit))})
    later = days[1] + np.timedelta64(1, "ns")
    for condition, count in (
        (("x", ">", days[1]), 1),
        (("x", ">=", days[1]), 2),
        (("x", ">=", later), 1),
        (("x", "in", [days[0], later, pd.Timestamp(days[2])]), 2),
    ):
        source = open_source(data, filter=[condition])
        assert sum(batch.num_rows for batch in source.batches()) == count, condition
    with pytest.raises(ColumnError, match=r"type int64 with '2026-01-01T00:00:00\.000000000'"):
        open_source(pa.table({"x": [1]}), filter=[("x", "=", days[0])])


def test_categories_of_pandas_that_are_times_are_filtered():
    days = pd.Series(pd.to_datetime(["2026-01-01", None, "2026-01-02"]), dtype="category")
    source = open_source(pd.DataFrame({"x": days}), filter=[("x", ">", "2026-01-01")])
    assert sum(batch.num_rows for batch in source.batches()) == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(9, 2), "ten"),
        (pa.decimal128(9, 2), "Infinity"),
        (pa.decimal128(9, 2), "1E+999999999"),
        (pa.time64("us"), "25:00:00"),
        (pa.time64("us"), "2026-01-01T10:00:00"),
        (pa.timestamp("us"), 5),
        (pa.int64(), True),
        (pa.float64(), "1"),
        (pa.bool_(), 1),
        (pa.binary(), "a"),
    ],
)
def test_what_a_type_does_not_compare_with_is_refused_by_name(kind, value):
    message = rf"^The filter compares column 'x' of type {re.escape(str(kind))} .*: use a value of"
    with pytest.raises(ColumnError, match=message):
        comparison("x", kind, "<", value)
