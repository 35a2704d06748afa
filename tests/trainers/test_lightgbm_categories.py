"""The categories of a pandas frame go to the columns that had them, or the model is refused."""

import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.exports.trees.native import NativeExporter
from partwise.models.export_options import ExportOptions
from partwise.models.serdes.lightgbm import LightGBMSerde
from partwise.trainers.ready.lightgbm import LightGBMTrainer, features_of_booster, predict_lightgbm
from tests.lazily import Lazily

lightgbm = Lazily("lightgbm")

PARAMS = {
    "verbosity": -1,
    "num_threads": 1,
    "min_data_in_leaf": 3,
    "min_data_per_group": 3,
    "cat_smooth": 1,
    "num_leaves": 15,
}


def trained(frame, target, params=PARAMS, **settings):
    """Return a Booster, and the same as a file brings it back."""
    model = lightgbm.train(params, lightgbm.Dataset(frame, target, **settings), 15)
    return model, lightgbm.Booster(model_str=model.model_to_string())


def is_typed(column):
    return isinstance(column.dtype, pd.CategoricalDtype)


def as_read(frame):
    """Return a frame as a table that was read from a file: values, not categories."""
    plain = {
        name: [None if pd.isna(value) else value for value in column]
        if is_typed(column)
        else column.to_numpy()
        for name, column in frame.items()
    }
    return pa.table({name: pa.array(values) for name, values in plain.items()})


def rated_shops(n=400, seed=0):
    rng = np.random.default_rng(seed)
    shop, rating = rng.integers(0, 9, n), rng.integers(1, 6, n)
    ratings = pd.Categorical(rating, categories=[1, 2, 3, 4, 5], ordered=True)
    frame = pd.DataFrame({"shop": shop, "rating": ratings, "price": rng.normal(size=n)})
    return frame, shop % 3 * 2.0 + rating + frame["price"]


@pytest.mark.parametrize("names", [["shop", "rating", "price"], ["price", "rating", "shop"]])
def test_an_ordered_column_keeps_its_categories_beside_categories_of_numbers(names):
    frame, target = rated_shops()
    model, read = trained(frame[names], target, categorical_feature=["shop"])
    rows = as_read(frame)
    assert features_of_booster(read, rows) == (names, {"rating": [1, 2, 3, 4, 5]})
    expected = model.predict(frame[names])
    np.testing.assert_array_equal(predict_lightgbm(DataConnector(rows), read), expected)
    for exporter in (LightGBMOnnxExporter(), NativeExporter()):
        signature = exporter.describe(read, rows, None, ExportOptions()).signature
        categories = {feature.name: feature.categories for feature in signature.features}
        assert categories == {"shop": None, "rating": (1, 2, 3, 4, 5), "price": None}


def test_what_rows_do_not_tell_is_refused_by_name_and_a_dictionary_tells():
    rng = np.random.default_rng(0)
    values = rng.integers(1, 5, (300, 2))
    ratings = pd.Categorical(values[:, 1], categories=[0, 1, 2, 3, 4, 9])
    frame = pd.DataFrame({"shop": values[:, 0], "rating": ratings})
    target = values[:, 0] % 3 + 2.0 * values[:, 1]
    model, read = trained(frame, target, categorical_feature=["shop", "rating"])
    rows = as_read(frame)
    message = "'0', '1', '2' and so on of this LightGBM model can be those of 'shop' or of 'rating'"
    for refused in (
        lambda: predict_lightgbm(DataConnector(rows), read),
        lambda: LightGBMOnnxExporter().describe(read, rows, None, ExportOptions()),
        lambda: NativeExporter().describe(read, rows, None, ExportOptions()),
    ):
        with pytest.raises(InputError, match=message):
            refused()
    typed = pa.Table.from_pandas(frame, preserve_index=False)
    found = predict_lightgbm(DataConnector(typed), read)
    np.testing.assert_array_equal(found, model.predict(frame))


def test_ids_beside_ordinary_numbers_are_told_apart():
    rng = np.random.default_rng(0)
    for ids in ([3, 7, 12, 30, 31, 40, 41, 50], range(1, 11), range(10)):
        shop = rng.choice([*ids], 300)
        frame = pd.DataFrame(
            {
                "weekday": rng.integers(0, 7, 300),
                "shop": pd.Categorical(shop),
                "month": rng.integers(1, 13, 300),
            }
        )
        target = shop % 5 + frame["weekday"] + frame["month"] % 3
        model, read = trained(frame, target)
        found = predict_lightgbm(DataConnector(as_read(frame)), read)
        np.testing.assert_array_equal(found, model.predict(frame))


