"""A model's width follows the classes of the run, whichever its partition has."""

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    Best,
    DataConnector,
    LightGBMTrainer,
    Linear,
    Mean,
    RandomForest,
    Skip,
    Tuned,
    XGBoostTrainer,
    default_predict,
)
from partwise.connector.context import PartitionContext
from partwise.connector.trained_rows import with_class
from partwise.engine.works import TrainWork
from partwise.errors import ColumnError, InputError
from partwise.tables.classes import (
    class_places,
    classes_among,
    predicted_classes,
    with_classes,
)

KINDS = {
    "text": (pa.string(), ("c", "a", "b")),
    "large text": (pa.large_string(), ("c", "a", "b")),
    "coded text": (pa.dictionary(pa.int8(), pa.string()), ("c", "a", "b")),
    "integers": (pa.int16(), (9, 3, 7)),
    "doubles": (pa.float64(), (9, 3, 7)),
    "decimals": (pa.decimal64(9, 1), (9, 3, 7)),
    # As doubles, two of the three would be one.
    "beyond doubles": (pa.int64(), (2**53, 2**53 + 1, -(2**63))),
    "beyond int64": (pa.uint64(), (2**64 - 1, 3, 2**64 - 2)),
    "decimals beyond doubles": (pa.decimal128(38, 2), (2**53, 2**53 + 1, 3)),
    "named as text": (pa.int64(), ("9", "3", "7")),
}
TRAINERS = {
    "mean": lambda task, **more: Mean(predicts=task, **more),
    "forest": lambda task, **more: RandomForest(
        predicts=task, params={"n_estimators": 3}, features=["x"], **more
    ),
    "linear": lambda task, **more: Linear(predicts=task, features=["x"], **more),
    "lightgbm": lambda task, **more: LightGBMTrainer(
        params={"objective": task}, rounds=3, features=["x"], **more
    ),
    "xgboost": lambda task, **more: XGBoostTrainer(
        params={"objective": {"binary": "binary:logistic"}.get(task, "multi:softprob")},
        rounds=3,
        features=["x"],
        **more,
    ),
    "best": lambda task, **more: Best([Mean(predicts=task), TRAINERS["forest"](task)], **more),
    "tuned": lambda task, **more: Tuned(
        TRAINERS["forest"](task), settings=[{"max_depth": 2}], trials=2, **more
    ),
}


def table_of(places, kind="text", n=60):
    arrow, classes = KINDS[kind]
    values = [int(each) if pa.types.is_integer(arrow) else each for each in classes]
    labels = [None if i % 10 == 9 else values[places[i % len(places)]] for i in range(n)]
    plain = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    column = pa.array(labels, plain)
    if plain is not arrow:
        column = column.dictionary_encode()
    return pa.table({"x": np.arange(n, dtype=float) % 7, "y": column})


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("places", [[0], [2], [0, 1], [1, 2], [0, 1, 2]], ids=str)
def test_every_model_predicts_all_classes(name, places, tmp_path):
    trainer = TRAINERS[name]("multiclass", label="y", classes=KINDS["text"][1])
    table = table_of(places)
    trainer.check(table.schema, key_columns=())
    result = trainer(DataConnector(table), PartitionContext(seed=1))
    for n_rows in (60, 1, 0):
        rows = DataConnector(table.slice(0, n_rows))
        found = np.asarray(default_predict(rows, result.model, PartitionContext()))
        assert found.shape == (n_rows, 3)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
        if len(places) == 1 and n_rows:
            assert (found.argmax(axis=1) == places[0]).all()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", TRAINERS)
def test_a_model_of_one_of_two_classes_always_gives_it(name, place):
    classes = KINDS["text"][1][:2]
    trainer = TRAINERS[name]("binary", label="y", classes=classes)
    result = trainer(DataConnector(table_of([place])), PartitionContext(seed=1))
    asked = DataConnector(pa.table({"x": [-9.0, 3.0, 99.0]}))
    found = default_predict(asked, result.model, PartitionContext())
    np.testing.assert_allclose(np.asarray(found), float(place), atol=1e-5)


