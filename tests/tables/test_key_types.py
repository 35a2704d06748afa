"""Keys of every scalar Arrow type: one key has one partition ID, whatever its width or encoding."""

# ruff: noqa: DTZ001 (times without a zone are keys as well)

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import sort_shard
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import (
    hash_keys,
    key_bytes,
    key_columns,
    key_values,
    normalize_keys,
    partition_id,
    partition_ids,
)

UNITS = ("s", "ms", "us", "ns")
ZONES = ("UTC", "Europe/Zurich", "+05:30")

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES: dict[str, tuple[st.SearchStrategy[Any], list[pa.DataType]]] = {
    "integer": (st.integers(0, 127), INTEGERS),
    "float": (
        # Every half is the same number in all widths.
        st.integers(-2000, 2000).map(lambda halves: halves / 2),
        [pa.float16(), pa.float32(), pa.float64()],
    ),
    "boolean": (st.booleans(), [pa.bool_()]),
    "string": (
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        [pa.string(), pa.large_string(), pa.string_view()],
    ),
    "binary": (
        st.binary(min_size=3, max_size=3),
        [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)],
    ),
    "date": (st.dates(), [pa.date32(), pa.date64()]),
    "time": (
        st.integers(0, 86_399).map(lambda s: (dt.datetime(2000, 1, 1) + dt.timedelta(0, s)).time()),
        [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    ),
    "timestamp": (
        st.integers(-(10**9), 10**9).map(lambda s: dt.datetime(1970, 1, 1) + dt.timedelta(0, s)),
        [pa.timestamp(unit) for unit in UNITS],
    ),
    "timestamp_tz": (
        st.integers(-(10**9), 10**9).map(lambda s: dt.datetime.fromtimestamp(s, dt.UTC)),
        [pa.timestamp(unit, zone) for unit in UNITS for zone in ZONES],
    ),
    "duration": (
        st.integers(-(10**9), 10**9).map(lambda s: dt.timedelta(0, s)),
        [pa.duration(unit) for unit in UNITS],
    ),
    "decimal": (
        st.integers(-9999, 9999).map(lambda units: Decimal(units * 100).scaleb(-2)),
        [
            pa.decimal32(9, 2), pa.decimal64(18, 5), pa.decimal128(38, 0), pa.decimal256(76, 10),
            pa.decimal128(6, 2),
        ],
    ),
}  # fmt: skip


def make(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if pa.types.is_float16(data_type):
        numbers = np.array([0 if v is None else v for v in values], np.float16)
        return pa.array(numbers, data_type, mask=np.array([v is None for v in values]))
    return pa.array(values, data_type, from_pandas=False)


def encodings(array: pa.Array) -> Iterator[pa.Array]:
    """The array plain, as dictionaries with and without repeats, and run-length encoded."""
    yield array
    rows = pa.array(range(len(array)), pa.int8())
    yield pa.DictionaryArray.from_arrays(rows, array)
    if not pa.types.is_decimal32(array.type) and not pa.types.is_decimal64(array.type):
        yield array.dictionary_encode()
    ends = pa.array(range(1, len(array) + 1), pa.int16())
    yield pa.RunEndEncodedArray.from_arrays(ends, array)


def identified(array: pa.Array) -> tuple[list[str], list[int]]:
    """The partition IDs and hashes of keys, from the source on."""
    source = open_source(pa.table({"k": array}))
    columns = key_columns(source.schema, ["k"])
    keys = [normalize_keys(batch, columns) for batch in source.batches()]
    ids = [name for batch in keys for name in partition_ids(batch, columns)]
    hashes = [value for batch in keys for value in hash_keys(batch).tolist()]
    values = [value for batch in keys for value in key_values(batch)]
    assert [partition_id(value, columns) for value in values] == ids
    return ids, hashes


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=8)
@given(data=st.data())
def test_one_key_has_one_identity_in_every_width_and_encoding(name, data):
    values, types = TYPES[name]
    drawn = [*data.draw(st.lists(values, min_size=1, max_size=8)), None]
    expected = None
    for data_type in types:
        for array in encodings(make(drawn, data_type)):
            found = identified(array)
            expected = expected or found
            assert found == expected, array.type
    assert expected is not None
    assert len(set(expected[0])) == len({key_text(value) for value in drawn})


