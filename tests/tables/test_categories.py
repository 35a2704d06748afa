"""The rule for categories: those of a partition's own rows, or of the training first."""

import datetime as dt
import math

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError
from partwise.tables.categories import (
    categories_of_rows,
    with_categories_of,
    with_own_categories,
)


def coded(values: list, known: list, ordered: bool = False) -> pa.DictionaryArray:
    kind = pa.array(known).type
    codes = pa.array(
        [None if value is None else known.index(value) for value in values], pa.int16()
    )
    return pa.DictionaryArray.from_arrays(codes, pa.array(known, kind), ordered=ordered)


def shown(table: pa.Table, name: str = "c") -> tuple[list, list]:
    chunk = table[name].combine_chunks()
    chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
    return chunk.dictionary.to_pylist(), chunk.indices.to_pylist()


@pytest.mark.parametrize("ordered", [False, True])
def test_unused_categories_are_none_and_an_order_is_kept(ordered):
    table = pa.table({"c": coded(["m", None, "l", "m"], ["s", "m", "x", "l"], ordered)})
    found = with_own_categories(table)
    assert found["c"].to_pylist() == ["m", None, "l", "m"]
    assert found.schema.field("c").type == pa.dictionary(pa.int32(), pa.string(), ordered)
    known = ["m", "l"] if ordered else ["l", "m"]
    assert shown(found) == (
        known,
        [None if v is None else known.index(v) for v in ["m", None, "l", "m"]],
    )


def test_dictionaries_may_differ_have_nulls_and_repeat_values():
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["b", None, "b"])),
        pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["unused", "a"])).slice(0, 1),
    ]
    table = pa.table({"x": range(4), "c": pa.chunked_array(chunks)})
    found = with_own_categories(table)
    assert found["c"].to_pylist() == ["b", None, "b", "a"]
    assert {tuple(chunk.dictionary.to_pylist()) for chunk in found["c"].chunks} == {("a", "b")}
    assert with_own_categories(table.slice(0, 0))["c"].to_pylist() == []


def test_frames_come_with_the_categories_of_their_rows():
    frame = pd.DataFrame({"c": pd.Categorical(["z", "b", None], ["z", "q", "b"])})
    assert DataConnector.from_dataframe(frame).to_pandas()["c"].cat.codes.tolist() == [1, 0, -1]
    kinds = pl.Series(["z", "b", None], dtype=pl.Enum(["z", "q", "b"]))
    data = DataConnector.from_dataframe(pl.DataFrame({"c": kinds}))
    assert data.categories("c").to_pylist() == ["z", "b"], "an Enum has an order"


def test_zeros_of_both_signs_have_one_order():
    found = [
        shown(with_own_categories(pa.table({"c": pa.array(values).dictionary_encode()})))[0]
        for values in ([0.0, -0.0, -1.0, math.nan], [math.nan, -1.0, -0.0, 0.0])
    ]
    assert str(found[0]) == str(found[1]) == str([-1.0, -0.0, 0.0, math.nan])


VALUES = {
    "text": st.sampled_from(["", "a", "b", "é", "Z", "z"]),
    "integers": st.integers(-2, 3),
    "days": st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 4)),
    "flags": st.booleans(),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_codes_of_known_values_are_those_of_the_training(kind, data):
    lists = st.lists(st.none() | VALUES[kind], min_size=1, max_size=12)
    typed = pa.array(data.draw(st.lists(VALUES[kind], min_size=1, max_size=1))).type
    first, second = (pa.array(data.draw(lists), typed).dictionary_encode() for _ in range(2))
    trained = with_own_categories(pa.table({"c": first, "k": first}))
    kept = categories_of_rows(trained, ("k",))
    assert kept is not None
    assert kept.column_names == ["c"]
    found = with_categories_of(with_own_categories(pa.table({"c": second})), kept)
    assert found["c"].to_pylist() == second.to_pylist()
    known, _ = shown(trained)
    now, codes = shown(found)
    assert known == sorted({value for value in first.to_pylist() if value is not None})
    assert now[: len(known)] == known
    assert now[len(known) :] == sorted(set(second.to_pylist()) - {None, *known})
    code_of = {value: code for code, value in enumerate(known)}
    for value, code in zip(second.to_pylist(), codes, strict=True):
        assert code == code_of.get(value, code)