EXTREMES = {
    "inf": [np.inf, -np.inf],
    "1e300": [1e300, -1e300],
    "2^53+1": pa.array([2**53 + 1, 2**53], pa.int64()),
    "missing": pa.nulls(2, pa.float64()),
}


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("column", EXTREMES)
@pytest.mark.parametrize("n", [1, 2, 60])
def test_extreme_features_leave_the_width(name, column, n):
    values = pa.chunked_array([EXTREMES[column]] * (n // 2 + 1)).slice(0, n)
    table = table_of([0, 2], n=n).set_column(0, "x", values)
    trainer = TRAINERS[name]("multiclass", label="y", classes=KINDS["text"][1])
    result = trainer(DataConnector(table), PartitionContext(seed=1))
    if isinstance(result, Skip):
        assert n < 10
        return
    for rows in (table, table_of([1], n=3), table.slice(0, 0)):
        found = default_predict(DataConnector(rows), result.model, PartitionContext())
        assert found.shape == (rows.num_rows, 3)
        assert np.isfinite(found).all()
        assert found[:, 1].max(initial=0) < 0.35


@pytest.mark.parametrize("name", ["mean", "forest", "lightgbm", "xgboost"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_of_any_type_is_trained_on_as_its_places_are(name, kind):
    classes = KINDS[kind][1]
    table = table_of([0, 1, 2], kind)
    places = class_places("y", table["y"], classes)
    assert places[:6].tolist() == [0, 1, 2, 0, 1, 2]
    counted = table.set_column(1, "y", pa.array(places, from_pandas=True))
    found = []
    for rows, named in ((table, classes), (counted, (0, 1, 2))):
        trainer = TRAINERS[name]("multiclass", label="y", classes=named)
        trainer.check(rows.schema, key_columns=())
        result = trainer(DataConnector(rows), PartitionContext(seed=1))
        predictions = default_predict(DataConnector(rows), result.model, PartitionContext())
        found.append((predictions, result.metrics))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("name", ["mean", "forest", "lightgbm", "xgboost", "best", "tuned"])
@pytest.mark.parametrize("only", [False, True, None])
def test_booleans_are_two_classes(name, only):
    labels = [i % 2 == 0 if only is None else only for i in range(40)]
    table = pa.table({"x": np.arange(40.0) % 2, "y": labels})
    trainer = TRAINERS[name]("binary", label="y", classes=(False, True))
    result = trainer(DataConnector(table), PartitionContext(seed=1))
    found = np.asarray(default_predict(DataConnector(table), result.model, PartitionContext()))
    assert found.shape == (40,)
    if only is not None:
        assert (found > 0.5).all() == only


def test_the_classes_are_kept_beside_the_model(tmp_path):
    trainer = TRAINERS["mean"]("multiclass", label="y", classes=KINDS["text"][1])
    data = DataConnector(table_of([1], "coded text"))
    made = TrainWork(function=trainer, serde=None)(data, PartitionContext(), None, str(tmp_path))
    (content,) = made.files.values()
    with pa.ipc.open_stream(content) as reader:
        label, classes = classes_among(reader.read_all())
    assert (label, classes.to_pylist()) == ("y", ["c", "a", "b"])


def test_the_most_probable_class_stands_beside_probabilities():
    two, three = pa.array(["no", "yes"]), pa.array([9, 3, 7])
    assert predicted_classes(np.array([0.2, 0.9, np.nan]), two).to_pylist() == ["no", "yes", None]
    several = np.array([[0.1, 0.8, 0.1], [0.5, 0.5, 0], [np.nan, 1, 0]])
    rows = with_class(several, with_classes(None, "y", three))
    assert rows.column_names == [*(f"prediction_{i}" for i in range(3)), "predicted_class"]
    assert rows["predicted_class"].to_pylist() == [3, 9, None]
    assert with_class(several, with_classes(None, "y", two)) is several
    assert with_class(several, None) is several


@pytest.mark.parametrize(
    ("task", "settings", "kind", "message"),
    [
        ("multiclass", {}, pa.int64(), r"needs to know them all.*classes=\[0, 1, 2\]"),
        ("binary", {}, pa.string(), r"name all of its classes.*classes=\['no', 'yes'\]"),
        ("binary", {"classes": ["a", "b", "c"]}, pa.string(), "two classes are needed.*names 3"),
        ("multiclass", {"classes": ["a"]}, pa.string(), "at least two classes"),
        ("multiclass", {"classes": ["a", "a"]}, pa.string(), "are the same"),
        ("multiclass", {"classes": ["a", "b"]}, pa.int64(), "'a' is not a value of that type"),
        ("multiclass", {"classes": [1, 2]}, pa.string(), "1 is not a value of that type"),
        ("multiclass", {"classes": [1, 2]}, pa.bool_(), "1 is not a value of that type"),
        ("multiclass", {"classes": [1, 2]}, pa.date32(), "classes are text, booleans or whole"),
        ("regression", {"classes": [1, 2]}, pa.int64(), "predicts a number"),
        ("regression", {}, pa.string(), "but numbers are needed.*decimal comma"),
    ],
)
def test_classes_that_do_not_fit_are_refused_before_any_work(task, settings, kind, message):
    schema = pa.schema({"x": pa.float64(), "y": kind})
    with pytest.raises(InputError, match=message):
        TRAINERS["mean"](task, label="y", **settings).check(schema)


@pytest.mark.parametrize("wrong", ["d", "C", ""])
def test_a_value_that_is_no_class_fails_its_partition(wrong):
    with pytest.raises(ColumnError, match=f"has the class {wrong!r}, which is none of"):
        class_places("y", pa.chunked_array([["a", None], [wrong]]), ("a", "b"))
    # Text of polars is views, from which Arrow takes no rows.
    views = pa.array(["a", wrong], pa.string_view())
    with pytest.raises(ColumnError, match=f"has the class {wrong!r}, which is none of"):
        class_places("y", pa.chunked_array([views]), ("a", "b"))
    with pytest.raises(ColumnError, match=r"has the class 1.5"):
        class_places("y", pa.chunked_array([[1.0, None, np.nan, 1.5]]), (1, 2))


@pytest.mark.parametrize(
    "given",
    [np.array([0, 1, 2]), [np.int8(0), np.uint64(1), np.float32(2)], [0.0, 1.0, 2.0]],
    ids=["array", "numpy", "floats"],
)
def test_classes_are_values_of_python_whatever_has_them(given):
    classes = Mean(classes=given, predicts="multiclass", label="y").classes
    assert classes == (0, 1, 2)
    assert {type(each) for each in classes} == {int}


def test_what_is_no_list_of_classes_is_refused():
    for wrong in ([0.5, 1], ["a", None], "ab", [b"a", b"b"]):
        with pytest.raises(ValueError, match="classes"):
            Mean(classes=wrong)
    with pytest.raises(ValueError, match="classes have an order"):
        Mean(classes={"a", "b"})
    with pytest.raises(ColumnError, match="no 64-bit type in common"):
        class_places("y", pa.chunked_array([[1]]), (-1, 2**63))


def test_other_classes_than_those_of_all_are_refused():
    with pytest.raises(ValueError, match="names the classes"):
        Best([Mean(predicts="binary", classes=("a", "b"))], classes=("b", "a"))
    with pytest.raises(ValueError, match="num_class is 4, and classes names 3"):
        LightGBMTrainer(classes=(1, 2, 3), params={"objective": "multiclass", "num_class": 4})
