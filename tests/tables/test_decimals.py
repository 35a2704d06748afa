"""Decimals as doubles: the nearest one, wherever a decimal becomes a number."""

from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise import DataConnector, LightGBMTrainer, Linear, RandomForest, XGBoostTrainer
from partwise.connector.context import PartitionContext
from partwise.connector.tensor_columns import batch_values, column_form
from partwise.connector.vectors import vector_of
from partwise.models.serdes.plain import PlainSerde
from partwise.tables.categories import categories_of_rows, with_categories_of, with_own_categories
from partwise.tables.decimals import cast_values
from partwise.tables.features import feature_matrix, find_categories
from partwise.tables.schemas import cast_batch
from partwise.trainers.predict import default_predict

TYPES = {
    pa.decimal32: 9,
    pa.decimal64: 18,
    pa.decimal128: 38,
    pa.decimal256: 76,
}
"""The makers of types, and how many digits theirs have."""

PRICES = [Decimal(number) / 100 for number in range(1, 60)]


def decimals(unscaled, make, scale, offset=0):
    """Make decimals of whole numbers; also such as Arrow itself reads from no text."""
    kind = make(TYPES[make], scale)
    size = kind.bit_width // 8
    # Under a null lies what is not a value.
    content = b"".join(
        (-1 if one is None else one).to_bytes(size, "little", signed=True)
        for one in [*[7] * offset, *unscaled]
    )
    is_there = np.array([True] * offset + [one is not None for one in unscaled], bool)
    marks = np.packbits(is_there, bitorder="little")
    buffers = [pa.py_buffer(marks.tobytes()), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, len(unscaled), buffers, -1, offset)


def nearest(unscaled, scale):
    """The double that is nearest to a decimal: how Python divides whole numbers."""
    if unscaled is None:
        return None
    exact = Fraction(unscaled) / Fraction(10) ** scale
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if unscaled > 0 else float("-inf")


def near_halves(digits):
    """Whole numbers, many of which lie halfway between two doubles, or almost."""
    whole = st.integers(-(10**digits) + 1, 10**digits - 1)
    halves = st.builds(
        lambda odd, shift, off: (2 * odd + 1) * 2**shift + off,
        st.integers(2**52, 2**53 - 1),
        st.integers(0, 190),
        st.integers(-1, 1),
    ).filter(lambda number: abs(number) < 10**digits)
    small = st.integers(-(10 ** min(digits, 15)), 10 ** min(digits, 15))
    return st.one_of(whole, small, halves) if digits >= 18 else st.one_of(whole, small)


@pytest.mark.parametrize("make", TYPES, ids=lambda make: make.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_a_decimal_becomes_the_nearest_double(make, data):
    scale = data.draw(st.one_of(st.integers(-30, 80), st.sampled_from([-400, 22, 23, 400])))
    drawn = data.draw(st.lists(st.none() | near_halves(TYPES[make]), max_size=30))
    offset = data.draw(st.integers(0, 9))
    array = decimals(drawn, make, scale, offset)
    expected = pa.array([nearest(one, scale) for one in drawn], pa.float64())
    found = cast_values(array, pa.float64())
    assert found.equals(expected)
    chunks = pa.chunked_array([array[:3], array[3:3], array[3:]], array.type)
    assert cast_values(chunks, pa.float64()).equals(pa.chunked_array([expected]))


@pytest.mark.slow
@pytest.mark.parametrize("make", TYPES, ids=lambda make: make.__name__)
def test_of_a_hundred_thousand_decimals_each_becomes_the_nearest_double(make):
    random = Random(0)
    for scale in range(-12, 51):
        # Of any number of digits, each as frequent.
        tops = [10 ** random.randint(1, TYPES[make]) - 1 for _ in range(2000)]
        drawn = [random.randint(-top, top) for top in tops]
        expected = [nearest(one, scale) for one in drawn]
        assert cast_values(decimals(drawn, make, scale), pa.float64()).to_pylist() == expected


def test_every_way_to_numbers_gives_the_nearest_double():
    array = pa.array([*PRICES, None], pa.decimal128(12, 4))
    expected = [float(price) for price in PRICES]
    table = pa.table({"x": array})
    listed = pa.FixedSizeListArray.from_arrays(array, 1)
    lists = pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)
    batch = pa.record_batch({"x": array, "fixed": listed, "lists": lists})
    forms = {name: column_form(pa.table(batch)[name]) for name in batch.schema.names}
    tensors = batch_values(batch, forms)
    data = DataConnector(table)
    doubles = cast_batch(table.to_batches()[0], pa.schema({"x": pa.float64()}), {}, "file 'a'")
    of_dictionary = pa.chunked_array([array.dictionary_encode()])
    ways = [
        data.to_numpy("x"),
        data.to_numpy(["x"])[:, 0],
        data.to_dmatrix().get_data().toarray()[: len(PRICES), 0],
        vector_of(of_dictionary),
        feature_matrix(table, ["x"], {})[:, 0],
        tensors["x"],
        tensors["fixed"][:, 0],
        np.concatenate(list(tensors["lists"])),
        np.asarray(doubles.column(0), np.float64),
    ]
    for place, found in enumerate(ways):
        wanted = np.array(expected, found.dtype)
        assert found[: len(PRICES)].tolist() == wanted.tolist(), place
        assert len(found) == len(PRICES) or np.isnan(found[-1]), place


