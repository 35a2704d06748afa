"""Keys keep their class, and what is derived from them is frozen."""

# ruff: noqa: DTZ001, RUF001 (times without a zone and odd letters are keys as well)

import datetime as dt
import itertools
import math
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError, KeyClassError
from partwise.tables.keys.given_keys import keys_of_values
from partwise.tables.keys.partition_keys import (
    HASH_VERSION,
    KeyClass,
    KeyColumn,
    check_key_classes,
    encode_keys,
    hash_keys,
    key_bytes,
    key_columns,
    key_identities,
    key_values,
    normalize_keys,
    partition_id,
    partition_ids,
    partition_seed,
)

UTC = dt.UTC
VALUES = {
    KeyClass.INTEGER: (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    KeyClass.STRING: (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    KeyClass.FLOAT: (pa.float64(), st.floats()),
    KeyClass.BOOLEAN: (pa.bool_(), st.booleans()),
    KeyClass.TIMESTAMP: (pa.timestamp("us"), st.datetimes()),
    KeyClass.TIMESTAMP_TZ: (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(UTC)),
    ),
    KeyClass.DATE: (pa.date32(), st.dates()),
    KeyClass.TIME: (pa.time64("us"), st.times()),
    KeyClass.DURATION: (
        pa.duration("us"),
        st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000)),
    ),
    KeyClass.DECIMAL: (
        pa.decimal128(20, 5),
        st.decimals(-(10**14), 10**14, places=5, allow_nan=False),
    ),
    KeyClass.BINARY: (pa.binary(), st.binary()),
    KeyClass.NULL: (pa.null(), st.none()),
}


def one(key_class: KeyClass) -> tuple[KeyColumn, ...]:
    return (KeyColumn(name="k", key_class=key_class),)


def normalized(array: pa.Array | pa.ChunkedArray) -> tuple[pa.Table, tuple[KeyColumn, ...]]:
    table = pa.table({"k": array})
    columns = key_columns(table.schema, ["k"])
    return normalize_keys(table, columns), columns


def hashes(array: pa.Array | pa.ChunkedArray) -> list[int]:
    return hash_keys(normalized(array)[0]).tolist()


def ids(array: pa.Array | pa.ChunkedArray) -> list[str]:
    return partition_ids(*normalized(array))


@st.composite
def key_arrays(draw: st.DrawFn) -> tuple[KeyClass, pa.Array]:
    key_class = draw(st.sampled_from(sorted(VALUES)))
    data_type, values = VALUES[key_class]
    drawn = draw(st.lists(st.none() | values, min_size=1, max_size=12))
    return key_class, pa.array(drawn, data_type, from_pandas=False)


@settings(max_examples=150)
@given(key_arrays())
def test_many_keys_are_encoded_as_one_is(drawn):
    key_class, array = drawn
    keys, columns = normalized(array)
    assert columns == one(key_class)
    values = key_values(keys)
    assert encode_keys(keys, columns) == [key_bytes(value, columns) for value in values]
    assert partition_ids(keys, columns) == [partition_id(value, columns) for value in values]


@settings(max_examples=100)
@given(key_arrays(), st.integers(1, 5), st.data())
def test_the_hash_knows_values_not_layouts(drawn, chunk_rows, data):
    _, array = drawn
    expected = hashes(array)
    chunks = [array.slice(i, chunk_rows) for i in range(0, len(array), chunk_rows)]
    assert hashes(pa.chunked_array(chunks)) == expected
    start = data.draw(st.integers(0, len(array)))
    assert hashes(array.slice(start)) == expected[start:]
    assert hashes(pa.concat_arrays([array, array])) == expected * 2
    if not pa.types.is_null(array.type):
        assert hashes(array.dictionary_encode()) == expected
    keys = key_values(normalized(array)[0])
    for key, value in zip(keys, expected, strict=True):
        same = [h for k, h in zip(keys, expected, strict=True) if repr(k) == repr(key)]
        assert set(same) == {value}


