import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.tables.features import (
    REFUSED_BY_LIGHTGBM,
    choose_features,
    feature_matrix,
    feature_names,
    find_categories,
    find_columns,
)

SCHEMA = pa.schema(
    {
        "store": pa.string(),
        "day": pa.date32(),
        "x": pa.float64(),
        "n": pa.int8(),
        "flag": pa.bool_(),
        "price": pa.decimal128(8, 2),
        "kind": pa.dictionary(pa.int32(), pa.string()),
        "code": pa.int64(),
        "note": pa.string(),
        "empty": pa.null(),
        "y": pa.float64(),
    }
)


def choose(**changes):
    settings_ = {
        "label": "y",
        "features": (),
        "categorical": ("note",),
        "left_out": {"store", "day"},
        **changes,
    }
    return choose_features(SCHEMA, **settings_)


def test_without_names_all_other_columns_are_features():
    chosen = choose(categorical=("note", "code"))
    assert chosen.names == ("x", "n", "flag", "price", "kind", "code", "note", "empty")
    assert chosen.categorical == ("kind", "code", "note")


def test_named_features_keep_their_order_and_may_be_left_out_ones():
    chosen = choose(features=("n", "store", "x"), categorical=("store",))
    assert chosen.names == ("n", "store", "x")
    assert chosen.categorical == ("store",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ("x", "z")}, "features 'z' are missing; there are 'store', 'day'"),
        ({"features": ("x", "y")}, "label 'y' is among the features"),
        ({"features": ("x", "n", "x"), "categorical": ()}, "'x' are named twice"),
        ({"features": ("x",)}, "categorical columns 'note' are not among the features"),
        (
            {"categorical": ()},
            r"'note' is string, and .* \(--categorical note\).* \(--features x,n.*--csv-decimal ,",
        ),
        (
            {"left_out": {"store"}},
            r"feature 'day' is date32.*leave it out of features \(--features ",
        ),
        ({"categorical": ("note", "price"), "features": ("note", "price")}, "cast it to a string"),
        ({"left_out": set(SCHEMA.names)}, "No column is left"),
    ],
)
def test_features_that_do_not_fit_are_refused(changes, message):
    if changes.get("categorical") == ("note", "price"):
        schema = pa.schema({"note": pa.string(), "price": pa.date32(), "y": pa.int8()})
        with pytest.raises(ColumnError, match=message):
            choose_features(
                schema, label="y", features=(), categorical=("note", "price"), left_out=()
            )
        return
    with pytest.raises(ColumnError, match=message):
        choose(**changes)


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.binary(), pa.struct({"a": pa.int8()})])
def test_nested_and_binary_columns_are_no_features(kind):
    for categorical in ((), ("f",)):
        with pytest.raises(ColumnError, match="feature 'f' is "):
            choose_features(
                pa.schema({"f": kind, "y": pa.int8()}),
                label="y",
                features=(),
                categorical=categorical,
                left_out=(),
            )


def test_numbers_keep_their_values_and_nulls_are_nan():
    table = pa.table(
        {
            "x": [0.1, None, 3.0],
            "n": pa.array([1, None, -128], pa.int8()),
            "flag": [True, None, False],
            "price": pa.array([1, None, 3], pa.decimal128(8, 2)),
            "long": [2**53, None, -1],
            "empty": pa.nulls(3),
        }
    )
    matrix = feature_matrix(table, table.column_names, {})
    assert matrix.dtype == np.float64
    nan = np.nan
    np.testing.assert_array_equal(
        matrix,
        [[0.1, 1, 1, 1, 2**53, nan], [nan] * 6, [3, -128, 0, 3, -1, nan]],
    )


