"""The hash of rows sees their values and nothing else."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.tables.row_hash import hash_rows, hash_schema, lay_out_batch

TYPES = {
    "int64": (pa.int64(), st.integers(-5, 5)),
    "float": (pa.float32(), st.sampled_from([0.0, 1.5, -2.0])),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text("ab", max_size=3)),
    "bytes": (pa.large_binary(), st.binary(max_size=3)),
    "fixed": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "decimal": (pa.decimal128(5, 1), st.sampled_from([Decimal("1.5"), Decimal(0)])),
    "time": (pa.timestamp("ns"), st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2001, 1, 1))),  # noqa: DTZ001
    "category": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "yy"])),
    "null": (pa.null(), st.none()),
    "list": (pa.list_(pa.string()), st.lists(st.none() | st.text("ab", max_size=2), max_size=3)),
    "deep": (
        pa.large_list(pa.list_(pa.int8())),
        st.lists(st.none() | st.lists(st.none() | st.integers(0, 3), max_size=2), max_size=2),
    ),
    "pair": (pa.list_(pa.int16(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {"a": st.none() | st.integers(0, 3), "b": st.none() | st.lists(st.text("ab"))}
        ),
    ),
    "map": (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(st.text("ab"), st.integers(0, 3)))),
}


def hash_of(*parts: pa.RecordBatch) -> str:
    digest = hash_schema(parts[0].schema)
    hash_rows(digest, [(lay_out_batch(part), 0, part.num_rows) for part in parts])
    return digest.hexdigest()


def hash_within(batch: pa.RecordBatch, start: int, stop: int) -> str:
    digest = hash_schema(batch.schema)
    hash_rows(digest, [(lay_out_batch(batch), start, stop)])
    return digest.hexdigest()


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(2, 8))
    columns = {}
    for name in names:
        data_type, values = TYPES[name]
        values = draw(st.sampled_from([values, st.none() | values]))
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, data_type)
    return pa.record_batch(columns)


@settings(max_examples=150)
@given(batches(), st.data())
def test_neighbours_buffers_and_batches_make_no_difference(batch, data):
    start = data.draw(st.integers(0, batch.num_rows - 1))
    stop = data.draw(st.integers(start + 1, batch.num_rows))
    alone = pa.RecordBatch.from_pylist(
        batch.slice(start, stop - start).to_pylist(), schema=batch.schema
    )
    expected = hash_of(alone)
    assert hash_within(batch, start, stop) == expected
    assert hash_of(batch.slice(start, stop - start)) == expected
    cut = data.draw(st.integers(start, stop))
    assert hash_of(batch.slice(start, cut - start), batch.slice(cut, stop - cut)) == expected


@settings(max_examples=150)
@given(batches(), st.data())
def test_equal_hashes_mean_equal_rows(batch, data):
    rows = batch.num_rows // 2
    first, second = batch.slice(0, rows), batch.slice(rows, rows)
    assert (hash_of(first) == hash_of(second)) == (first.to_pylist() == second.to_pylist())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["", None], [None, ""]),
        ([0, None], [None, 0]),
        ([[1], [2]], [[1, 2], []]),
        ([[None], [1]], [[1], [None]]),
        ([None, []], [[], None]),
        ([True, None], [None, True]),
        ([{"a": 1}, None], [{"a": 1}, {"a": None}]),
    ],
)
def test_near_misses(first, second):
    one, other = pa.array(first), pa.array(second, pa.array(first).type)
    assert hash_of(pa.record_batch({"x": one})) != hash_of(pa.record_batch({"x": other}))


def test_what_stands_under_nulls_makes_no_difference():
    def with_values(data_type: pa.DataType, *buffers: np.ndarray, children=None) -> str:
        valid = pa.py_buffer(b"\x05")
        array = pa.Array.from_buffers(
            data_type, 3, [valid, *map(pa.py_buffer, buffers)], children=children
        )
        return hash_of(pa.record_batch({"x": array}))

    values = np.array([1, 2, 3], np.int64)
    assert with_values(pa.int64(), values) == with_values(pa.int64(), values * [1, 9, 1])
    empty, full = np.array([0, 1, 1, 2], np.int32), np.array([0, 1, 3, 4], np.int32)
    assert with_values(pa.string(), empty, np.frombuffer(b"ad", "u1")) == with_values(
        pa.string(), full, np.frombuffer(b"abcd", "u1")
    )
    kind = pa.list_(pa.int8())
    short, long = pa.array([1, 4], pa.int8()), pa.array([1, 2, 3, 4], pa.int8())
    assert with_values(kind, empty, children=[short]) == with_values(kind, full, children=[long])


def test_the_schema_is_part_of_it_but_encodings_are_not():
    names = {hash_schema(pa.schema([(name, pa.int64())])).hexdigest() for name in ("a", "b")}
    assert len(names) == 2
    plain, category = pa.schema([("a", pa.string())]), pa.schema([("a", TYPES["category"][0])])
    assert hash_schema(plain).hexdigest() == hash_schema(category).hexdigest()
    texts = pa.array(["a", None, "b"])
    assert hash_of(pa.record_batch({"a": texts})) == hash_of(
        pa.record_batch({"a": texts.dictionary_encode()})
    )


def test_hashes_are_frozen():
    """Fingerprints of rows stand in ledgers: a change would train every partition again."""
    batch = pa.record_batch(
        {"a": [1, None], "b": ["x", ""], "c": [[1.5], None], "d": [True, False]}
    )
    assert hash_of(batch)[:16] == "9701c8629ad0de26"
    assert hash_of(batch.slice(0, 1))[:16] == "11867c40ff5730ba"