SAME_KEYS = {
    "integers": [pa.array([0, 5, None], t) for t in (pa.int8(), pa.uint16(), pa.int64())]
    + [pa.array([0, 5, None], pa.uint64())],
    "strings": [pa.array(["", "é", None], t) for t in (pa.string(), pa.large_string())]
    + [pa.array(["", "é", None], pa.string_view()), pa.array(["", "é", None]).dictionary_encode()]
    # As polars has categories.
    + [pa.DictionaryArray.from_arrays([0, 1, None], pa.array(["", "é"], pa.string_view()))],
    "floats": [pa.array([0.0, 0.5, None, math.nan], t) for t in (pa.float64(), pa.float32())]
    + [pa.array(np.array([0.0, 0.5, 1, math.nan], np.float16), mask=np.array([0, 0, 1, 0], bool))]
    + [pa.array([-0.0, 0.5, None, -math.nan], pa.float64())],
    "timestamps": [
        pa.array([0, -60, None], pa.timestamp("s")),
        pa.array([0, -60_000_000_000, None], pa.timestamp("ns")),
    ],
    "zones": [pa.array([0, 60, None], pa.timestamp("s", zone)) for zone in ("UTC", "Asia/Tokyo")],
    "dates": [pa.array([0, None], pa.date32()), pa.array([0, None], pa.date64())],
    "times": [
        pa.array([60, None], pa.time32("s")),
        pa.array([60_000_000_000, None], pa.time64("ns")),
    ],
    "durations": [
        pa.array([-60, None], pa.duration("s")),
        pa.array([-60_000_000_000, None], pa.duration("ns")),
    ],
    "decimals": [
        pa.array([Decimal("1.5"), Decimal(0), None, Decimal(-300)], t)
        for t in (pa.decimal128(5, 1), pa.decimal128(20, 6), pa.decimal256(50, 2))
    ],
    "bytes": [pa.array([b"ab", None], t) for t in (pa.binary(), pa.large_binary(), pa.binary(2))]
    + [pa.array([b"ab", None], pa.binary_view())],
    "runs": [
        pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
        pa.array(["a", "a", "b"]),
    ],
}


@pytest.mark.parametrize("name", SAME_KEYS)
def test_width_unit_scale_and_encoding_do_not_matter(name):
    first, *others = SAME_KEYS[name]
    for other in others:
        assert hashes(other) == hashes(first), other.type
        assert ids(other) == ids(first), other.type


def test_nanoseconds_are_told_apart():
    array = pa.array([1000, 1001, 999, -1, 0], pa.timestamp("ns"))
    assert len(set(hashes(array))) == len(set(ids(array))) == 5


def test_classes_are_told_apart():
    arrays = [
        pa.array([1]), pa.array(["1"]), pa.array([1.0]), pa.array([True]), pa.nulls(1),
        pa.array([b"1"]), pa.array([Decimal(1)]), pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.date32()),
        pa.array([1], pa.time64("us")), pa.array([1], pa.duration("us")),
        pa.array([math.nan]), pa.array([""]), pa.array([False]), pa.array(["null"]),
    ]  # fmt: skip
    assert len({ids(array)[0] for array in arrays}) == len(arrays)
    assert len({hashes(array)[0] for array in arrays}) == len(arrays)


def test_null_is_one_key_in_every_class():
    arrays = [pa.array([None], t) for t, _ in VALUES.values()]
    assert {ids(array)[0] for array in arrays} == {"null-fd87400839d77a68"}
    assert len({hashes(array)[0] for array in arrays}) == 1
    for missing in (None, pd.NaT, pd.NA, np.datetime64("NaT")):
        assert key_bytes(missing, one(KeyClass.STRING)) == b"n" + bytes(8)


EITHER_SIGN = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([-1, 2**64 - 1, 2**63, -(2**63)])


@given(st.lists(st.tuples(EITHER_SIGN, EITHER_SIGN), min_size=1))
@example([(-1, 2**64 - 1), (2**64 - 1, -1), (-1, -1), (2**64 - 1, 2**64 - 1)])
def test_keys_of_two_tables_meet_where_they_are_equal(keys):
    found = {}
    for key in keys:
        kinds = [[pa.int64()] * (v < 2**63) + [pa.uint64()] * (v >= 0) for v in key]
        for first, second in itertools.product(*kinds):
            table = pa.table({"a": pa.array([key[0]], first), "b": pa.array([key[1]], second)})
            found.setdefault(int(key_identities(table)[0]), set()).add(key)
    assert sorted(map(list, found.values())) == sorted([key] for key in set(keys))


