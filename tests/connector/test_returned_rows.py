"""What functions return, in the order of the rows that they were given."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import in_row_order, returned_table
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError
from tests.engine.shards import ShardOfRun, table_of

X = [3.0, 1.0, 2.0, 5.0, 4.0, 0.0]
ROWS = pa.table(
    {
        "key": ["a"] * 6,
        "x": X,
        "day": pa.array([dt.date(2020, 1, int(x) + 1) for x in X]),
        "text": pa.array([chr(97 + int(x)) for x in X]).dictionary_encode(),
        "group": [1, 1, 2, 2, 3, 3],
    }
)
NOW = dt.datetime(2026, 1, 1, 3, tzinfo=dt.UTC)
SORTED = ROWS.to_pandas().sort_values("x")
DOUBLED = pd.DataFrame({"y": SORTED.x * 2})

INDEXES = {
    "places": SORTED.index,
    "places of floats": SORTED.index.astype(float),
    "places of Arrow": SORTED.index.astype("int64[pyarrow]"),
    "a column": pd.Index(SORTED.x),
    "dates": pd.Index(SORTED.day),
    "times of dates": pd.DatetimeIndex(SORTED.day, name="day"),
    "categories": pd.Index(SORTED.text),
    "two columns": pd.MultiIndex.from_frame(SORTED[["group", "x"]]),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("form", ["frame", "Series", "mapping"])
def test_rows_that_were_sorted_stand_beside_their_own(index, form):
    frame = DOUBLED.set_axis(index)
    outcome = {"frame": frame, "Series": frame.y, "mapping": {"y": frame.y, "one": 1}}[form]
    rows = produce_rows(outcome, DataConnector(ROWS), ["key"], ["x"], "y").rows
    assert rows["y"].to_pylist() == [2 * x for x in rows["x"].to_pylist()]
    assert rows["x"].to_pylist() == X
    alone = produce_rows(outcome, DataConnector(ROWS), ["key"], [], "y").rows
    assert alone["y"] == rows["y"]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"y": ["a", "\ud800"]}, r"returned 'y' with '\\ud800', half of a character.* bytes\.$"),
        (np.array(["\ud800"]), r"returned 'y' with '\\ud800'"),
        ({"\ud800": [1]}, r"returned a column whose name holds '\\ud800', half of a character"),
    ],
)
def test_text_that_no_file_can_hold_is_refused_by_its_column(outcome, message):
    with pytest.raises(ColumnError, match=message):
        returned_table(outcome, "y")


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(range(6)), types=st.sampled_from(["numpy", "arrow"]))
def test_any_order_of_rows_is_put_right(order, types):
    frame = DataConnector(ROWS).to_pandas(types).iloc[list(order)]
    outcome = {"a": frame.x * 2, "b": frame.sort_values("x").x * 3, "c": ROWS["x"]}
    found = pa.table({**in_row_order(outcome, ROWS, is_joined=False)})
    assert found["a"].to_pylist() == [2 * x for x in X]
    assert found["b"].to_pylist() == [3 * x for x in X]


def test_a_named_index_of_the_source_is_that_of_the_rows():
    source = pa.Table.from_pandas(ROWS.to_pandas().set_index(["day", "text"]))
    data = DataConnector(source)
    frame = data.to_pandas().sort_index()
    assert list(frame.index.names) == ["day", "text"]
    rows = produce_rows(frame[["x"]] * 2, data, ["key"], ["day"], "y").rows
    assert rows["x"].to_pylist() == [2 * x for x in X]


FORECASTS = {
    "made again": pd.RangeIndex(6),
    "of a forecast": pd.RangeIndex(3, 9),
}


@pytest.mark.parametrize("index", FORECASTS.values(), ids=FORECASTS)
def test_an_index_that_only_counts_is_in_order(index):
    frame = DOUBLED.set_axis(index)
    assert in_row_order(frame, ROWS, is_joined=True) is frame


FOREIGN = {
    "texts": list("abcdef"),
    "some places twice": [0, 0, 1, 1, 2, 2],
    "other places": [1, 2, 3, 4, 6, 5],
    "other dates": pd.date_range("2021-01-01", periods=6),
    "a column with equal values, in another order": pd.Index([1, 2, 1, 2, 3, 3], name="group"),
}


@pytest.mark.parametrize("index", FOREIGN.values(), ids=FOREIGN)
def test_what_cannot_be_aligned_is_refused_where_something_stands_beside_it(index):
    frame = DOUBLED.set_axis(index)
    for outcome in (frame, frame.y, {"y": frame.y}):
        with pytest.raises(ColumnError, match=r"index of .*: it is not that of the rows"):
            in_row_order(outcome, ROWS, is_joined=True)
    with pytest.raises(ColumnError, match=r"'y', which has an index of"):
        in_row_order({"x": SORTED.x, "y": frame.y}, ROWS, is_joined=False)
    assert in_row_order(frame, ROWS, is_joined=False) is frame
    values = in_row_order(frame.y.to_numpy(), ROWS, is_joined=True)
    assert values is not None


def test_a_column_with_equal_values_in_their_own_order_is_in_order():
    frame = ROWS.to_pandas().set_index("group")[["x"]]
    assert in_row_order(frame, ROWS, is_joined=True) is frame


def test_fewer_rows_are_kept_alone_and_refused_beside_others():
    few = DOUBLED.iloc[:2]
    assert produce_rows(few, DataConnector(ROWS), ["key"], [], "y").rows.num_rows == 2
    with pytest.raises(ColumnError, match=r"2 rows for 6"):
        produce_rows(few, DataConnector(ROWS), ["key"], ["x"], "y")


def test_series_of_groups_are_put_in_the_order_of_the_first():
    by_group = ROWS.to_pandas().groupby("group").x
    outcome = {"most": by_group.max().sort_values(ascending=False), "rows": by_group.sum()}
    found = produce_rows(outcome, DataConnector(ROWS), ["key"], None, "value").rows
    assert found.drop_columns(["key"]).to_pydict() == {"most": [5, 4, 3], "rows": [7, 4, 4]}
    outcome["rows"] = outcome["rows"].set_axis([7, 8, 9])
    with pytest.raises(ColumnError, match=r"'rows', which has an index of 7, 8, 9"):
        produce_rows(outcome, DataConnector(ROWS), ["key"], None, "value")


def test_rows_that_a_map_function_sorts_stay_sorted():
    found = produce_rows(SORTED[["x"]], DataConnector(ROWS), ["key"], None, "value").rows
    assert found["x"].to_pylist() == sorted(X)


@pytest.mark.parametrize("key", ["a", 1.5, float("nan"), None])
def test_a_key_column_that_is_returned_holds_the_key_alone(key):
    data = DataConnector(pa.table({"key": pa.array([key] * 2, from_pandas=False), "x": [1, 2]}))
    for same in (data.to_arrow(), data.to_pandas()):
        found = produce_rows(same, data, ["key"], None, "value").rows
        assert repr(found["key"].to_pylist()) == repr([key] * 2)
    others = pa.table({"key": [7.5, 7.5], "x": [1, 2]})
    with pytest.raises(ColumnError, match="'key' that differs from the partition's key"):
        produce_rows(others, data, ["key"], None, "value")


@pytest.mark.parametrize(
    "outcome",
    [np.array(X), pa.array(X), pl.DataFrame({"x": X}), ROWS, {"x": X}, [1.0], {}],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_index_stays_as_it_is(outcome):
    assert in_row_order(outcome, ROWS, is_joined=True) is outcome


def test_single_values_are_one_row_or_stand_for_all_rows():
    single = {
        "a": 1.5,
        "b": "x\0",
        "c": None,
        "d": np.float32(2),
        "e": pa.scalar(1),
        "f": pd.NA,
        "g": np.array(3),
        "h": dt.date(2020, 1, 1),
        "i": b"\0",
        7: True,
    }
    expected = {
        "a": 1.5,
        "b": "x\0",
        "c": None,
        "d": 2.0,
        "e": 1,
        "f": None,
        "g": 3,
        "h": dt.date(2020, 1, 1),
        "i": b"\0",
        "7": True,
    }
    assert returned_table(single, "value").to_pylist() == [expected]
    assert returned_table({**single, "many": [1, 2]}, "value").to_pylist() == [
        {**expected, "many": many} for many in (1, 2)
    ]
    assert returned_table({"a": "v1", "many": []}, "value").num_rows == 0
    with pytest.raises(ColumnError, match=r"1 row for 6"):
        produce_rows({"a": 1.0}, DataConnector(ROWS), ["key"], ["x"], "y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.50"), pa.scalar(Decimal("1.50"))),
        (NOW, pa.scalar(NOW)),
        (np.datetime64("2026-01-01"), pa.scalar(dt.date(2026, 1, 1))),
        (
            np.datetime64("2026-01-01T05", "h"),
            pa.scalar(np.datetime64("2026-01-01T05", "s")),
        ),
        (np.datetime64("2026-01-01", "ns"), pa.scalar(np.datetime64("2026-01-01", "ns"))),
        (np.datetime64("NaT"), pa.scalar(None)),
        (np.datetime64("NaT", "ns"), pa.scalar(None, "timestamp[ns]")),
        (np.timedelta64(3, "D"), pa.scalar(dt.timedelta(3), "duration[s]")),
        (np.uint64(2**64 - 1), pa.scalar(2**64 - 1, "uint64")),
        (2**63, pa.scalar(2**63, "uint64")),
        (np.bool_(True), pa.scalar(True)),
        (np.str_("x"), pa.scalar("x")),
        (np.float16(1), pa.scalar(np.float16(1))),
    ],
)
def test_a_single_value_keeps_its_type(value, expected):
    assert returned_table({"a": value}, "value") == pa.table({"a": pa.array([expected])})
    many = returned_table({"a": value, "b": [1, 2]}, "value")
    assert many["a"].to_pylist() == [expected.as_py()] * 2


def test_single_values_of_partitions_stand_in_one_column(tmp_path):
    found = {"a": None, "b": 2, "c": 0.5, "d": np.float32(0.25)}

    def function(data, context):
        is_last = context.key == "d"
        time = np.datetime64("2026-01-01" if is_last else "NaT")
        return {
            "value": found[context.key],
            "time": time,
            "price": Decimal(10 if is_last else "1.5"),
        }

    shard = ShardOfRun(tmp_path / "r")
    try:
        _, run = shard.run(function, table_of(**dict.fromkeys(found, 1)))
    finally:
        shard.host.close()
    rows = run.predictions().sort_by("key")
    assert rows["value"].to_pylist() == list(found.values())
    assert rows["time"].to_pylist() == [None, None, None, dt.date(2026, 1, 1)]
    assert rows["price"].to_pylist() == [Decimal("1.5")] * 3 + [Decimal(10)]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"a": [1, 2], "b": [1, 2, 3]}, r"several lengths: 'a' has 2, 'b' has 3 values"),
        ({"a": np.zeros((2, 2))}, r"'a' of 2 dimensions"),
        ({"a": ROWS.to_pandas()}, r"'a' of 2 dimensions"),
        ({"a": (i for i in "ab")}, r"'a', a generator, which is not a column"),
        ({"a": object()}, r"'a', a object, which is not a column"),
        ({"a": np.array([1, "x"], object)}, r"'a', a ndarray of object, which is not a column"),
        ({"a": [[1], [2, 3]]}, r"'a' of 2 dimensions: .* or pyarrow.array\(...\) of lists"),
        ([[1], [2, 3]], r"rows of several lengths: return as many values of each"),
    ],
)
def test_what_is_no_column_is_refused_in_a_sentence(outcome, reason):
    with pytest.raises(ColumnError, match=reason):
        returned_table(outcome, "value")


def test_values_of_rows_that_are_lists_stay_of_their_own_kind():
    """numpy has one type for all columns: of a number beside a text it makes a text."""
    for rows in ([("a", 1, True, 0.5), ("b", None, False, 1.5)], [["a", 1, True, 0.5]] * 2):
        found = returned_table(rows, "value")
        assert [str(kind) for kind in found.schema.types] == ["string", "int64", "bool", "double"]
        assert list(zip(*found.to_pydict().values(), strict=True)) == list(map(tuple, rows))
    assert returned_table([[2**60 + 1, 0.5]], "value")["value_0"].to_pylist() == [2**60 + 1]
    assert returned_table([[1, 0.5]], "value").schema.types == [pa.float64()] * 2


MASKED = np.ma.array([1, 2, 3], mask=[False, True, False])


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (MASKED, {"value": [1, None, 3]}),
        (np.ma.stack([MASKED, MASKED * 2], 1), {"value_0": [1, None, 3], "value_1": [2, None, 6]}),
        ({"a": MASKED}, {"a": [1, None, 3]}),
        (np.ma.array(["a", "b"], mask=[1, 0], dtype=object), {"value": [None, "b"]}),
        (np.array([1, 2], ">i4"), {"value": [1, 2]}),
        (np.array([[1.5, 2.5]], ">f8"), {"value_0": [1.5], "value_1": [2.5]}),
        (np.array([1, 2], "m8[h]"), {"value": [dt.timedelta(hours=1), dt.timedelta(hours=2)]}),
        ({"a": np.array([1, "NaT"], "m8[D]")}, {"a": [dt.timedelta(days=1), None]}),
    ],
    ids=str,
)
def test_masks_and_bytes_of_another_order_are_values_of_their_own(outcome, expected):
    """What is masked came back as the number beneath its mask."""
    assert returned_table(outcome, "value").to_pydict() == expected


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (np.array([1j]), "'value', a ndarray of complex128, which is not a column"),
        (np.array([1, "a"], dtype=object), "'value', a ndarray of object, which is not a column"),
        (
            [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)],
            "'value', which the function returned, holds dates and times with a zone",
        ),
        (
            {"t": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), pd.Timestamp(0)]},
            "'t', which .* times without a zone",
        ),
    ],
    ids=str,
)
def test_values_of_several_kinds_are_refused_with_their_name(outcome, reason):
    with pytest.raises(ColumnError, match=reason):
        returned_table(outcome, "value")


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([2**53 + 1, None, 1], dtype="Int64"),
        pd.Series([2**53 + 1, None, 1], dtype="int64[pyarrow]"),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([NOW, None]),
        pd.Series(["a", None], dtype="category"),
        pl.Series([2**53 + 1, None, 1]),
        pl.Series([2**64 - 1, None]),
        pl.Series([NOW, None]),
        pl.Series([[1], None]),
    ],
    ids=lambda series: f"{type(series).__module__.split('.')[0]}-{series.dtype}",
)
def test_a_series_in_a_mapping_has_the_values_that_it_has_in_a_frame(series):
    """By numpy, 2^53 + 1 became 2^53 where a null stood beside it, and times lost their zone."""
    made = pd.DataFrame if isinstance(series, pd.Series) else pl.DataFrame
    frame = returned_table(made({"a": series}), "value")
    assert returned_table({"a": series}, "value")["a"].equals(frame["a"])


@pytest.mark.parametrize(
    "values",
    [
        pd.array([2**53 + 1, None], dtype="Int64"),
        pd.array([0.5, None], dtype="Float64"),
        pd.Index([2**53 + 1, None], dtype="Int64"),
        pd.Index([True, None], dtype="boolean"),
        pd.Categorical(["a", None]),
        pd.DatetimeIndex([NOW, None]),
        pd.RangeIndex(2),
        pd.Index([1.5, 2.5]),
    ],
    ids=lambda values: f"{type(values).__name__}-{values.dtype}",
)
def test_an_array_or_index_of_pandas_has_the_values_of_a_series(values):
    """By numpy, 2^53 + 1 became 2^53 where a null stood beside it, and the null NaN."""
    series = returned_table(pd.Series(values), "value")["value"]
    assert returned_table({"value": values}, "value")["value"].equals(series)
    assert returned_table(values, "value")["value"].equals(series)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint64])
def test_whole_numbers_of_a_list_that_are_no_double_are_refused_beside_one(kind):
    assert returned_table([kind(2**53), 0.5], "value")["value"].to_pylist() == [2.0**53, 0.5]
    with pytest.raises(ColumnError, match="'value', a list, which is not a column"):
        returned_table([kind(2**53 + 1), 0.5], "value")


def test_what_no_file_has_is_kept_as_plain_columns() -> None:
    returned = {
        "text": pa.array(["a", None, "c"], pa.string_view()),
        "bytes": pa.array([b"a", None, b"c"], pa.binary_view()),
        "list": pa.array([["a"], None, [None]], pa.large_list(pa.string_view())),
        "struct": pa.array([{"a": "b"}, None, {}], pa.struct([("a", pa.string_view())])),
        "map": pa.array([[("a", "b")], None, []], pa.map_(pa.string(), pa.string_view())),
        "list view": pa.array([["a"], None, []], pa.list_view(pa.string())),
        "hundreds": pa.array([100, None, 300], pa.decimal128(5, -2)).dictionary_encode(),
    }
    outcome = pa.table(returned)
    rows = produce_rows(outcome, DataConnector(ROWS), ["key"], None, "value").rows
    found = rows.select(outcome.column_names)
    assert not any(
        "string_view" in str(kind) or "binary_view" in str(kind) for kind in found.schema.types
    )
    assert found.to_pylist() == outcome.to_pylist()
    assert found.take([2, 0]).to_pylist() == [outcome.to_pylist()[place] for place in (2, 0)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array(["a\0b", "\0c"]), pa.string()),
        (np.array([b"a\0b", b"\0c"]), pa.binary()),
        (np.array(["a\0b"], ">U3"), pa.string()),
        (np.array([], "U1"), pa.string()),
    ],
)
def test_zeros_within_numpy_s_texts_and_bytes_are_kept(values, kind) -> None:
    made = returned_table(values, "p")["p"]
    assert made.combine_chunks() == pa.array(values.tolist(), kind)
    assert returned_table({"p": values}, "p")["p"] == made


@pytest.mark.parametrize("values", [[b"a\0", b"\0\0", b""], ["a\0", "\0", "b"], (np.str_("a\0"),)])
def test_zeros_at_the_end_of_a_list_s_texts_and_bytes_are_kept(values) -> None:
    """As a digest in 256 has one there."""
    for outcome in (values, {"made": values}):
        assert returned_table(outcome, "made")["made"].to_pylist() == [*values]
