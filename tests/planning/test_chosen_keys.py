"""Training of some keys: the rows of these, all of them, and of no others."""

import datetime as dt
import math
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings

from partwise.calls.partitions import TrainCall
from partwise.calls.reading import read_call
from partwise.engine.driver.plan import Plan
from partwise.errors import InputError, KeyClassError, RunNotFoundError
from partwise.flows.cli.command import _only
from partwise.planning.partitions import prepare_training
from partwise.planning.refusals import check_call
from partwise.reports.settings import _flatten
from partwise.shuffle.plan import shard_rows
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns, partition_id, partition_ids
from tests.run_maker import RunMaker

ZONE = dt.timezone(dt.timedelta(hours=2))
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int32(), [1, 0, -7, 300, None]),
    "long": (pa.int64(), [0, -7, 2**62, -(2**63)]),
    "unsigned": (pa.uint64(), [0, 7, 2**63, 2**64 - 7]),
    "string": (pa.string(), ["1", "null", "", "a,b", "ä/b", None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["1", "b", "c", None]),
    "float": (pa.float32(), [0.0, -0.0, 1.0, math.nan, math.inf, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "zoned": (
        pa.timestamp("us", "Europe/Amsterdam"),
        [dt.datetime(2026, 3, 1, hour, tzinfo=ZONE) for hour in (0, 12)],
    ),
    "naive": (pa.timestamp("ms"), [dt.datetime(2026, 3, 1, hour) for hour in (0, 12)]),  # noqa: DTZ001
    "day": (pa.date32(), [dt.date(2026, 3, day) for day in (1, 2, 3)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("-3.10"), None]),
    "binary": (pa.binary(), [b"", b"\xff\x00", b"1"]),
}


def fit(data, context):
    return None


def planned(data: Any, by: Any, only: Any, **others: Any) -> Plan:
    call = TrainCall(data, by, fit, only=only, version="1", **others)
    return prepare_training(call, open_source(data))


def rows_by_id(plan: Plan) -> dict[str, int]:
    columns = plan.identity.key_columns
    with tempfile.TemporaryDirectory() as folder:
        sharded = shard_rows(plan.source, columns, 4, folder, null_keys="keep")
    ids = partition_ids(sharded.keys, columns)
    return dict(zip(ids, sharded.key_rows.tolist(), strict=True))


@st.composite
def chosen(draw: st.DrawFn) -> tuple[pa.Table, list[str], list[Any], bool]:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True))
    kinds = [VALUES[name] for name in names]
    key = st.tuples(*(st.sampled_from(values) for _, values in kinds))
    rows = draw(st.lists(key, min_size=1, max_size=12))
    only = [draw(st.sampled_from(rows)), *draw(st.lists(key, max_size=4))]
    arrays = [
        pa.array([row[place] for row in rows], kind, from_pandas=False)
        for place, (kind, _) in enumerate(kinds)
    ]
    table = pa.Table.from_arrays([*arrays, pa.array(range(len(rows)))], names=[*names, "x"])
    return table, names, only, draw(st.booleans())


