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


def test_columns_of_another_kind_stay_as_they_are():
    trained = categories_of_rows(with_own_categories(pa.table({"c": coded(["a"], ["a"])})), ())
    assert trained is not None
    for other in (pa.array(["a", "b"]), pa.array([1, 2]).dictionary_encode()):
        rows = with_own_categories(pa.table({"c": other}))
        assert with_categories_of(rows, trained).equals(rows)
    absent = pa.table({"x": [1]})
    assert with_categories_of(absent, trained) is absent
    large = with_own_categories(
        pa.table({"c": pa.array(["b", "a"], pa.large_string()).dictionary_encode()})
    )
    assert shown(with_categories_of(large, trained)) == (["a", "b"], [1, 0])
    assert categories_of_rows(absent, ()) is None