def test_the_trainers_own_models_never_ask_the_rows(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(1, 5, (300, 2))
    target = values[:, 0] % 3 + values[:, 1]
    rows = pa.table({"shop": values[:, 0], "weekday": values[:, 1], "sales": target})
    trainer = LightGBMTrainer(label="sales", categorical=("shop",), params=PARAMS_OF_TRAINER)
    model = trainer(DataConnector(rows), PartitionContext()).model
    LightGBMSerde().write(model, str(tmp_path / "model.txt"))
    for booster in (model, LightGBMSerde().read(str(tmp_path / "model.txt"))):
        for known in (rows, rows.slice(0, 1), rows.slice(0, 0)):
            found = features_of_booster(booster, known)
            assert found == (["shop", "weekday"], {"shop": [1, 2, 3, 4]})


PARAMS_OF_TRAINER = {"min_data_in_leaf": 3, "min_data_per_group": 3, "cat_smooth": 1}


def test_a_column_of_another_type_than_in_training_is_named():
    frame, target = rated_shops()
    _, read = trained(frame, target, categorical_feature=["shop"])
    rows = as_read(frame)
    rows = rows.set_column(1, "rating", rows["rating"].cast(pa.string()))
    with pytest.raises(ColumnError, match="'rating'"):
        predict_lightgbm(DataConnector(rows), read)


def some_column(rng, n, kind):
    """Return a column of a kind: with gaps, from 0 or from 1, and often with unused categories."""
    size = int(rng.integers(2, 13))
    if kind == "float":
        return pd.Series(rng.normal(size=n))
    if kind == "number":
        return pd.Series(rng.integers(0, size, n) + rng.integers(0, 2))
    gaps = np.sort(rng.choice(60, size, replace=False))
    categories = [np.arange(size), np.arange(size) + 1, gaps][int(rng.integers(3))]
    # Without its top category, as a partition of a larger frame may be.
    used = categories[:-1] if rng.random() < 0.3 else categories
    values = rng.choice(used, n, p=rng.dirichlet(np.full(len(used), 3.0)))
    if kind == "shop":
        return pd.Series(values)
    kept = categories if rng.random() < 0.5 else np.unique(values)
    if "text" in kind:
        values, kept = [f"c{v:02}" for v in values], [f"c{v:02}" for v in kept]
    column = pd.Series(pd.Categorical(values, categories=kept, ordered="ordered" in kind))
    if rng.random() < 0.2:
        column[rng.random(n) < 0.1] = np.nan
    return column


KINDS = ["number", "shop", "category", "category of text", "ordered", "ordered text"]


def some_model(rng, kinds, names_some):
    n = int(rng.choice([40, 150, 600]))
    kinds = rng.permutation(["float", *kinds])
    frame = pd.DataFrame(
        {f"f{place}": some_column(rng, n, kind) for place, kind in enumerate(kinds)}
    )
    codes = np.column_stack([c.cat.codes if is_typed(c) else c for _, c in frame.items()])
    effects = rng.normal(size=(80, codes.shape[1]))
    target = rng.normal(size=n) * 0.1 + codes @ rng.normal(size=codes.shape[1])
    target += effects[codes.astype(int) % 80, np.arange(codes.shape[1])].sum(axis=1)
    shops = [f"f{place}" for place, kind in enumerate(kinds) if kind == "shop"]
    typed = [name for name in frame if is_typed(frame[name])]
    chosen = [*shops, *(name for name in typed if rng.random() < 0.5)]
    settings = {"categorical_feature": chosen} if names_some and chosen else {}
    return frame, trained(frame, target, **settings)


def outcome(frame, rows, model, read):
    try:
        found = predict_lightgbm(DataConnector(rows), read)
    except InputError:
        return "refused"
    return "right" if np.array_equal(found, model.predict(frame)) else "wrong"


def test_frames_of_any_kind_are_never_predicted_wrongly():
    whole, few, new = Counter(), Counter(), Counter()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        kinds = rng.choice(KINDS, rng.integers(2, 5))
        frame, (model, read) = some_model(rng, kinds, names_some=rng.random() < 0.7)
        whole[outcome(frame, as_read(frame), model, read)] += 1
        typed = pa.Table.from_pandas(frame, preserve_index=False)
        assert outcome(frame, typed, model, read) == "right"
        some = frame[: rng.integers(1, 20)]
        few[outcome(some, as_read(some), model, read)] += 1
        changed, rows = with_new_values(rng, frame)
        new[outcome(changed, rows, model, read)] += 1
    assert whole["wrong"] == few["wrong"] == new["wrong"] == 0
    # The rows of the training tell nearly always, and a few others or odd ones mostly.
    assert whole["refused"] <= 1
    assert few["refused"] + new["refused"] <= 30


def with_new_values(rng, frame):
    """Return a frame with other whole numbers here and there, and the same as a table."""
    changed, columns = frame.copy(), {}
    for name, column in frame.items():
        values = [None if pd.isna(value) else value for value in column]
        if isinstance(values[-1], int | np.integer):
            steps = np.where(rng.random(len(values)) < 0.15, rng.integers(-2, 4, len(values)), 0)
            values = [
                None if value is None else max(0, int(value) + int(step))
                for value, step in zip(values, steps, strict=True)
            ]
        columns[name] = pa.array(values)
        if is_typed(column):
            codes = column.cat.categories.get_indexer(pd.Index(values))
            values = pd.Categorical.from_codes(codes, dtype=column.dtype)
        changed[name] = values
    return changed, pa.table(columns)


def test_categories_beside_numbers_are_never_refused_on_their_own_rows():
    found = Counter()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kinds = ["category"] * rng.integers(1, 3) + ["number"] * rng.integers(1, 4)
        frame, (model, read) = some_model(rng, kinds, names_some=False)
        found[outcome(frame, as_read(frame), model, read)] += 1
    assert found == {"right": 40}


@pytest.mark.parametrize("spelling", ["0", "0,2", [0, 2], ("2",), "name:shop"])
def test_categorical_features_in_params_however_they_are_spelled(spelling, tmp_path):
    frame, target = rated_shops()
    if spelling == "name:shop":  # LightGBM takes the frame's categories then, and writes this
        frame["rating"] = frame["rating"].cat.as_unordered()
    data = lightgbm.Dataset(frame, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = lightgbm.train(PARAMS | {"categorical_feature": spelling}, data, 10)
    LightGBMSerde().write(model, str(tmp_path / "model.txt"))
    for booster in (model, LightGBMSerde().read(str(tmp_path / "model.txt"))):
        found = predict_lightgbm(DataConnector(as_read(frame)), booster)
        np.testing.assert_array_equal(found, model.predict(frame))
        LightGBMOnnxExporter().describe(booster, as_read(frame), None, ExportOptions())