def test_an_order_ends_where_a_value_was_unknown():
    trained = categories_of_rows(
        with_own_categories(pa.table({"c": coded(["l", "h"], ["l", "m", "h"], True)})), ()
    )
    assert trained is not None
    for values, ordered in ((["h", "l"], True), (["h", "m"], False)):
        rows = with_own_categories(pa.table({"c": coded(values, ["l", "m", "h"], True)}))
        found = with_categories_of(rows, trained)
        assert found["c"].to_pylist() == values
        assert found.schema.field("c").type.ordered is ordered
        assert shown(found)[0] == (["l", "h"] if ordered else ["l", "h", "m"])


TIMES = [dt.datetime.fromisoformat(text) for text in ("2024-01-01T05", "2024-01-02")]
OTHER_TYPES = [
    ([1, 2, 300], pa.int64(), [2, 7], pa.int8(), [1, 3]),
    ([1.0, 2.5], pa.float64(), [1, 2], pa.int64(), [0, 2]),
    ([-1, 5], pa.int64(), [5, 7], pa.uint8(), [1, 2]),
    ([1, 2], pa.int8(), [2, 300], pa.int64(), [1, 2]),
    ([0.1, 1.5], pa.float64(), [0.1, 1.25], pa.float32(), [0, 2]),
    ([0.1, 0.1 + 1e-12], pa.float64(), [0.5], pa.float32(), [2]),
    (["a", "b"], pa.string(), [1, 2], pa.int64(), [2, 3]),
    (["1", "2.0"], pa.string(), [1.0, 2.0], pa.float64(), [0, 1]),
    (["01", "1"], pa.string(), [1, 2], pa.int64(), [1, 2]),
    ([1, 2], pa.int64(), ["2", "x"], pa.string(), [1, 2]),
    ([True], pa.bool_(), [0, 1, 5], pa.int64(), [1, 0, 2]),
    ([5], pa.int64(), [True], pa.bool_(), [1]),
    (TIMES, pa.timestamp("us"), [TIMES[0].date(), TIMES[1].date()], pa.date32(), [2, 1]),
    ([TIMES[0].date()], pa.date32(), TIMES, pa.timestamp("us"), [1, 2]),
    (["a"], pa.string(), [None], pa.null(), [None]),
    (["a"], pa.large_string(), ["b", "a"], pa.string(), [1, 0]),
    (["a"], pa.string(), [TIMES[0]], pa.timestamp("us"), [1]),
]


@pytest.mark.parametrize(("first", "trained", "second", "now", "expected"), OTHER_TYPES)
def test_values_of_another_type_have_no_codes_of_others(first, trained, second, now, expected):
    kept = categories_of_rows(
        with_own_categories(pa.table({"c": pa.array(first, trained).dictionary_encode()})), ()
    )
    assert kept is not None
    rows = with_own_categories(pa.table({"c": pa.array(second, now).dictionary_encode()}))
    known, codes = shown(with_categories_of(rows, kept))
    assert codes == expected
    assert len(set(known)) == len(known)


def test_values_that_no_type_holds_beside_those_of_training_are_refused():
    for first, second in (([1.5], pa.array(TIMES)), ([-1], pa.array([2**63], pa.uint64()))):
        known = pa.table({"c": pa.array(first).dictionary_encode()})
        trained = categories_of_rows(with_own_categories(known), ())
        assert trained is not None
        rows = with_own_categories(pa.table({"c": second.dictionary_encode()}))
        with pytest.raises(ColumnError, match=r"'c' had categories of type .* no type holds the"):
            with_categories_of(rows, trained)


@pytest.mark.parametrize(
    "known", [["a", "b"], [1, 2], [0.5, 1.5], [False, True], [dt.date(2026, 1, 1)]]
)
def test_nulls_alone_have_no_code_and_add_no_category(known):
    """As the columns of a request of one row, whose type nobody knows."""
    trained = categories_of_rows(with_own_categories(pa.table({"c": coded(known, known)})), ())
    found = with_categories_of(pa.table({"c": pa.nulls(2).dictionary_encode()}), trained)
    assert shown(found) == (known, [None, None])
    assert found.schema.field("c").type.value_type == pa.array(known).type


def test_columns_without_a_dictionary_stay_as_they_are():
    trained = categories_of_rows(with_own_categories(pa.table({"c": coded(["a"], ["a"])})), ())
    assert trained is not None
    rows = with_own_categories(pa.table({"c": ["a", "b"]}))
    assert with_categories_of(rows, trained).equals(rows)
    absent = pa.table({"x": [1]})
    assert with_categories_of(absent, trained) is absent
    assert categories_of_rows(absent, ()) is None