def sold(prices):
    """Rows of prices, each with a label that no neighbour has."""
    labels = [float(int(price * 100) * 7919 % 97) for price in PRICES]
    return pa.table({"rate": pa.concat_arrays([prices] * 12), "y": labels * 12})


CATEGORICAL = {"label": "y", "features": ("rate",), "categorical": ("rate",), "holdout": None}
TRAINERS = {
    "lightgbm": LightGBMTrainer(
        **CATEGORICAL, params={"min_data_in_leaf": 1, "min_data_per_group": 1, "cat_smooth": 0}
    ),
    "xgboost": XGBoostTrainer(**CATEGORICAL),
    "linear": Linear(**CATEGORICAL, params={"alpha": 1e-6}),
    "random_forest": RandomForest(**CATEGORICAL, params={"n_estimators": 5}),
}
AS = {
    "decimal(9,2)": pa.array(PRICES, pa.decimal128(9, 2)),
    "decimal(12,4)": pa.array(PRICES, pa.decimal128(12, 4)),
    "decimal256(70,30)": pa.array(PRICES, pa.decimal256(70, 30)),
    "decimal32(9,3)": pa.array(PRICES, pa.decimal32(9, 3)),
    "double": pa.array([float(price) for price in PRICES]),
    "dictionary": pa.array(PRICES, pa.decimal128(9, 2)).dictionary_encode(),
}


@pytest.mark.parametrize("trained_as", ["decimal(9,2)", "decimal(12,4)", "double"])
@pytest.mark.parametrize("kind", TRAINERS)
def test_a_category_is_the_same_in_any_decimal_type(kind, trained_as):
    trained = TRAINERS[kind](DataConnector(sold(AS[trained_as])), PartitionContext())
    expected = None
    for prices in AS.values():
        rows = DataConnector(pa.table({"rate": prices}))
        found = default_predict(rows, trained.model, PartitionContext())
        expected = found if expected is None else expected
        assert found.tolist() == expected.tolist()
    # The categories were met: the predictions are the labels.
    assert np.abs(expected - sold(AS["double"])["y"].to_numpy()[: len(PRICES)]).mean() < 12


def test_categories_of_models_from_before_are_found():
    old = pa.array(PRICES, pa.decimal128(9, 2)).cast(pa.float64()).to_pylist()
    assert old != [float(price) for price in PRICES]  # so models kept them
    rows = pa.table({"x": pa.array([*PRICES, Decimal("0.77"), None], pa.decimal128(9, 2))})
    codes = feature_matrix(rows, ["x"], {"x": old})[:, 0]
    assert codes[: len(PRICES)].tolist() == list(range(len(PRICES)))
    assert np.isnan(codes[len(PRICES) :]).all()


def test_categories_of_a_dictionary_are_found_in_any_decimal_type():
    kept = categories_of_rows(pa.table({"x": AS["dictionary"]}), ())
    assert kept is not None
    for name in ("decimal(12,4)", "double"):
        values = pa.concat_arrays([AS[name][::-1], pa.array([9], AS[name].type)])
        rows = with_own_categories(pa.table({"x": values.dictionary_encode()}))
        codes = with_categories_of(rows, kept)["x"].combine_chunks().indices.to_pylist()
        assert codes == [*reversed(range(len(PRICES))), len(PRICES)]


def test_categories_are_found_among_signed_and_unsigned_numbers():
    largest = pa.array([2**64 - 1, 5, 2**63, None], pa.uint64())
    known = find_categories(pa.chunked_array([largest]))
    assert known == [5, 2**63, 2**64 - 1]
    codes = feature_matrix(pa.table({"x": largest}), ["x"], {"x": known})[:, 0]
    assert codes[:3].tolist() == [2, 0, 1]
    assert np.isnan(codes[3])
    signed = feature_matrix(pa.table({"x": [5, -1]}), ["x"], {"x": known})[:, 0]
    assert signed[0] == 0
    assert np.isnan(signed[1])
    # Categories were doubles where the column had nulls in pandas.
    doubles = feature_matrix(pa.table({"x": [2**53 + 1, 5]}), ["x"], {"x": [5.0, 2.0**53]})
    assert doubles[:, 0].tolist() == [1, 0]


def test_a_linear_model_keeps_its_categories_on_disk(tmp_path):
    model = TRAINERS["linear"](DataConnector(sold(AS["decimal(12,4)"])), PartitionContext()).model
    serde = PlainSerde()
    serde.write(model, str(tmp_path / serde.filename))
    read = serde.read(str(tmp_path / serde.filename))
    table = pa.table({"rate": AS["decimal(9,2)"]})
    assert read.predict(table).tolist() == model.predict(table).tolist()
