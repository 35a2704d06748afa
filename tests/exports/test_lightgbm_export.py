"""LightGBM models as ONNX give what LightGBM gives, on rows made to tell them apart."""

import json
import pickle
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, ExportRefusedError
from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.serdes.lightgbm import LightGBMSerde
from partwise.models.signature import METADATA_KEY, feeds_of_matrix, feeds_of_rows
from partwise.trainers.ready.lightgbm import LightGBMTrainer, predict_lightgbm
from tests.exports.split_values import split_values
from tests.lazily import Lazily

lightgbm, onnxruntime = Lazily("lightgbm"), Lazily("onnxruntime")

NAMES = ["price", "zone", "timestamp", "température", "stock"]
QUIET = {"verbosity": -1, "num_threads": 1, "seed": 1, "min_data_per_group": 5, "cat_smooth": 1}
LIMIT = 1e-12
ZERO = float(np.float32(1e-35))
EDGES = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-40, -1e-40, 1e-35, -1e-35, ZERO, -ZERO),
        *(np.nextafter(ZERO, 1), np.nextafter(-ZERO, -1), -1.0, -0.5, 0.5, 2.7, 99.0, 3e9, -3e9),
        *(1.7e9, 1e300, -1e300),
    ]
)
EXPORTER = LightGBMOnnxExporter()


def some_rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, len(NAMES)))
    matrix[:, 1] = rng.integers(0, 70, n)
    matrix[:, 2] = 1.7e9 + rng.normal(size=n)
    matrix[rng.random(n) < 0.2, 3] = np.nan
    matrix[rng.random(n) < 0.4, 4] = 0.0
    seconds, noise = matrix[:, 2] - 1.7e9, rng.normal(size=n) / 4
    target = matrix[:, 0] * 2 + matrix[:, 1] % 7 + seconds + np.nan_to_num(matrix[:, 3]) + noise
    return matrix, target + matrix[:, 4]


MATRIX, TARGET = some_rows()
TABLE = pa.table(dict(zip(NAMES, MATRIX.T, strict=True)))
TARGETS = {
    "poisson": np.abs(TARGET),
    "gamma": np.abs(TARGET) + 0.1,
    "tweedie": np.abs(TARGET),
    "binary": (TARGET > 3) * 1.0,
    "cross_entropy": 1 / (1 + np.exp(-TARGET)),
    "cross_entropy_lambda": 1 / (1 + np.exp(-TARGET)),
    "multiclass": np.digitize(TARGET, [1, 4]) * 1.0,
    "multiclassova": np.digitize(TARGET, [1, 4]) * 1.0,
    "lambdarank": np.clip(TARGET, 0, 4) // 1,
    "rank_xendcg": np.clip(TARGET, 0, 4) // 1,
}