def test_integers_beyond_int64_meet_no_null():
    column = pa.chunked_array(
        [pa.array([2**63, None, 1], pa.uint64()), pa.array([None], pa.uint64())]
    )
    table = pa.table({"k": column})
    changed = key_identities(table) != hash_keys(table)
    assert changed.tolist() == [True, False, False, False]


def test_the_hash_is_frozen():
    """Whoever changes these values raises HASH_VERSION: they place keys in runs on disk."""
    assert HASH_VERSION == 1
    assert hashes(pa.array([0, 1, -1, 2**62, None])) == GOLDEN["integer"]
    assert hashes(pa.array(["", "a", "12345678", "123456789", "é", "x" * 600])) == GOLDEN["string"]
    assert hashes(pa.array([0.0, 1.5, math.nan, math.inf])) == GOLDEN["float"]
    assert hashes(pa.array([True, False])) == GOLDEN["boolean"]
    assert hashes(pa.array([0, 1_500], pa.timestamp("ns"))) == GOLDEN["timestamp"]
    assert hashes(pa.array([0, 1], pa.timestamp("us", "UTC"))) == GOLDEN["timestamp_tz"]
    assert hashes(pa.array([0, 18_000], pa.date32())) == GOLDEN["date"]
    assert hashes(pa.array([0, 1], pa.time64("us"))) == GOLDEN["time"]
    assert hashes(pa.array([0, -1], pa.duration("us"))) == GOLDEN["duration"]
    assert hashes(pa.array([Decimal("1.50"), Decimal("-30")])) == GOLDEN["decimal"]
    assert hashes(pa.array([b"", b"\0", b"\0\0"])) == GOLDEN["binary"]
    pair = pa.table({"a": [1, 1], "b": ["x", None]})
    keys = normalize_keys(pair, key_columns(pair.schema, ["a", "b"]))
    assert hash_keys(keys).tolist() == GOLDEN["a, b"]
    assert hash_keys(keys.select(["b", "a"])).tolist() == GOLDEN["b, a"]


GOLDEN = {
    "integer": [
        18268195413146939796,
        12092840747734441251,
        7263791263401467988,
        3632782241021690481,
        10325038362084123508,
    ],
    "string": [
        1664761801513864834,
        4858271466969594516,
        6774053496680782322,
        15251738980596605637,
        3539677726713646870,
        5508304798122199984,
    ],
    "float": [8406659617763563392, 13972998849483861839, 9661933555455861560, 14699898030805667323],
    "boolean": [6504778519511335100, 390029447345258075],
    "timestamp": [14781554952417504459, 10750394762214704605],
    "timestamp_tz": [12240532183125239521, 11607804912970227133],
    "date": [15112926030626008749, 3919480633503422528],
    "time": [1995195311142142715, 6826491020585591659],
    "duration": [15664327788951166173, 8071039654494004082],
    "decimal": [18147975024105302176, 120851970280268587],
    "binary": [13829137713500519676, 478131538665489187, 1184453831612908588],
    "a, b": [17370587372727593984, 3605129229932732563],
    "b, a": [6874705636324208215, 8193155445010902363],
}

