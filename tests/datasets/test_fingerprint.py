"""The fingerprint and the statistics of rows: the same however the rows are divided."""

import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.datasets.fingerprint import ContentFingerprint
from partwise.datasets.statistics import SKETCH_SIZE, ColumnStatistics

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "text": st.none() | st.text(max_size=5),
            "real": st.none() | st.floats(),
            "flag": st.none() | st.booleans(),
            "list": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
            "inner": st.none() | st.fixed_dictionaries({"a": st.none() | st.text(max_size=2)}),
        }
    ),
    min_size=1,
    max_size=12,
)
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.int64())),
        ("inner", pa.struct([("a", pa.string())])),
    ]
)


def fingerprint(table: pa.Table, cuts: list[int]) -> str:
    found = ContentFingerprint(table.schema)
    bounds = [0, *sorted(cuts), table.num_rows]
    for start, stop in itertools.pairwise(bounds):
        for batch in table.slice(start, stop - start).combine_chunks().to_batches():
            found.add(batch)
    return found.hexdigest()


def statistics(table: pa.Table, cuts: list[int]) -> list[dict]:
    columns = [ColumnStatistics(field) for field in table.schema]
    bounds = [0, *sorted(cuts), table.num_rows]
    for start, stop in itertools.pairwise(bounds):
        for batch in table.slice(start, stop - start).to_batches():
            for column, array in zip(columns, batch.columns, strict=True):
                column.add(array)
    return [column.document().model_dump(exclude={"memory_bytes"}) for column in columns]


@settings(max_examples=60)
@given(rows=ROWS, data=st.data())
def test_neither_batches_nor_dictionaries_change_a_fingerprint(rows, data) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    whole = fingerprint(table, [])
    assert fingerprint(table, cuts) == whole
    coded = table.set_column(1, "text", table["text"].dictionary_encode())
    assert fingerprint(coded, cuts) == whole


@settings(max_examples=60)
@given(first=ROWS, second=ROWS)
def test_other_rows_have_another_fingerprint(first, second) -> None:
    tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in (first, second)]
    same = repr(first) == repr(second)
    assert (fingerprint(tables[0], []) == fingerprint(tables[1], [])) == same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["", None], [None, ""]),
        ([[1], [2, 3]], [[1, 2], [3]]),
        ([[], None], [None, []]),
        ([1, 2], [2, 1]),
        ([1, 2], [1.0, 2.0]),
    ],
)
def test_what_is_near_is_not_the_same(first, second) -> None:
    tables = [pa.table({"x": values}) for values in (first, second)]
    assert fingerprint(tables[0], []) != fingerprint(tables[1], [])
    renamed = tables[0].rename_columns(["y"])
    assert fingerprint(tables[0], []) != fingerprint(renamed, [])


@settings(max_examples=60)
@given(rows=ROWS, data=st.data())
def test_statistics_are_those_of_python(rows, data) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    number, text, real, flag, nested, inner = statistics(table, cuts)
    for found, name in ((number, "number"), (text, "text"), (flag, "flag")):
        values = [row[name] for row in rows if row[name] is not None]
        assert found["nulls"] == len(rows) - len(values)
        assert found["distinct"] == len(set(values))
        if values:
            # Arrow compares text by its bytes.
            order = str.encode if name == "text" else None
            assert (found["min"], found["max"]) == (min(values, key=order), max(values, key=order))
    reals = [row["real"] for row in rows if row["real"] is not None]
    finite = [value for value in reals if math.isfinite(value)]
    assert real["nans"] == sum(map(math.isnan, reals))
    numbers = {value for value in reals if not math.isnan(value)}
    assert real["distinct"] == len(numbers) + (real["nans"] > 0)
    if numbers and len(finite) == len(numbers):
        assert (real["min"], real["max"]) == (min(numbers), max(numbers))
    if number["mean"] is not None:
        values = [row["number"] for row in rows if row["number"] is not None]
        assert number["mean"] == pytest.approx(sum(values) / len(values), rel=1e-6, abs=1e5)
    for found in (nested, inner):
        assert (found["min"], found["max"], found["distinct"]) == (None, None, None)


def test_distinct_values_are_exact_while_few_and_near_when_many() -> None:
    few = pa.table({"x": [str(i % (SKETCH_SIZE - 1)) for i in range(3 * SKETCH_SIZE)]})
    assert statistics(few, [100, 5000])[0]["distinct"] == SKETCH_SIZE - 1
    for many in (pa.array(np.arange(300_000)), pa.array(np.arange(300_000).astype(str))):
        found = [statistics(pa.table({"x": many}), cuts)[0]["distinct"] for cuts in ([], [7, 9999])]
        assert found[0] == found[1] == pytest.approx(300_000, rel=0.06)
    # Never more than there are; the estimate of these alone would be.
    for start in range(0, 40_000, 5_000):
        many = pa.table({"x": pa.array(np.arange(start, start + 20_000))})
        assert statistics(many, [])[0]["distinct"] <= 20_000


def test_statistics_of_types_that_json_has_not() -> None:
    table = pa.table(
        {
            "dec": pa.array([Decimal("1.50"), Decimal("-2.00"), None]),
            "ts": pa.array([0, 10**9, None], pa.timestamp("ns", "UTC")),
            "dur": pa.array([90, None, 1], pa.duration("s")),
            "bytes": pa.array([b"\xff", b"\x00", None]),
            "half": pa.array([1.0, None, 2.0], pa.float16()),
            "long": ["x" * 500, None, "y"],
            "inf": [math.inf, -math.inf, math.nan],
            "empty": pa.array([None, None, None], pa.string()),
        }
    )
    found = {column["name"]: column for column in statistics(table, [])}
    bounds = {name: (column["min"], column["max"]) for name, column in found.items()}
    assert bounds == {
        "dec": ("-2.00", "1.50"),
        "ts": ("1970-01-01T00:00:00+00:00", "1970-01-01T00:00:01+00:00"),
        "dur": ("1 s", "90 s"),
        "bytes": ("00", "ff"),
        "half": (1.0, 2.0),
        "long": ("x" * 100 + "...", "y"),
        "inf": ("-inf", "inf"),
        "empty": (None, None),
    }
    assert {name for name, column in found.items() if column["distinct"] != 2} == {"inf", "empty"}
    assert (found["inf"]["distinct"], found["inf"]["nans"], found["inf"]["mean"]) == (3, 1, None)
    assert found["dec"]["mean"] == -0.25
