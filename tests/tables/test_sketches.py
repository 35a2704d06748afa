"""Sketches of rows: what they hold, that bytes give them back, and that counts add up."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import RunFormatError
from partwise.tables.sketches import (
    MOST_CATEGORIES,
    MOST_ROWS,
    Sketch,
    decode,
    encode,
    make_sketch,
    rows_below,
    some_rows,
)

DAY = datetime.date(2026, 11, 26)


def as_plain(sketch: Sketch) -> Any:
    numbers = sketch.numbers
    counts = [each.tolist() for each in (numbers.missing, numbers.below, numbers.is_tied)]
    names = [numbers.names, numbers.is_time, sketch.categories, sketch.label]
    return [sketch.rows, sketch.looked_at, *names, *counts, numbers.cuts.tobytes()]


def columns_of(rows: int) -> st.SearchStrategy[dict[str, pa.Array]]:
    def of(values: st.SearchStrategy[Any], kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
        some = st.none() | values
        return st.lists(some, min_size=rows, max_size=rows).map(lambda each: pa.array(each, kind))

    column = st.one_of(
        of(st.floats(), pa.float64()),
        of(st.floats(width=32), pa.float32()),
        of(st.integers(-(2**63), 2**63 - 1), pa.int64()),
        of(st.integers(0, 2**64 - 1), pa.uint64()),
        of(st.integers(0, 3), pa.int8()),
        of(st.booleans(), pa.bool_()),
        of(st.text(), pa.string()),
        of(st.text(max_size=1), pa.string_view()),
        of(st.text(max_size=1), pa.string_view()).map(lambda each: each.dictionary_encode()),
        of(st.sampled_from(["a", "b"]), pa.dictionary(pa.int32(), pa.string())),
        of(st.integers(0, 2), pa.dictionary(pa.int8(), pa.int64())),
        of(st.decimals(-99, 99, places=2), pa.decimal128(9, 2)),
        of(st.dates(), pa.date32()),
        of(st.just(DAY), pa.date64()),
        of(st.integers(-(2**62), 2**62), pa.timestamp("ns", "UTC")),
        of(st.integers(0, 86_399), pa.time32("s")),
        of(st.integers(0, 9), pa.duration("us")),
        of(st.nothing(), pa.null()),
        of(st.binary(), pa.binary()),
        of(st.lists(st.floats(), max_size=2), pa.list_(pa.float64())),
    )
    return st.dictionaries(st.text(max_size=8), column, max_size=6)


@settings(max_examples=150, deadline=None)
@given(rows=st.integers(0, 40), data=st.data())
def test_bytes_give_a_sketch_back_and_counts_add_up_to_rows(rows: int, data: Any):
    columns = data.draw(columns_of(rows))
    table = pa.table(columns) if columns else pa.table({"x": pa.nulls(rows)})
    sketch = make_sketch(table, label=data.draw(st.sampled_from(table.column_names)))
    content = encode(sketch)
    assert as_plain(decode(content)) == as_plain(sketch)
    assert sketch.rows == sketch.looked_at == rows
    numbers = sketch.numbers
    present = rows - numbers.missing
    assert (numbers.below[:, -1] == present).all()
    assert (np.diff(numbers.below, axis=1, prepend=0) >= 0).all()
    for each in sketch.categories:
        assert each.missing + sum(each.counts.values()) + each.other == rows
    kinds = [table.schema.field(name).type for name in table.column_names]
    left_out = [kind for kind in kinds if pa.types.is_binary(kind) or pa.types.is_list(kind)]
    assert len(sketch.names) == table.num_columns - len(left_out)


@settings(max_examples=50, deadline=None)
@given(content=st.binary(max_size=60), cut=st.integers(0, 200))
def test_other_bytes_are_refused_by_name(content: bytes, cut: int):
    table = pa.table({"x": np.arange(60.0), "shop": ["a", "b", "c"] * 20})
    made = encode(make_sketch(table))
    for wrong in (content, made[: min(cut, len(made) - 1)], made + b"\0"):
        with pytest.raises(RunFormatError, match="sketch"):
            decode(wrong)


def test_of_distinct_values_it_has_tenths():
    values = np.random.default_rng(0).permutation(101)
    sketch = make_sketch(pa.table({"x": values}))
    assert sketch.numbers.cuts[0].tolist() == [10.0 * k for k in range(11)]
    assert sketch.numbers.below[0].tolist() == [10 * k + 1 for k in range(11)]


def test_a_frequent_value_stands_between_two_cuts():
    sketch = make_sketch(pa.table({"x": [1.0] * 10 + [2.0] * 30 + [3.0] * 20}))
    cuts, below = sketch.numbers.cuts[0], sketch.numbers.below[0]
    parts = {*zip(cuts.tolist(), below.tolist(), strict=True)}
    assert {(1.0, 0), (1.0, 10), (2.0, 10), (2.0, 40)} <= parts, "below a value, and up to it"
    assert below[-1] == 60
    constant = make_sketch(pa.table({"x": [5] * 60})).numbers
    assert constant.below[0].tolist() == [0] * 10 + [60]
    assert rows_below(np.array([4, 5, 6], np.float32), constant.cuts[0]).tolist() == [1] * 10 + [2]


def test_values_of_every_kind_are_numbers_or_texts():
    table = pa.table(
        {
            "half": pa.array(np.array([1, 2], np.float16)),
            "price": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
            "day": [DAY, DAY + datetime.timedelta(days=1)],
            "at": pa.array([0, 10**6], pa.timestamp("us")),
            "paid": [True, None],
            "code": pa.array([7, 7]).dictionary_encode(),
            "huge": [1e300, math.nan],
        }
    )
    sketch = make_sketch(table, label="paid")
    numbers = sketch.numbers
    found = dict(zip(numbers.names, numbers.cuts[:, [0, -1]].tolist(), strict=True))
    assert found == {
        "half": [1, 2], "price": [1.25, 1.25], "day": [20783 * 86400, 20784 * 86400], "at": [0, 1],
        "huge": [math.inf, math.inf],
    }  # fmt: skip
    missing = dict(zip(numbers.names, numbers.missing.tolist(), strict=True))
    assert missing == {"half": 0, "price": 1, "day": 0, "at": 0, "huge": 1}
    assert {each.name: (each.counts, each.missing) for each in sketch.categories} == {
        "paid": ({"true": 1}, 1),
        "code": ({"7": 2}, 0),
    }
    assert sketch.label == "paid"


def test_the_most_frequent_categories_are_kept_and_long_texts_by_a_checksum():
    texts = [f"shop {n:02}" for n in range(20) for _ in range(20 - n)]
    long = ["x" * 100 + end for end in ("a", "b")]
    sketch = make_sketch(pa.table({"shop": texts}))
    assert list(sketch.categories[0].counts) == [f"shop {n:02}" for n in range(MOST_CATEGORIES)]
    assert sketch.categories[0].other == 4 + 3 + 2 + 1
    kept = make_sketch(pa.table({"long": long})).categories[0].counts
    assert [len(each) for each in kept] == [40, 40]


def test_of_a_large_partition_the_same_rows_are_looked_at():
    table = pa.table({"x": np.arange(100_000.0)})
    sketch = make_sketch(table)
    assert (sketch.rows, sketch.looked_at) == (100_000, MOST_ROWS)
    assert encode(sketch) == encode(make_sketch(table))
    chosen = some_rows(table)["x"].to_numpy()
    assert (np.diff(chosen) > 0).all(), "each row once, over all of them"
    assert np.bincount((chosen // 10_000).astype(int)).tolist() == [1000] * 10


def test_columns_that_cannot_be_sampled_break_no_training():
    rows = 2 * MOST_ROWS
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1.0]))
    views = pa.array(["a", "b"] * MOST_ROWS)
    table = pa.table({"ends": ends, "text": views.cast(pa.string_view())})
    table = table.append_column("bytes", views.cast(pa.binary()).cast(pa.binary_view()))
    [text] = make_sketch(table).categories
    assert (text.name, sum(text.counts.values())) == ("text", MOST_ROWS)
    nothing = make_sketch(table.select(["ends"]))
    assert (nothing.rows, nothing.names) == (rows, ())
    assert decode(encode(nothing)).rows == rows


def test_a_column_of_60_rows_takes_few_bytes():
    random = np.random.default_rng(0)
    table = pa.table({f"x{n}": random.normal(size=60) for n in range(8)})
    assert len(encode(make_sketch(table))) <= 8 * 50
    whole = pa.table({f"x{n}": random.integers(0, 100, 60) for n in range(8)})
    assert len(encode(make_sketch(whole))) <= 8 * 60