FROZEN_IDS = [
    ("store-1", KeyClass.STRING, "store-1-9e50877f3eaee77f"),
    ("Zürich HB", KeyClass.STRING, "zurich-hb-408167a8737321ef"),
    (42, KeyClass.INTEGER, "42-a6a2f4fa29f9494a"),
    (-5, KeyClass.INTEGER, "minus-5-6f3c07e5270aa0be"),
    (2**64 - 1, KeyClass.INTEGER, "18446744073709551615-3f4368a339e6e44e"),
    (1.5, KeyClass.FLOAT, "1.5-8943fb67e547d4b8"),
    (True, KeyClass.BOOLEAN, "true-70fa726ed9fc9914"),
    (dt.date(2014, 1, 31), KeyClass.DATE, "2014-01-31-03b91f508a0269c9"),
    (dt.datetime(2014, 1, 31, 8, 30), KeyClass.TIMESTAMP, "2014-01-31t08-30-00-757a7e36b9db48e8"),
    (
        dt.datetime(2014, 1, 31, 8, 30, tzinfo=UTC),
        KeyClass.TIMESTAMP_TZ,
        "2014-01-31t08-30-00-614bfea233f1caf6",
    ),
    (dt.time(8, 30), KeyClass.TIME, "08-30-00-f8ebe8d9667e9e3e"),
    (dt.timedelta(seconds=-1), KeyClass.DURATION, "minus-1000000000-ea88a670e1a03846"),
    (Decimal("1.50"), KeyClass.DECIMAL, "1.5-f31609551d122e0b"),
    (b"\0a", KeyClass.BINARY, "0061-f71ca2a6e84986e8"),
    (None, KeyClass.STRING, "null-fd87400839d77a68"),
]


@pytest.mark.parametrize(("key", "key_class", "expected"), FROZEN_IDS)
def test_partition_ids_are_frozen(key, key_class, expected):
    assert partition_id(key, one(key_class)) == expected


def test_composite_ids_and_seeds_are_frozen():
    columns = (*one(KeyClass.STRING), KeyColumn(name="n", key_class=KeyClass.INTEGER))
    assert partition_id(("Main St", 7), columns) == "main-st_7-2d8909a78f0b1f89"
    seeds = [partition_seed(seed, key_bytes(("Main St", 7), columns)) for seed in (0, 1, -1)]
    assert seeds == [1687343631, 849646084, 426365189]
    assert partition_seed(0, b"") in range(2**31)


PATH_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]*-[0-9a-f]{16}").fullmatch
NASTY = [
    "", " ", " a", "a ", ".", "..", "...", "a/b", "a\\b", "/etc/passwd", "%2e%2e%2f", "\0", "a\n",
    "a\r", "\x1b[31m", "\u202etxt", "é", "e\u0301", "A", "a", "İ", "ı", "ß", "SS", "👩‍🚀", "\u200b",
    "x" * 300, "界" * 86, "y" * 5000, "CON", "aux.txt", "trailing.", "k[1]*?", "#?&;", "x=1",
    "__HIVE_DEFAULT_PARTITION__", "manifest", "_SUCCESS", ".tmp", "-", "-1", "null", "key", "1",
]  # fmt: skip


def test_nasty_texts_have_safe_and_distinct_ids():
    columns = one(KeyClass.STRING)
    names = [partition_id(text, columns) for text in NASTY]
    assert names == ids(pa.array(NASTY))
    assert len({name.casefold() for name in names}) == len(NASTY)
    assert len(set(hashes(pa.array(NASTY)))) == len(NASTY)
    for name in names:
        assert PATH_SAFE(name), name
        assert len(name.encode("ascii")) <= 57


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(codec="utf-8")))
@example("é", "e\u0301")
@example("a", "A")
def test_ids_are_safe_and_as_distinct_as_keys(first, second):
    columns = one(KeyClass.STRING)
    name, other = partition_id(first, columns), partition_id(second, columns)
    assert PATH_SAFE(name)
    assert len(name) <= 57
    assert (name == other) == (first == second)


def test_composite_keys_do_not_run_together():
    columns = (*one(KeyClass.STRING), KeyColumn(name="b", key_class=KeyClass.STRING))
    pairs = [("a_b", "c"), ("a", "b_c"), ("a", None), (None, "a"), ("", "a"), ("a", ""), ("", "")]
    assert len({partition_id(pair, columns) for pair in pairs}) == len(pairs)
    assert len({key_bytes(pair, columns) for pair in pairs}) == len(pairs)
    table = pa.table({"k": [a for a, _ in pairs], "b": [b for _, b in pairs]})
    assert len(set(hash_keys(normalize_keys(table, columns)).tolist())) == len(pairs)