def train(rounds=25, matrix=MATRIX, target=None, categorical=(1,), init_model=None, **params):
    objective = params.get("objective", "regression")
    is_ranking = objective in ("lambdarank", "rank_xendcg")
    if target is None:
        target = TARGET if callable(objective) else TARGETS.get(objective, TARGET)
    data = lightgbm.Dataset(
        matrix,
        target,
        feature_name=NAMES[: matrix.shape[1]],
        categorical_feature=[*categorical],
        group=[30] * (len(matrix) // 30) if is_ranking else None,
    )
    return lightgbm.train(QUIET | params, data, rounds, init_model=init_model)


def squared_error(true, predicted):
    return predicted - true, np.ones_like(predicted)


def estimator(kind, target=None, **params):
    if target is None:
        target = TARGETS["binary"].astype(int) if kind is lightgbm.LGBMClassifier else TARGET
    group = {"group": [30] * 20} if kind is lightgbm.LGBMRanker else {}
    settings = QUIET | {"n_estimators": 10, "n_jobs": 1} | params
    del settings["num_threads"]
    return kind(**settings).fit(pd.DataFrame(MATRIX, columns=NAMES), target, **group)


class Exported:
    """A model, its file, and a session of it."""

    def __init__(self, model, path, rows=TABLE, feeds=None, **options):
        given = ExportOptions(**options)
        self.model, self.path = model, Path(path)
        self.description = EXPORTER.describe(model, rows, feeds, given)
        self.signature = self.description.signature
        EXPORTER.write(model, self.description, {}, given, str(path))
        onnx.checker.check_model(str(path), full_check=True)
        one_thread = onnxruntime.SessionOptions()
        one_thread.intra_op_num_threads = one_thread.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.path.read_bytes(), one_thread)

    @property
    def splits(self):
        """The numbers at which each feature is split, and what stands for zero."""
        booster = getattr(self.model, "booster_", self.model)
        found = split_values(self.description.trees, booster.num_feature())
        for place in self.description.zeros_are_missing:
            found[place] = np.unique([*found[place], -ZERO, ZERO])
        return found

    def run(self, feeds):
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, dict(feeds)), strict=True))

    def adversarial(self, matrix=MATRIX, seed=0):
        """Rows on, below and above each threshold, and on every edge, one feature at a time."""
        rng = np.random.default_rng(seed)
        made = [matrix]
        for place, splits in enumerate(self.splits):
            with np.errstate(over="ignore"):
                beside = [np.nextafter(splits, np.inf), np.nextafter(splits, -np.inf)]
            values = np.concatenate([splits, *beside, EDGES])
            rows = matrix[rng.integers(0, len(matrix), len(values))].copy()
            rows[:, place] = values
            made.append(rows)
        return np.vstack(made)

    def check(self, matrix=None):
        """Compare with LightGBM itself; return what it predicts."""
        feeds = feeds_of_matrix(self.signature, self.adversarial() if matrix is None else matrix)
        expected = EXPORTER.predict(self.model, self.signature, feeds)
        found = self.run(feeds)
        assert [*found] == [*expected] == [tensor.name for tensor in self.signature.outputs]
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            assert found[name].shape == values.shape
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[name], values, rtol=1e-14, atol=LIMIT)
            else:
                np.testing.assert_array_equal(found[name], values)
        return self.signature.predictions(expected)


FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
LINEAR = {"linear_tree": True, "categorical": ()}
RIGHT = {
    "l2": {},
    "l1": {"objective": "regression_l1"},
    "quantile": {"objective": "quantile", "alpha": 0.8},
    "huber": {"objective": "huber"},
    "fair": {"objective": "fair"},
    "mape": {"objective": "mape"},
    "poisson": {"objective": "poisson"},
    "gamma": {"objective": "gamma"},
    "tweedie": {"objective": "tweedie"},
    "cross_entropy": {"objective": "cross_entropy"},
    "cross_entropy_lambda": {"objective": "cross_entropy_lambda"},
    "binary": {"objective": "binary"},
    "binary, sigmoid": {"objective": "binary", "sigmoid": 0.3, "is_unbalance": True},
    "multiclass": {"objective": "multiclass", "num_class": 3},
    "multiclassova": {"objective": "multiclassova", "num_class": 3, "sigmoid": 1.7},
    "lambdarank": {"objective": "lambdarank"},
    "rank_xendcg": {"objective": "rank_xendcg"},
    "dart": {"boosting": "dart", "drop_rate": 0.5},
    "goss": {"data_sample_strategy": "goss"},
    "rf": FOREST,
    "rf, binary": FOREST | {"objective": "binary"},
    "reg_sqrt": {"reg_sqrt": True},
    "reg_sqrt, l1": {"objective": "regression_l1", "reg_sqrt": True},
    "reg_sqrt, huber": {"objective": "huber", "reg_sqrt": True},
    "reg_sqrt, fair": {"objective": "fair", "reg_sqrt": True},
    "reg_sqrt, quantile": {"objective": "quantile", "reg_sqrt": True},
    "reg_sqrt, mape": {"objective": "mape", "reg_sqrt": True},
    "zero_as_missing": {"zero_as_missing": True},
    "no missing values": {"use_missing": False},
    "numbers only": {"categorical": ()},
    "zero_as_missing, numbers only": {"zero_as_missing": True, "categorical": ()},
    "one-hot categories": {"max_cat_to_onehot": 100},
    "one leaf": {"min_gain_to_split": 1e9},
    "two leaves": {"num_leaves": 2},
    "extra trees": {"extra_trees": True, "path_smooth": 1.0},
    "linear_tree": LINEAR,
    "linear_tree, categories": {"linear_tree": True},
    "linear_tree, rf": LINEAR | FOREST,
    "linear_tree, dart": LINEAR | {"boosting": "dart", "drop_rate": 0.5},
    "linear_tree, binary": LINEAR | {"objective": "binary"},
    "linear_tree, multiclass": LINEAR | {"objective": "multiclass", "num_class": 3},
    "linear_tree, poisson": LINEAR | {"objective": "poisson"},
    "linear_tree, one leaf": LINEAR | {"min_gain_to_split": 1e9},
    "stored pred_early_stop": {"objective": "binary", "pred_early_stop": True},
    "stored num_iteration_predict": {"num_iteration_predict": 3},
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_objective_and_mode_is_right_on_adversarial_rows(name, tmp_path):
    model = train(**RIGHT[name])
    exported = Exported(model, tmp_path / "model.onnx")
    predictions = exported.check()
    assert exported.description.is_constant == name.endswith("one leaf")
    # Linear leaves make infinite numbers of infinite ones.
    assert (np.ptp(predictions[np.isfinite(predictions)]) > 0) != name.endswith("one leaf")
    # What LightGBM itself predicts is the signature's prediction.
    outputs = exported.run(feeds_of_matrix(exported.signature, MATRIX))
    found = exported.signature.predictions(outputs)
    np.testing.assert_allclose(found, model.predict(MATRIX), rtol=1e-14, atol=LIMIT)


def test_float64_timestamps_and_rows_on_thresholds_are_exact(tmp_path):
    model = train(200, num_leaves=63, min_data_in_leaf=3)
    exported = Exported(model, tmp_path / "model.onnx")
    splits = exported.splits[2]
    assert len(splits) > 100
    assert (splits != splits.astype(np.float32)).mean() > 0.9  # single would move nearly all
    feeds = {"features": exported.adversarial()}
    native = EXPORTER.predict(model, exported.signature, feeds)["prediction"]
    assert np.abs(exported.run(feeds)["prediction"] - native).max() <= LIMIT


@pytest.mark.parametrize("seen", ["NaN", "no NaN", "inf"])
def test_missing_and_infinite_values_that_training_saw_or_not(seen, tmp_path):
    matrix = MATRIX.copy() if seen == "NaN" else np.nan_to_num(MATRIX)
    if seen == "inf":
        matrix[::9, 0], matrix[::11, 0] = np.inf, -np.inf
    Exported(train(matrix=matrix), tmp_path / "model.onnx").check()


@pytest.mark.parametrize("threshold", [3e-36, -3e-36, 0.0, -ZERO, ZERO])
def test_thresholds_among_numbers_that_are_zero_to_lightgbm(threshold, tmp_path):
    text = train(3, categorical=()).model_to_string()
    lines = [line for line in text.splitlines() if not line.startswith("tree_sizes=")]
    places = [place for place, line in enumerate(lines) if line.startswith("threshold=")]
    for place in places:
        lines[place] = "threshold=" + " ".join([repr(threshold)] * len(lines[place].split()))
    model = lightgbm.Booster(model_str="\n".join(lines))
    exported = Exported(model, tmp_path / "model.onnx")
    # All that LightGBM takes for zero stays on one side.
    moved = ZERO if threshold >= 0 else np.nextafter(-ZERO, -1)
    assert {*np.concatenate(exported.splits)} == {moved}
    assert np.ptp(exported.check()) > 0


def test_a_model_without_trees_and_one_of_a_constant(tmp_path):
    data = lightgbm.Dataset(MATRIX, TARGETS["binary"], feature_name=NAMES, params=QUIET)
    empty = lightgbm.Booster(QUIET | {"objective": "binary"}, data)
    exported = Exported(empty, tmp_path / "model.onnx")
    assert exported.description.is_constant
    np.testing.assert_array_equal(exported.check(), 0.5)
    exported = Exported(train(target=np.full(600, 3.25)), tmp_path / "model.onnx")
    assert exported.description.is_constant
    np.testing.assert_array_equal(exported.check(), 3.25)


def test_trees_of_one_leaf_among_others(tmp_path):
    model = train(4, objective="multiclass", num_class=4)  # there are no rows of class 3
    leaves = {tree["num_leaves"] for tree in model.dump_model()["tree_info"]}
    assert min(leaves) == 1
    assert max(leaves) > 1
    exported = Exported(model, tmp_path / "model.onnx")
    assert not exported.description.is_constant
    exported.check()


def test_the_trees_of_the_best_iteration_are_exported(tmp_path):
    data = lightgbm.Dataset(MATRIX[:300], TARGET[:300], feature_name=NAMES, params=QUIET)
    held_out = data.create_valid(MATRIX[300:], TARGET[300:])
    settings = {"valid_sets": [held_out], "keep_training_booster": True}
    stop = [lightgbm.early_stopping(60, verbose=False)]
    params = QUIET | {"learning_rate": 0.5}
    model = lightgbm.train(params, data, 300, callbacks=stop, **settings)
    assert 0 < model.best_iteration < model.current_iteration()
    Exported(model, tmp_path / "model.onnx").check()


def test_a_thousand_leaves_and_two_thousand_trees(tmp_path):
    matrix, target = some_rows(4000)
    wide = train(2, matrix, target, num_leaves=1500, min_data_in_leaf=1)
    assert max(tree["num_leaves"] for tree in wide.dump_model()["tree_info"]) > 1000
    Exported(wide, tmp_path / "model.onnx").check()
    exported = Exported(train(2000, num_leaves=4), tmp_path / "model.onnx")
    exported.check(MATRIX)


def test_one_row_many_rows_and_none(tmp_path):
    for params in ({}, {"objective": "binary"}, {"objective": "multiclass", "num_class": 3}):
        exported = Exported(train(**params), tmp_path / "model.onnx")
        rows = exported.adversarial()[::40]
        together = exported.run({"features": rows})
        for place in range(len(rows)):
            alone = exported.run({"features": rows[place : place + 1]})
            for name, values in alone.items():
                in_batch = together[name][place : place + 1]
                np.testing.assert_allclose(values, in_batch, rtol=1e-15, atol=1e-16)
        exported.check(MATRIX[:0])


def test_linear_leaves_have_the_same_bits_and_fall_back_where_a_feature_is_missing(tmp_path):
    model = train(60, linear_tree=True, num_leaves=15)
    exported = Exported(model, tmp_path / "model.onnx")
    linear = exported.description.model_trees.linear
    assert linear.feature_counts.max() > 2
    rng = np.random.default_rng(0)
    for odd in (np.nan, 0.0, 1e-36, 1e300, np.inf):
        rows = MATRIX.copy()
        rows[rng.random(rows.shape) < 0.2] = odd
        found = exported.run({"features": rows})["prediction"]
        np.testing.assert_array_equal(found, model.predict(rows))
    # Without the fallback, the rows with NaN would have no number at all.
    rows = np.where(rng.random(MATRIX.shape) < 0.5, np.nan, MATRIX)
    assert np.isfinite(exported.run({"features": rows})["prediction"]).all()


@pytest.mark.parametrize("objective", ["binary", "multiclass", "multiclassova"])
def test_labels_where_linear_leaves_give_no_number(objective, tmp_path):
    codes = TARGETS[objective].astype(int)
    params = {"objective": objective, "linear_tree": True}
    model = estimator(lightgbm.LGBMClassifier, np.array([7, -2, 40])[codes], **params)
    exported = Exported(model, tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    odd = np.where(rng.random(MATRIX.shape) < 0.5, np.inf, -np.inf)
    rows = np.where(rng.random(MATRIX.shape) < 0.4, odd, MATRIX)
    assert np.isnan(model.booster_.predict(rows)).any()
    exported.check(rows)


def test_a_model_of_plain_trees_that_was_continued_with_linear_ones(tmp_path):
    matrix = MATRIX[:, :4]
    plain = {"matrix": matrix, "categorical": ()}
    model = train(5, **plain, linear_tree=True, init_model=train(5, **plain))
    exported = Exported(model, tmp_path / "model.onnx", TABLE.select(NAMES[:4]))
    assert {"is_linear=0", "is_linear=1"} < set(model.model_to_string().splitlines())
    exported.check(matrix)


def test_categories_with_large_codes_are_read_by_their_few_words(tmp_path):
    matrix = MATRIX.copy()
    matrix[:, 1] = matrix[:, 1] * 2_999 + 31
    model = train(matrix=matrix)
    exported = Exported(model, tmp_path / "model.onnx")
    assert max(members.max() for members in exported.description.trees.sets) > 150_000
    step = np.array([0, 1, 0, 0, 0])
    beside = np.concatenate([matrix, matrix + step, matrix - step])
    assert np.ptp(exported.check(beside)) > 0


def of_a_subclass():
    class OwnRegressor(lightgbm.LGBMRegressor):
        """May predict otherwise."""

    return estimator(OwnRegressor)


def with_unknown_objective():
    booster = train(2)
    text = booster.model_to_string().replace("objective=regression", "objective=regression_new")
    booster.model_to_string = lambda: text
    return booster


def trained_on(first, then):
    matrix = MATRIX[:, :4]
    return train(5, matrix, init_model=train(5, matrix, **first), **then)


REFUSED = {
    "unknown objective": (with_unknown_objective, "objective 'regression_new' .* is not known"),
    "zeros missing in some trees only": (
        lambda: trained_on({}, {"zero_as_missing": True}),
        "takes zeros of the feature 'température' for missing",
    ),
    "a number in some trees, a category in others": (
        lambda: trained_on({"categorical": ()}, {}),
        "splits the feature 'zone' as a number",
    ),
    "pred_early_stop of an estimator": (
        lambda: estimator(lightgbm.LGBMClassifier, pred_early_stop=True),
        "has pred_early_stop",
    ),
    "a classifier with an objective of the user's": (
        lambda: estimator(lightgbm.LGBMClassifier, objective=squared_error),
        "LGBMClassifier has the objective 'of a function'",
    ),
    "a subclass": (of_a_subclass, "OwnRegressor is not exported"),
    "not fitted": (lambda: lightgbm.LGBMRegressor(), "LGBMRegressor is not fitted"),
    "class labels of floats": (
        lambda: estimator(lightgbm.LGBMClassifier, target=TARGETS["binary"]),
        "class labels .* are float64",
    ),
    "one class": (
        lambda: estimator(lightgbm.LGBMClassifier, target=np.ones(600, dtype=int)),
        "trained on 1 classes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_come_out_wrong_is_refused_by_name(name):
    make, message = REFUSED[name]
    model = make()
    with pytest.raises(ExportRefusedError, match=message):
        EXPORTER.describe(model, TABLE, None, ExportOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float16"}, "not exported in float16: its thresholds would move"),
        ({"precision": "int8"}, "not exported in int8: its thresholds would move"),
        ({"optimization": "basic"}, "optimization='basic' is for PyTorch modules"),
        ({"opset": 12}, "opset 12: pass one of 13 to 23"),
        ({"opset": 24}, "opset 24: pass one of 13 to 23"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    model = train(2)
    with pytest.raises(ExportRefusedError, match=message):
        EXPORTER.describe(model, TABLE, None, ExportOptions(**options))


@pytest.mark.parametrize("opset", [None, 13, 18, 23])
def test_the_file_has_the_opset_that_was_asked_for(opset, tmp_path):
    model = train(5, objective="multiclass", num_class=3, zero_as_missing=True)
    exported = Exported(model, tmp_path / "model.onnx", opset=opset)
    exported.check()
    imports = {entry.domain: entry.version for entry in onnx.load(exported.path).opset_import}
    assert imports == {"": opset or 21, "ai.onnx.ml": 5}
    assert exported.description.opset == (opset or 21)


@pytest.mark.parametrize("labels", [[0, 1], [3, 9], [7, -2, 40], ["no", "yes"], ["b", "ü", "a"]])
def test_classifiers_give_their_own_labels(labels, tmp_path):
    codes = TARGETS["binary" if len(labels) == 2 else "multiclass"].astype(int)
    model = estimator(lightgbm.LGBMClassifier, np.array(labels)[codes])
    model = pickle.loads(pickle.dumps(model))
    exported = Exported(model, tmp_path / "model.onnx")
    assert set(exported.check()) == set(labels)
    assert exported.signature.prediction == "label"
    assert exported.signature.class_labels == tuple(sorted(labels))
    exported.check(MATRIX[:0])


@pytest.mark.parametrize("kind", ["LGBMRegressor", "LGBMRanker"])
def test_regressors_and_rankers(kind, tmp_path):
    target = TARGETS["lambdarank"].astype(int) if kind == "LGBMRanker" else TARGET
    exported = Exported(estimator(getattr(lightgbm, kind), target), tmp_path / "model.onnx")
    assert np.ptp(exported.check()) > 0
    assert exported.signature.model_type == f"lightgbm.sklearn.{kind}"


def test_an_objective_of_the_users_gives_scores_as_lightgbm_does(tmp_path):
    def own(predicted, data):
        return squared_error(data.get_label(), predicted)

    exported = Exported(train(objective=own), tmp_path / "model.onnx")
    assert np.ptp(exported.check()) > 0
    model = estimator(lightgbm.LGBMRegressor, objective=squared_error)
    assert np.ptp(Exported(model, tmp_path / "model.onnx").check()) > 0


FRAME = pa.table(
    {
        "unit price": MATRIX[:, 0],
        "zone [é]": [
            ["nörd", "süd", "", "east side", None][int(zone) % 5] for zone in MATRIX[:, 1]
        ],
        "shelf": MATRIX[:, 1].astype(int) % 4 + 10,
        "label": TARGETS["binary"],
    }
)
UNSEEN = pa.table(
    {"shelf": [10, 99, None], "zone [é]": ["west", None, "süd"], "unit price": [0.5, None, 1.0]}
)


@pytest.mark.parametrize("layout", ["tensor", "columns"])
def test_columns_and_categories_are_taken_by_name(layout, tmp_path):
    trainer = LightGBMTrainer(
        label="label",
        rounds=20,
        categorical=("zone [é]", "shelf"),
        params={"objective": "binary", "min_data_per_group": 5, "cat_smooth": 1},
    )
    trained = trainer(DataConnector(FRAME), PartitionContext()).model
    LightGBMSerde().write(trained, str(tmp_path / "model.txt"))
    model = LightGBMSerde().read(str(tmp_path / "model.txt"))
    exported = Exported(model, tmp_path / "model.onnx", FRAME, input_layout=layout)
    for rows in (FRAME, UNSEEN, FRAME.slice(0, 1)):
        outputs = exported.run(feeds_of_rows(exported.signature, rows))
        native = predict_lightgbm(DataConnector(rows), model)
        found = exported.signature.predictions(outputs)
        np.testing.assert_allclose(found, native, rtol=0, atol=LIMIT)
    inputs = {value.name: value.type for value in exported.session.get_inputs()}
    if layout == "tensor":
        assert inputs == {"features": "tensor(double)"}
    else:
        number, text = "tensor(double)", "tensor(string)"
        assert inputs == {"unit price": number, "zone [é]": text, "shelf": number}
        feeds = {"unit price": [[1.0]], "zone [é]": [["nörd"]], "shelf": [[2.0]]}
        feeds = {name: np.array(value, dtype=object) for name, value in feeds.items()}
        feeds |= {name: feeds[name].astype(float) for name in ("unit price", "shelf")}
        (found,) = exported.session.run(["probabilities"], feeds)
        np.testing.assert_allclose(found[:, 1], model.predict(np.array([[1.0, 2.0, 2.0]])))
    codes = np.column_stack([MATRIX[:, 0], MATRIX[:, 1] % 6 - 1, MATRIX[:, 1] % 5])
    assert np.ptp(exported.check(codes)) > 0
    assert set() < set(exported.splits[1]) <= set(range(4))


@pytest.mark.parametrize("layout", ["tensor", "columns"])
def test_a_frame_of_pandas_with_categories(layout, tmp_path):
    zones, shelves = (FRAME[name].to_numpy(zero_copy_only=False) for name in ("zone [é]", "shelf"))
    frame = pd.DataFrame(
        {
            "shelf": pd.Categorical(shelves),
            "unit price": MATRIX[:, 0],
            "zone é": pd.Categorical(zones),
        }
    )
    model = lightgbm.LGBMClassifier(n_estimators=20, n_jobs=1, min_data_per_group=5, verbosity=-1)
    model.fit(frame, np.array(["low", "high"])[TARGETS["binary"].astype(int)])
    rows = pa.table({"unit price": MATRIX[:, 0], "zone é": zones, "shelf": shelves})
    exported = Exported(model, tmp_path / "model.onnx", rows, input_layout=layout)
    found = exported.run(feeds_of_rows(exported.signature, rows))
    np.testing.assert_array_equal(found["label"], model.predict(frame))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(frame), atol=LIMIT)
    categories = {feature.name: feature.categories for feature in exported.signature.features}
    known = ("", "east side", "nörd", "süd")
    assert categories == {"shelf": (10, 11, 12, 13), "unit price": None, "zone é": known}


def test_a_column_named_like_an_output_is_refused_as_an_input_of_its_own(tmp_path):
    def trained(names):
        data = lightgbm.Dataset(MATRIX[:, :2], TARGET, feature_name=names)
        return lightgbm.train(QUIET, data, 3), pa.table({name: [1.0] for name in names})

    model, rows = trained(["prediction", "constant"])
    with pytest.raises(ExportRefusedError, match=r"'prediction' cannot be the name of an input"):
        EXPORTER.describe(model, rows, None, ExportOptions(input_layout="columns"))
    Exported(model, tmp_path / "model.onnx", rows).check(MATRIX[:, :2])
    model, rows = trained(["scores", "constant"])
    Exported(model, tmp_path / "model.onnx", rows, input_layout="columns").check(MATRIX[:, :2])


def test_missing_columns_are_named():
    model = train(2)
    with pytest.raises(ColumnError, match=r"lacks features of the model: 'stock'"):
        EXPORTER.describe(model, TABLE.drop_columns("stock"), None, ExportOptions())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_of_the_users_own(dtype, tmp_path):
    feeds = {"x": MATRIX.astype(dtype)}
    model = lightgbm.train(QUIET, lightgbm.Dataset(feeds["x"], TARGET), 10)
    exported = Exported(model, tmp_path / "model.onnx", pa.table({"raw": [1]}), feeds)
    assert exported.signature.layout == "custom"
    native = EXPORTER.predict(model, exported.signature, feeds)["prediction"]
    np.testing.assert_array_equal(exported.run(feeds)["prediction"], native)
    np.testing.assert_array_equal(native, model.predict(feeds["x"]))
    with pytest.raises(ExportRefusedError, match=r"5 features takes one input .* \(600, 4\)"):
        EXPORTER.describe(model, TABLE, {"x": MATRIX[:, 1:]}, ExportOptions())


def test_the_metadata_say_what_the_file_takes_and_gives(tmp_path):
    exported = Exported(train(3, objective="binary"), tmp_path / "model.onnx")
    model = onnx.load(exported.path)
    (entry,) = model.metadata_props
    assert entry.key == METADATA_KEY
    assert entry.value == exported.signature.to_json()
    said = json.loads(entry.value)
    assert [feature["name"] for feature in said["features"]] == NAMES
    assert [output["dtype"] for output in said["outputs"]] == ["int64", "float64"]
    assert (said["prediction"], said["prediction_column"]) == ("probabilities", 1)
    assert said["class_labels"] == [0, 1]
    assert said["model_type"] == "lightgbm.basic.Booster"


def test_equal_models_give_equal_bytes(tmp_path):
    model = train(zero_as_missing=True, objective="multiclass", num_class=3)
    copy = lightgbm.Booster(model_str=model.model_to_string())
    for name, given_model in (("1", model), ("2", model), ("3", copy)):
        Exported(given_model, tmp_path / name)
    first = (tmp_path / "1").read_bytes()
    assert first == (tmp_path / "2").read_bytes() == (tmp_path / "3").read_bytes()


@settings(max_examples=25)
@given(
    params=st.fixed_dictionaries(
        {
            "num_leaves": st.integers(2, 50),
            "max_bin": st.sampled_from([3, 15, 255]),
            "min_data_in_leaf": st.sampled_from([1, 20]),
            "zero_as_missing": st.booleans(),
            "use_missing": st.booleans(),
            "max_cat_to_onehot": st.sampled_from([1, 100]),
            "boosting": st.sampled_from(["gbdt", "dart"]),
            "objective": st.sampled_from(["regression", "huber", "binary", "gamma"]),
            "extra_trees": st.booleans(),
        }
    ),
    categorical=st.sets(st.just(1)),
    zeros=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_models_of_any_settings(tmp_path_factory, params, categorical, zeros, seed):
    rng = np.random.default_rng(seed)
    matrix = MATRIX.copy()
    matrix[rng.random(matrix.shape) < zeros / 2] = 0.0
    matrix[rng.random(matrix.shape) < zeros / 4] = np.nan
    model = train(8, matrix, categorical=categorical, **params)
    exported = Exported(model, tmp_path_factory.mktemp("any") / "model.onnx")
    exported.check(exported.adversarial(matrix, seed))


def test_stations_of_real_bike_trips(bike_trips, tmp_path):
    columns = ["start_station", "start_date", "subscription_type", "end_station", "duration"]
    trips = pq.read_table(bike_trips, columns=columns)
    trainer = LightGBMTrainer(
        label="duration", categorical=("subscription_type", "end_station"), rounds=50, holdout=None
    )
    stations = sorted(pc.unique(trips["start_station"]).to_pylist())
    for station in stations[::25]:
        rows = trips.filter(pc.equal(trips["start_station"], station)).drop_columns("start_station")
        seconds = pc.divide(rows["start_date"].cast(pa.int64()).cast(pa.float64()), 1e6)
        rows = rows.drop_columns("start_date").append_column("seconds", seconds)
        model = trainer(DataConnector(rows), PartitionContext()).model
        exported = Exported(model, tmp_path / "model.onnx", rows)
        found = exported.run(feeds_of_rows(exported.signature, rows))["prediction"]
        native = predict_lightgbm(DataConnector(rows), model)
        assert np.ptp(native) > 0
        np.testing.assert_allclose(found, native, rtol=LIMIT, atol=LIMIT)