@settings(max_examples=120, deadline=None)
@given(chosen())
@example((pa.table({"integer": [1, 2], "x": [0, 1]}), ["integer"], [(1,)], False))
def test_the_rows_are_those_of_a_plain_filter(case) -> None:
    table, names, only, as_table = case
    columns = key_columns(table.schema, names)
    keys = [key if len(names) > 1 else key[0] for key in only]
    rows = [tuple(row.values()) for row in table.select(names).to_pylist()]
    wanted = {partition_id(key, columns) for key in keys}
    expected: dict[str, int] = {}
    for row in rows:
        name = partition_id(row if len(names) > 1 else row[0], columns)
        if name in wanted:
            expected[name] = expected.get(name, 0) + 1
    given_keys: Any = keys
    if as_table:
        places = [
            place
            for place, row in enumerate(rows)
            if partition_id(row if len(names) > 1 else row[0], columns) in wanted
        ]
        given_keys = table.take(places).select(names[::-1])
    plan = planned(table, names, given_keys)
    assert rows_by_id(plan) == expected
    known = plan.intent.call_known["arguments"]["only"]
    assert rows_by_id(planned(table, names, known)) == expected
    with tempfile.TemporaryDirectory() as folder:
        # Of a file the keys are asked for by their values: each row group has a row.
        pq.write_table(table, f"{folder}/rows.parquet", row_group_size=1)
        assert rows_by_id(planned(f"{folder}/rows.parquet", names, given_keys)) == expected


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_a_file_is_asked_for_keys_below_0_and_beyond_int64(tmp_path, kind) -> None:
    keys = [2**64 - 5, 7, 3] if pa.types.is_unsigned_integer(kind) else [-5, 7, 3]
    path = tmp_path / "rows.parquet"
    rows = pa.table({"key": pa.array(keys, kind), "x": range(3)})
    pq.write_table(rows, path, row_group_size=1)
    columns = key_columns(rows.schema, ["key"])
    for only in (keys[:1], keys[::2]):
        expected = {partition_id(key, columns): 1 for key in only}
        assert rows_by_id(planned(str(path), "key", only)) == expected


@pytest.mark.parametrize(
    ("kind", "keys", "far"),
    [(pa.uint64(), [2**64 - 1, 7], -1), (pa.int64(), [-1, 7], 2**64 - 1)],
)
def test_a_key_that_the_column_cannot_hold_is_not_the_one_of_the_same_bits(kind, keys, far) -> None:
    rows = pa.table({"key": pa.array(keys, kind), "x": range(2)})
    other = pa.int64() if kind == pa.uint64() else pa.uint64()
    for only in ([far], [far, 7], [str(far)], pa.table({"key": pa.array([far, 7], other)})):
        with pytest.raises(KeyClassError, match=rf"^Key {far} of column 'key' is beyond {kind}, "):
            planned(rows, "key", only)
    assert len(rows_by_id(planned(rows, "key", pa.table({"key": pa.array([7], other)})))) == 1