def key_text(value: Any) -> str:
    return "null" if value is None else str(value + 0 if isinstance(value, Decimal) else value)


@pytest.mark.parametrize("name", TYPES)
def test_a_python_value_finds_the_key_of_every_type(name):
    _, types = TYPES[name]
    value = VALUES[name]
    for data_type in types:
        columns = key_columns(pa.schema([("k", data_type)]), ["k"])
        (found,) = key_values(normalize_keys(pa.table({"k": make([value], data_type)}), columns))
        assert found == value
        assert key_bytes(value, columns) == key_bytes(found, columns)
        assert key_bytes(pa.scalar(value), columns) == key_bytes(found, columns)


VALUES = {
    "integer": 7,
    "float": 0.5,
    "boolean": True,
    "string": "é",
    "binary": b"\x00\xffa",
    "date": dt.date(2026, 11, 21),
    "time": dt.time(3, 25, 1),
    "timestamp": dt.datetime(2026, 11, 21, 3, 25, 1),
    "timestamp_tz": dt.datetime(2026, 11, 21, 3, 25, 1, tzinfo=dt.UTC),
    "duration": dt.timedelta(-1, 5),
    "decimal": Decimal(-300),
}


def test_every_scalar_type_is_a_key_or_refused():
    """Whatever Arrow adds: a type without children is of a class, or there is a sentence."""
    covered = {str(data_type) for _, types in TYPES.values() for data_type in types}
    for data_type in (pa.null(), pa.month_day_nano_interval(), pa.uuid(), pa.json_()):
        covered.add(str(data_type))
        schema = pa.schema([("k", data_type)])
        if pa.types.is_null(data_type):
            assert key_columns(schema, ["k"])[0].key_class == "null"
            continue
        with pytest.raises(ColumnError, match=r"'k' of type .* cannot be a partition key: cast"):
            key_columns(schema, ["k"])
    makers = (pa.int8, pa.float16, pa.bool_, pa.string_view, pa.binary_view, pa.date64, pa.null)
    assert {str(maker()) for maker in makers} <= covered


def test_null_of_every_type_is_one_key():
    found = set()
    for _, types in TYPES.values():
        for data_type in [*types, pa.null()]:
            found.update(identified(pa.nulls(1, data_type))[0])
    assert found == {"null-fd87400839d77a68"}


def test_decimals_of_a_negative_scale_are_the_numbers_that_they_stand_for(tmp_path):
    keys = pa.array([Decimal(1500), Decimal(-300)], pa.decimal128(5, -2))
    assert identified(keys) == identified(pa.array([1500, -300]).cast(pa.decimal128(20, 0)))
    source = open_source(pa.table({"k": keys}))
    sharded = shard_rows(source, key_columns(source.schema, ["k"]), 1, tmp_path / "sharded")
    done = sort_shard(sharded.shards[0], sharded.key_columns, tmp_path / "sorted")
    assert done.keys["k"].type == pa.decimal128(7, 0)
    assert done.keys["k"].to_pylist() == [Decimal(-300), Decimal(1500)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([253_402_300_800], pa.timestamp("s")),
        pa.array([-62_135_596_801], pa.timestamp("s", "UTC")),
        pa.array([10_000_000], pa.date32()),
        pa.array([pc.multiply(pa.scalar(10_000_000), 86_400_000).as_py()], pa.date64()),
    ],
    ids=lambda array: str(array.type),
)
def test_years_that_python_lacks_are_refused(array):
    message = r"^Key column 'k' of type .* holds .*: a year is not from 1 to 9999\.$"
    with pytest.raises(ColumnError, match=message):
        identified(array)
    last = pa.array([dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us"))
    assert identified(last)[0][0].startswith("9999-12-31t23-59-59.999999-")


def test_times_of_the_day_finer_than_those_of_python_are_refused():
    with pytest.raises(
        ColumnError, match=r"^Key column 'k' of type time64\[ns\] holds a value that"
    ):
        identified(pa.array([1001], pa.time64("ns")))
    assert identified(pa.array([1000], pa.time64("ns"))) == identified(
        pa.array([1], pa.time64("us"))
    )
