"""Keys as texts: each key of a run is read back from its own, of any type."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise import PartitionContext
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function import (
    dpf_run,
)
from partwise.errors import KeyClassError, PartitionNotFoundError
from partwise.flows.cli.keys import find_partitions
from partwise.reports.summary import row_key
from partwise.runs.key_texts import key_texts, parse_key
from partwise.runs.ledger import KEY_PREFIX
from partwise.tables.keys.partition_keys import (
    KeyClass,
    KeyColumn,
    key_columns,
    key_values,
    normalize_keys,
    partition_id,
    partition_ids,
)
from tests.run_maker import RunMaker
from tests.tables.test_key_types import TYPES, UNITS, make
from tests.tables.test_keys import VALUES

WORDS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["null", "", "a,b", '"', "a\nb", "a\r", "\r\n", "1"]
)
# As microseconds too, from the year 829 on.
NANOSECONDS = st.integers(-(2**55), 2**55)


@st.composite
def arrays(draw: st.DrawFn, size: int) -> pa.Array:
    """Distinct keys of any type and width."""
    kinds = [(st.just(kind), values) for kind, values in VALUES.values()]
    kinds += [(st.sampled_from(types), values) for values, types in TYPES.values()]
    kinds.append((st.just(pa.string()), WORDS))
    for unit in UNITS[2:]:
        types = [pa.timestamp(unit), pa.timestamp(unit, "UTC"), pa.duration(unit)]
        kinds.append((st.sampled_from(types), NANOSECONDS))
    of_kind, values = draw(st.sampled_from(kinds))
    kind = draw(of_kind)
    drawn = draw(st.lists(values | st.none(), min_size=size, max_size=size))
    return make(drawn, kind)


@settings(max_examples=200)
@given(st.integers(1, 3).flatmap(lambda n: st.lists(arrays(4), min_size=n, max_size=n)))
@example([pa.array([1, 2, 3, 4], pa.duration("ns"))])
@example([pa.array([10**15 + 1, 10**15 + 2], pa.timestamp("ns", "UTC")), pa.array(["a\r\n", ","])])
@example([pa.array(["null", None, "", "null "])])
@example([pa.array([123_456_789_012, 123_456_789_013], pa.duration("us"))])
def test_every_key_has_a_text_of_its_own_and_is_read_from_it(drawn) -> None:
    table = pa.table({f"k{place}": array for place, array in enumerate(drawn)})
    columns = key_columns(table.schema, table.column_names)
    keys = normalize_keys(table, columns)
    names = partition_ids(keys, columns)
    ledger = keys.rename_columns([f"{KEY_PREFIX}{name}" for name in table.column_names])
    texts = key_texts(pa.table(ledger).append_column("partition_id", pa.array(names)))
    assert len(set(texts)) == len(set(names))
    for key, text, name in zip(key_values(keys), texts, names, strict=True):
        # What Python has no value for, and a null among texts, is named by its partition_id.
        if text != name:
            assert PartitionContext(key=key).key_text == text
            assert partition_id(parse_key(text, columns), columns) == name


@pytest.mark.parametrize(
    ("key_class", "text", "key"),
    [
        ("integer", "-7", -7),
        ("integer", "null", None),
        ("string", "7", "7"),
        ("string", "null", "null"),
        ("string", "a,b", "a,b"),
        ("string", "", ""),
        ("float", "0.5", 0.5),
        ("boolean", "True", True),
        ("boolean", "false", False),
        ("date", "2026-03-01", dt.date(2026, 3, 1)),
        ("timestamp", "2026-03-01T12:30:00", dt.datetime(2026, 3, 1, 12, 30)),  # noqa: DTZ001
        (
            "timestamp_tz",
            "2026-03-01T12:30:00+00:00",
            dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC),
        ),
        ("time", "12:30", dt.time(12, 30)),
        ("duration", "90", dt.timedelta(seconds=90)),
        ("decimal", "19.90", Decimal("19.90")),
        ("binary", "00ff", b"\x00\xff"),
    ],
)
def test_a_key_is_read_by_the_class_of_the_run(key_class, text, key) -> None:
    found = parse_key(text, (KeyColumn(name="k", key_class=KeyClass(key_class)),))
    assert (type(found), found) == (type(key), key)


def test_a_composite_key_has_commas_and_quotes_where_a_value_has_one() -> None:
    columns = (
        KeyColumn(name="store", key_class=KeyClass.STRING),
        KeyColumn(name="day", key_class=KeyClass.DATE),
    )
    assert parse_key("a,2026-03-01", columns) == ("a", dt.date(2026, 3, 1))
    assert parse_key('"a,b",null', columns) == ("a,b", None)
    with pytest.raises(KeyClassError, match="has 1 value, and those of the run have 2: store,day"):
        parse_key("a", columns)
    with pytest.raises(KeyClassError, match="'soon' is not of the class date of the key"):
        parse_key("a,soon", columns)


@pytest.mark.parametrize(
    ("key_class", "text"),
    [
        ("integer", "1.5"),
        ("boolean", "1"),
        ("binary", "xyz"),
        ("date", "1"),
        ("decimal", "1e500000000"),
        ("decimal", "-1e-99"),
    ],
)
def test_a_key_of_another_class_is_refused(key_class, text) -> None:
    with pytest.raises(KeyClassError, match=f"{text!r} is not of the class {key_class} of the key"):
        parse_key(text, (KeyColumn(name="k", key_class=KeyClass(key_class)),))


def test_a_run_takes_the_key_as_its_text(local_store) -> None:
    keys = pa.schema([("shop", pa.string()), ("day", pa.date32())])
    maker = RunMaker(local_store, keys=keys)
    maker.begin()
    north, south = ("North, 1", dt.date(2026, 3, 1)), ("7", None)
    maker.commit((north, "DONE", 1.0), (south, "FAILED", 2.0))
    run = maker.end(2)
    as_text = ("North, 1", "2026-03-01")
    for key in (north, PartitionContext(key=north).key_text, '"North, 1",2026-03-01', as_text):
        assert run.artifact(key, "note.txt") == f"{north} 1.0"
        row = run.partition(key)
        assert (row["shop"], row["day"], row["status"], row["value"]) == (*north, "DONE", 1.0)
    assert run.partition("7,null")["error_message"] == f"bad {south}"
    with pytest.raises(PartitionNotFoundError, match="has no partition 'South,2026-03-01'"):
        run.partition("South,2026-03-01")
    with pytest.raises(KeyClassError, match="'soon' is not of the class date of the key"):
        run.artifacts("South,soon")


def test_a_key_that_is_a_text_is_taken_as_it_stands(local_store) -> None:
    maker = RunMaker(local_store)
    maker.begin()
    maker.commit(("a,b", "DONE", 1.0), ("null", "DONE", 2.0), (None, "DONE", 3.0))
    run = maker.end(3)
    values = [run.partition(key)["value"] for key in ("a,b", "null", None)]
    assert values == [1.0, 2.0, 3.0]


def test_a_null_among_texts_is_not_the_text_null(local_store) -> None:
    maker = RunMaker(local_store, keys=pa.schema([("status", pa.string())]))
    maker.begin()
    maker.commit(("null", "DONE", 2.0), (None, "SKIPPED", 3.0))
    run = maker.end(2)
    of_null = run.partition_id(None)
    details = dpf_run.DPFRun(run.run_id, str(local_store.url)).partition_details
    found = {
        text: (each.status.value, each.stage_artifacts_manager.key)
        for text, each in details.items()
    }
    # One that was skipped is shown as DONE.
    assert found == {"null": ("DONE", "null"), of_null: ("DONE", None)}
    rows = run.ledger.to_pylist()
    assert sorted(row_key(run, row) for row in rows) == sorted(["null", of_null])
    assert find_partitions(run, ["null", of_null]) == [run.partition_id("null"), of_null]