ROWS = pa.table({"key": ["1", "b", None] * 4, "x": range(12)})


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        ([1], "Key 1 is of type int, but the keys of column 'key' are of class string"),
        ([("1", "b")], "has 2 values"),
        (pa.table({"key": [1]}), "Key column 'key' of only= is of class integer"),
    ],
)
def test_keys_of_another_class_are_refused(only, sentence: str) -> None:
    with pytest.raises(KeyClassError, match=sentence):
        planned(ROWS, "key", only)


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        ([], "only= has no keys"),
        (ROWS.slice(0, 0), "only= has no keys"),
        (pa.table({"k": ["1"]}), "only= has no column 'key'"),
        ("nigth-1", "neither a list of keys, nor a table .* nor a run"),
        (7, "neither a list of keys"),
    ],
)
def test_what_names_no_keys_is_refused(only, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        planned(ROWS, "key", only)


def test_a_choice_that_leaves_no_row_is_refused() -> None:
    with pytest.raises(InputError, match="None of the 2 keys of only= has rows"):
        rows_by_id(planned(ROWS, "key", ["x", "y"]))
    assert rows_by_id(planned(ROWS, "key", ["1", "y"])).popitem()[1] == 4


def test_rows_with_a_null_key_do_not_matter_where_it_is_not_chosen(tmp_path) -> None:
    plan = planned(ROWS, "key", ["b"])
    sharded = shard_rows(plan.source, plan.identity.key_columns, 4, tmp_path, null_keys="error")
    assert sharded.rows == 4


def test_a_run_that_is_no_evaluation_is_refused(make_run: RunMaker) -> None:
    make_run.begin()
    make_run.leave()
    run = make_run.open()
    with pytest.raises(InputError, match="says of no key that its model got worse"):
        planned(ROWS, "key", run.run_id, store=make_run.store.url)
    with pytest.raises(RunNotFoundError):
        planned(ROWS, "key", "run://nigth-1", store=make_run.store.url)


def test_a_resume_means_the_same_keys(tmp_path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    rows, keys = str(tmp_path / "rows.parquet"), tmp_path / "keys.csv"
    keys.write_text("key\n1\n")
    plan = planned(rows, "key", str(keys))
    keys.write_text("key\nb\n")
    again = read_call(plan.intent.call, is_own=True)
    assert isinstance(again, TrainCall)
    resumed = prepare_training(again, open_source(again.data))
    assert resumed.source.description() == plan.source.description()
    assert resumed.intent.code_fingerprint == plan.intent.code_fingerprint
    assert rows_by_id(resumed).keys() == {partition_id("1", plan.identity.key_columns)}
    assert dict(_flatten(plan.intent.call, ""))["arguments.only"] == "1 key"
    other, every = planned(rows, "key", str(keys)), planned(rows, "key", "")
    assert len({each.intent.source_fingerprint for each in (plan, other, every)}) == 3
    # Runs of earlier releases are known by their calls as they were.
    assert every.intent.call is not None
    assert "only" not in every.intent.call["arguments"]


def test_keys_as_they_are_typed() -> None:
    table = pa.table({"day": pa.array([dt.date(2026, 3, 1)]), "n": [7]})
    assert len(rows_by_id(planned(table, ["day", "n"], ["2026-03-01,7"]))) == 1
    assert len(rows_by_id(planned(table, "n", ["7"]))) == 1
    assert len(rows_by_id(planned(table, ["day", "n"], [[dt.date(2026, 3, 1), 7]]))) == 1
    assert (_only(("a", "b")), _only(("@keys.csv",))) == (["a", "b"], "keys.csv")
    with pytest.raises(InputError, match="give keys, or one @"):
        _only(("a", "@keys.csv"))


def test_a_wrong_class_is_refused_before_prefect_is_imported(tmp_path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    call = TrainCall(str(tmp_path), "key", fit, only=[1], run_id="a", store=str(tmp_path / "s"))
    with pytest.raises(KeyClassError):
        check_call(call)


def test_row_groups_and_folders_without_these_keys_are_not_read(tmp_path) -> None:
    table = pa.table({"key": [f"{i // 10:02}" for i in range(100)], "x": range(100)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    plan = planned(str(tmp_path / "x.parquet"), "key", ["03", "07"])
    assert [list(each.pieces) for each in plan.source.fragments()] == [[3], [7]]
    with_filter = prepare_training(
        TrainCall(str(tmp_path), "key", fit, only=["03"]),
        open_source(tmp_path / "x.parquet", filter=[("x", ">", 33)]),
    )
    assert list(rows_by_id(with_filter).values()) == [6]
    for name in "ab":
        folder = tmp_path / "parted" / f"key={name}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1.0]}), folder / "x.parquet")
    parted = planned(str(tmp_path / "parted"), "key", ["b"])
    (tmp_path / "parted" / "key=a" / "x.parquet").write_bytes(b"not read")
    assert list(rows_by_id(parted).values()) == [1]


def test_an_integer_beyond_its_column_has_no_rows() -> None:
    table = pa.table({"key": pa.array([1, 2], pa.int8())})
    assert len(rows_by_id(planned(table, "key", [1, 300]))) == 1


def test_a_hundred_thousand_keys_take_seconds(tmp_path) -> None:
    names = [f"shop-{i:06}" for i in range(200_000)]
    pq.write_table(pa.table({"key": names, "x": range(200_000)}), tmp_path / "x.parquet")
    began = time.process_time()
    plan = planned(str(tmp_path / "x.parquet"), "key", names[::2])
    sharded = shard_rows(plan.source, plan.identity.key_columns, 64, Path(tmp_path / "s"))
    assert sharded.partitions == 100_000
    assert time.process_time() - began < 5