EQUAL_KEYS = [
    (KeyClass.INTEGER, [7, np.int8(7), np.uint64(7), pa.scalar(7)]),
    (KeyClass.STRING, ["a", np.str_("a"), pa.scalar("a")]),
    (KeyClass.FLOAT, [0.5, np.float32(0.5), np.float64(0.5)]),
    (KeyClass.FLOAT, [0.0, -0.0]),
    (KeyClass.FLOAT, [math.nan, -math.nan, np.float32("nan")]),
    (KeyClass.BOOLEAN, [True, np.True_]),
    (KeyClass.BINARY, [b"a", bytearray(b"a"), np.bytes_(b"a")]),
    (KeyClass.DECIMAL, [Decimal("1.0"), Decimal("1.00"), Decimal("1E0")]),
    (KeyClass.DECIMAL, [Decimal(0), Decimal("-0.00"), Decimal("0E5")]),
    (KeyClass.DATE, [dt.date(2020, 1, 2), np.datetime64("2020-01-02")]),
    (
        KeyClass.TIMESTAMP,
        [
            dt.datetime(2020, 1, 2, 3), pd.Timestamp("2020-01-02 03:00"),
            np.datetime64("2020-01-02T03:00:00"), np.datetime64("2020-01-02T03:00:00", "ns"),
        ],
    ),
    (
        KeyClass.TIMESTAMP_TZ,
        [
            dt.datetime(2020, 1, 2, 3, tzinfo=UTC),
            pd.Timestamp("2020-01-02 04:00", tz="Europe/Zurich"),
            dt.datetime(2020, 1, 2, 1, tzinfo=dt.timezone(dt.timedelta(hours=-2))),
        ],
    ),
    (
        KeyClass.DURATION,
        [dt.timedelta(seconds=1), pd.Timedelta("1s"), np.timedelta64(1000, "ms")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key_class", "keys"), EQUAL_KEYS)
def test_equal_keys_of_any_library_have_equal_bytes(key_class, keys):
    assert len({key_bytes(key, one(key_class)) for key in keys}) == 1


def test_pandas_nanoseconds_reach_the_bytes():
    columns = one(KeyClass.TIMESTAMP)
    stamp = pd.Timestamp(1_500_000_000_000_000_001)
    array = pa.array([1_500_000_000_000_000_001], pa.timestamp("ns"))
    assert key_bytes(stamp, columns) == encode_keys(*normalized(array))[0]
    assert key_bytes(stamp, columns) != key_bytes(stamp.to_pydatetime(warn=False), columns)


WRONG_CLASS = [
    ("1", KeyClass.INTEGER), (1.0, KeyClass.INTEGER), (True, KeyClass.INTEGER),
    (1, KeyClass.FLOAT), (1, KeyClass.STRING), (1, KeyClass.BOOLEAN), ("a", KeyClass.BINARY),
    (dt.datetime(2020, 1, 1), KeyClass.DATE), (dt.date(2020, 1, 1), KeyClass.TIMESTAMP),
    (dt.datetime(2020, 1, 1), KeyClass.TIMESTAMP_TZ), (1, KeyClass.NULL), (1.5, KeyClass.DECIMAL),
    (dt.datetime(2020, 1, 1, tzinfo=UTC), KeyClass.TIMESTAMP), ([1], KeyClass.INTEGER),
    (Decimal("NaN"), KeyClass.DECIMAL), (dt.time(1, tzinfo=UTC), KeyClass.TIME),
]  # fmt: skip


@pytest.mark.parametrize(("key", "key_class"), WRONG_CLASS)
def test_a_key_of_another_class_is_refused(key, key_class):
    message = rf"{re.escape(repr(key))} is of type .*'k' are of class {key_class}:"
    with pytest.raises(KeyClassError, match=message):
        key_bytes(key, one(key_class))


def test_a_key_of_another_length_is_refused():
    columns = (*one(KeyClass.STRING), KeyColumn(name="b", key_class=KeyClass.STRING))
    with pytest.raises(KeyClassError, match=r"has 1 value, .* keyed by 2 columns: 'k', 'b'"):
        key_bytes("a", columns)
    assert key_bytes(("a",), columns[:1]) == key_bytes("a", columns[:1])


def test_a_lone_surrogate_is_refused():
    with pytest.raises(KeyClassError, match="lone surrogate"):
        partition_id("\ud800", one(KeyClass.STRING))


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        (["missing"], r"'missing', which the source does not have: its columns are 'a', 'b', 'l'"),
        (["a", "a"], r"names column 'a' twice"),
        ([], r"partition_by is empty"),
        (["l"], r"'l' of type list<item: int64> cannot be a partition key"),
    ],
)
def test_key_columns_are_checked(partition_by, message):
    schema = pa.schema([("a", pa.int8()), ("b", pa.string()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(ColumnError, match=message):
        key_columns(schema, partition_by)
    twice = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("b", pa.int8())])
    with pytest.raises(ColumnError, match="more than one column named 'b'"):
        key_columns(twice, ["a"])


def test_key_columns_take_one_name_as_text():
    assert key_columns(pa.schema([("store", pa.int8())]), "store") == (
        KeyColumn(name="store", key_class=KeyClass.INTEGER),
    )


def test_classes_that_changed_since_training_are_refused_in_one_line():
    trained = (KeyColumn(name="a", key_class=KeyClass.INTEGER),)
    check_key_classes(trained, trained, "run 'x'")
    for key_class in (KeyClass.FLOAT, KeyClass.NULL):
        now = (KeyColumn(name="a", key_class=key_class),)
        message = (
            rf"^Key column 'a' is of class integer in run 'x', .*class {key_class} .*cast.*\.$"
        )
        with pytest.raises(KeyClassError, match=message):
            check_key_classes(trained, now, "run 'x'")
    other = (KeyColumn(name="b", key_class=KeyClass.INTEGER),)
    with pytest.raises(KeyClassError, match=r"of run 'x' are the columns 'a', here they are 'b'"):
        check_key_classes(trained, other, "run 'x'")


def test_a_batch_of_another_class_is_refused():
    with pytest.raises(KeyClassError, match=r"'k' is of class string, but .* holds int64"):
        normalize_keys(pa.table({"k": [1]}), one(KeyClass.STRING))


def test_a_timestamp_beyond_microseconds_is_refused():
    array = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(ColumnError, match=r"'k' of type timestamp\[s\] holds a value"):
        normalize_keys(pa.table({"k": array}), one(KeyClass.TIMESTAMP))


def test_hashes_spread_over_shards():
    keys = [f"store {i:06d}" for i in range(100_000)]
    for array in (pa.array(keys), pa.array(range(100_000)), pa.array(np.arange(100_000) / 7)):
        found = np.array(hashes(array), np.uint64)
        assert len(np.unique(found)) == 100_000
        counts = np.bincount((found % np.uint64(200)).astype(int), minlength=200)
        assert counts.min() > 400
        assert counts.max() < 610


@pytest.mark.parametrize("far", [2**64 + 5, -(2**63) - 1])
def test_a_given_key_beyond_64_bits_is_refused_and_no_other_one(far):
    columns = [KeyColumn(name="k", key_class=KeyClass.INTEGER)]
    with pytest.raises(KeyClassError, match=rf"^Key {far} of column 'k' is beyond 64 bits"):
        keys_of_values([1, None, far], columns)
    widest = keys_of_values([2**64 - 1, -(2**63), None], columns)
    assert widest.column("k").to_pylist() == [2**64 - 1, 2**63, None]


@pytest.mark.parametrize(
    ("key_class", "keys"),
    [
        (KeyClass.DECIMAL, [Decimal("1E50"), Decimal("1E-50")]),
        (KeyClass.TIMESTAMP, [dt.datetime(9999, 1, 1), pd.Timestamp(1)]),
    ],
)
def test_given_keys_that_no_type_holds_together_are_refused(key_class, keys):
    columns = [KeyColumn(name="k", key_class=key_class)]
    assert [keys_of_values([key], columns).num_rows for key in keys] == [1, 1]
    with pytest.raises(
        KeyClassError, match=r"^No type holds all the keys that are given for column 'k'"
    ):
        keys_of_values(keys, columns)