def test_single_is_enough_where_it_holds_every_column():
    table = pa.table(
        {"x": pa.array([0.1], pa.float32()), "n": pa.array([3], pa.uint16()), "c": ["a"]}
    )
    matrix = feature_matrix(table, ["c", "x", "n"], {"c": ["a"]})
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, np.array([[0, np.float32(0.1), 3]], np.float32))
    assert feature_matrix(table, ["x"], {}).dtype == np.float32
    wide = table.set_column(1, "n", pa.array([3], pa.int32()))
    assert feature_matrix(wide, ["n"], {}).dtype == np.float64


@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=4)), min_size=1, max_size=30),
    others=st.lists(st.text(max_size=4), max_size=5),
    split=st.integers(0, 30),
)
@settings(max_examples=60)
def test_a_code_leads_back_to_its_category_whatever_the_encoding(values, others, split):
    """Neither a dictionary shared with other partitions, nor the chunks, change any code."""
    plain = pa.chunked_array([pa.array(values, pa.string())])
    categories = find_categories(plain)
    shared = sorted({*others, *categories}, reverse=True)
    places = [None if value is None else shared.index(value) for value in values]
    encoded = pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(pa.array(part, pa.int32()), pa.array(shared))
            for part in (places[:split], places[split:])
        ]
    )
    assert find_categories(encoded) == categories == sorted({*values} - {None})
    known = categories[: len(categories) // 2 + 1]
    codes = [
        feature_matrix(pa.table({"c": column}), ["c"], {"c": known})[:, 0]
        for column in (plain, encoded)
    ]
    np.testing.assert_array_equal(codes[0], codes[1])
    back = [None if np.isnan(code) else known[int(code)] for code in codes[0]]
    assert back == [value if value in known else None for value in values]


def test_integer_categories_are_found_among_doubles_and_booleans():
    assert find_categories(pa.chunked_array([[7, 3, None, 7]])) == [3, 7]
    known = {"c": [0, 1, 2**60]}
    for column, codes in [
        (pa.array([2**60, 2**60 + 1, 1]), [2, np.nan, 1]),
        (pa.array([0.0, 0.5, 1.0]), [0, np.nan, 1]),
        (pa.array([False, None, True]), [0, np.nan, 1]),
        (pa.nulls(3), [np.nan] * 3),
    ]:
        matrix = feature_matrix(pa.table({"c": column}), ["c"], known)
        np.testing.assert_array_equal(matrix[:, 0], np.array(codes, np.float32))


def test_categories_of_another_kind_are_refused():
    with pytest.raises(ColumnError, match=r"'c' were text in training, but .* now int64: cast it"):
        feature_matrix(pa.table({"c": [1]}), ["c"], {"c": ["1"]})
    with pytest.raises(ColumnError, match=r"'c' were numbers in training, but .* now string"):
        feature_matrix(pa.table({"c": ["1"]}), ["c"], {"c": [1]})
    with pytest.raises(ColumnError, match="'c' is string, but numbers are needed"):
        feature_matrix(pa.table({"c": ["1"]}), ["c"], {})


def underscored(names):
    return [re.sub(r"\s", "_", name) for name in names]


def test_columns_are_found_under_the_names_that_libraries_take():
    columns = ["a b", "x[0]", "plain", "p q", "p\tq"]
    schema = pa.schema([(name, pa.float64()) for name in columns])
    escaped = partial(feature_names, refused=" []")
    features = ["plain", "x%5B0%5D", "a_b", "a b"]
    found = find_columns(features, schema, [escaped, underscored])
    assert found == ["plain", "x[0]", "a b", "a b"]
    with pytest.raises(ColumnError, match="lacks features of the model: 'p_q', 'q'; there are"):
        find_columns(["p_q", "q", "plain"], schema, [escaped, underscored])


def test_a_message_names_a_column_as_it_is_written():
    schema = pa.schema([("size", pa.float64())])
    spelled = feature_names(["price [EUR]", "100%"], REFUSED_BY_LIGHTGBM)
    assert spelled == ["price%20%5BEUR%5D", "100%"]
    with pytest.raises(ColumnError, match=r"lacks features of the model: 'price \[EUR\]', '100%'"):
        find_columns(spelled, schema)
