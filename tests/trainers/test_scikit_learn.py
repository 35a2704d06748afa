"""Linear beside scikit-learn's own scaler and models."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest

from partwise import DataConnector, Linear, RandomForest
from partwise.connector.context import PartitionContext
from partwise.errors import InputError
from partwise.models.model_kinds import plain_model
from partwise.models.serdes.plain import PlainSerde
from tests.lazily import Lazily

linear_model, preprocessing = Lazily("sklearn.linear_model"), Lazily("sklearn.preprocessing")

BASES = (0, 10**9, 10**12, 10**14, 10**15, 2**53, -(2**60))


def rows_at(base, seed=0, count=200):
    """Rows of whole numbers near a large one, and of small ones."""
    random = np.random.default_rng(seed)
    numbers = base + random.integers(0, 9, count)
    other = random.normal(size=count) * 1e-9
    label = (numbers - base) + other * 1e9 + random.normal(size=count) * 0.01
    constant = np.full(count, 0.1)
    return pa.table({"id": numbers, "x": other, "constant": constant, "y": label})


def scaled(model):
    return Lazily("sklearn.pipeline").make_pipeline(preprocessing.StandardScaler(), model)


def matrix_of(table):
    return np.column_stack([table[name].to_numpy() for name in ("id", "x", "constant")]) * 1.0


@pytest.mark.parametrize("base", BASES)
def test_a_regression_predicts_as_a_pipeline_of_scikit_learn_does(base):
    table = rows_at(base)
    model = Linear(label="y", holdout=None)(DataConnector(table), PartitionContext()).model
    known = scaled(linear_model.Ridge()).fit(matrix_of(table), table["y"].to_numpy())
    fresh = rows_at(base, seed=1)
    np.testing.assert_allclose(
        model.predict(fresh), known.predict(matrix_of(fresh)), rtol=1e-13, atol=1e-13
    )
    assert model.centres.tolist() == known[0].mean_.tolist()
    assert model.scales.tolist() == known[0].scale_.tolist()


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("predicts", ["binary", "multiclass"])
def test_classes_are_predicted_as_a_pipeline_of_scikit_learn_does(base, predicts):
    table, fresh = rows_at(base), rows_at(base, seed=1)
    labels = np.clip(table["y"].to_numpy() // 3, 0, 1 if predicts == "binary" else 2).astype(int)
    table = table.set_column(3, "y", pa.array(labels))
    known_classes = () if predicts == "binary" else (0, 1, 2)
    trainer = Linear(label="y", predicts=predicts, classes=known_classes, holdout=None)
    found = trainer(DataConnector(table), PartitionContext()).model.predict(fresh)
    known = scaled(linear_model.LogisticRegression()).fit(matrix_of(table), labels)
    expected = known.predict_proba(matrix_of(fresh))
    np.testing.assert_allclose(
        found, expected[:, 1] if predicts == "binary" else expected, rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_columns_are_scaled_as_by_scikit_learn(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(10, 400))
    spread = 10.0 ** random.integers(-12, 12, 6)
    matrix = random.normal(size=(count, 6)) * spread + 10.0 ** random.integers(-9, 16, 6)
    names = list("abcdef")
    table = pa.table([*matrix.T, random.normal(size=count)], names=[*names, "y"])
    model = Linear(label="y", holdout=None)(DataConnector(table), PartitionContext()).model
    scaler = preprocessing.StandardScaler().fit(matrix)
    np.testing.assert_allclose(model.centres, scaler.mean_, rtol=1e-15)
    np.testing.assert_allclose(model.scales, scaler.scale_, rtol=1e-13)


def test_a_linear_model_of_before_is_read_and_predicts_as_it_did(tmp_path):
    table = rows_at(10)
    model = Linear(label="y", holdout=None)(DataConnector(table), PartitionContext()).model
    serde = PlainSerde()
    path = tmp_path / serde.filename
    serde.write(model, str(path))
    assert serde.read(str(path)).predict(table).tolist() == model.predict(table).tolist()
    written = json.loads(path.read_text())
    assert written["format_version"] == 2
    # As version 1 had it: the weights are of features as they are.
    old = {"format_version": 1, **{k: v for k, v in written.items() if k in OF_VERSION_1}}
    path.write_text(json.dumps(old))
    matrix = model.design.matrix(table)
    expected = matrix @ model.weights + model.intercepts
    assert serde.read(str(path)).predict(table).tolist() == expected[:, 0].tolist()
    assert plain_model({k: v for k, v in old.items() if k != "format_version"}) is not None


OF_VERSION_1 = ("kind", "design", "weights", "intercepts", "link")


def weighed(kind, weights, only=None, **settings):
    """Return the model of rows of rare classes, with weights, and what it predicts."""
    numbers = np.arange(120) % 7
    places = (numbers == 6).astype(int) if only is None else np.full(120, only)
    classes = {"text": ("no", "yes"), "booleans": (False, True), "whole": (7, 3)}[kind]
    table = pa.table({"x": np.sin(np.arange(120.0)), "y": [classes[place] for place in places]})
    params = {"class_weight": weights} if weights else {}
    trainer = settings.pop("made")(
        label="y", predicts="binary", classes=classes, params=params, holdout=None, **settings
    )
    trainer.check(table.schema)
    result = trainer(DataConnector(table), PartitionContext(seed=1))
    return result.model.predict(table)


@pytest.mark.parametrize("made", [Linear, RandomForest])
@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("text", {"yes": 9}),
        ("text", {"no": 1, "yes": 9.0}),
        ("booleans", {"true": 9}),
        ("whole", {"3": 9}),
    ],
)
def test_weights_are_of_classes_by_their_names(made, kind, weights):
    """A label is trained on as its place, of which keys of JSON, being text, are none."""
    found, plain = (weighed(kind, each, made=made) for each in (weights, {}))
    assert found.mean() > plain.mean() + 0.05
    np.testing.assert_array_equal(found, weighed("text", {"no": 1, "yes": 9}, made=made))
    assert (weighed(kind, weights, only=0, made=made) == 0).all()


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("text", {"Yes": 9}), ("text", {"1": 9}), ("booleans", {"yes": 1}), ("whole", {"1": 2})],
)
def test_a_weight_of_no_class_is_refused_before_any_work(kind, weights):
    with pytest.raises(InputError, match=r"class_weight names .*, which is none of the classes"):
        weighed(kind, weights, made=RandomForest)
    counted = Linear(label="y", predicts="binary", params={"class_weight": {"0": 1, "1": 9}})
    counted.check(pa.schema({"x": pa.float64(), "y": pa.int8()}))


@pytest.mark.parametrize("predicts", ["regression", "binary", "multiclass"])
def test_of_categories_that_are_all_missing_a_linear_model_predicts_the_mean(predicts):
    """It was an error of Ridge, "Found array with 0 feature(s)", in such a partition alone."""
    table = pa.table({"shop": pa.nulls(40, pa.string()), "y": [0, 1, 1, 1] * 10})
    classes = (0, 1, 2) if predicts == "multiclass" else ()
    settings = {"categorical": ("shop",), "predicts": predicts, "classes": classes}
    trained = Linear(label="y", holdout=None, **settings)(DataConnector(table), PartitionContext())
    with io.BytesIO() as file:
        PlainSerde().write_stream(trained.model, file)
        file.seek(0)
        kept = PlainSerde().read_stream(file)
    found = kept.predict(pa.table({"shop": [None, "a"]}))
    expected = [0.25, 0.75, 0] if predicts == "multiclass" else 0.75
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-3)
