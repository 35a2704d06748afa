import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, ExportRefusedError
from partwise.exports.protocol import ModelDescription
from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.exports.trees.xgboost_trees import read_trees
from partwise.models.export_options import ExportOptions
from partwise.models.serdes.xgboost import XGBoostSerde
from partwise.models.signature import METADATA_KEY, feeds_of_matrix, feeds_of_rows
from partwise.trainers import XGBoostTrainer, default_predict
from tests.exports.split_values import split_values
from tests.lazily import Lazily

onnxruntime, xgboost = Lazily("onnxruntime"), Lazily("xgboost")

EXPORTER = XGBoostOnnxExporter()
RNG = np.random.default_rng(0)
# Names that XGBoost gives by itself in another order, and what it or others do not take.
NAMES = ["f3", "price [€]", "größe", "f0"]
FEATURES = RNG.normal(size=(300, 4)).astype(np.float32)
FEATURES[::17, 1] = np.nan
SUM = FEATURES[:, 0] * 3 + np.nan_to_num(FEATURES[:, 1]) ** 2 + RNG.normal(size=300) * 0.3
POSITIVE = np.exp(SUM / 4)
COUNTS = RNG.poisson(POSITIVE)
BINARY = (np.median(SUM) < SUM).astype(int)
THREE = np.digitize(SUM, [-1, 2])
FRAME = pd.DataFrame(FEATURES, columns=["f3", "price", "größe", "f0"])
ONES = np.ones(300)
EPSILON = np.finfo(np.float32).eps


def booster(objective, labels, rounds=8, kinds=None, **params):
    names = [name.replace("[", "%5B").replace("]", "%5D") for name in NAMES]
    rows = xgboost.DMatrix(FEATURES, labels, feature_names=names, feature_types=kinds, nthread=1)
    return xgboost.train({"nthread": 1, "objective": objective, **params}, rows, rounds)


def wrapper(kind, labels, frame=FRAME, **settings):
    return kind(n_jobs=1, **{"n_estimators": 8, "max_depth": 4, **settings}).fit(frame, labels)


def early(kind, labels, **settings):
    settings = {"early_stopping_rounds": 2, "n_estimators": 60, "learning_rate": 0.9, **settings}
    model = kind(n_jobs=1, max_depth=4, **settings)
    train, held_out = FRAME[:200], (FRAME[200:], labels[200:])
    model.fit(train, labels[:200], eval_set=[held_out], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    return model


def early_booster():
    rows = xgboost.DMatrix(FRAME[:200], SUM[:200], nthread=1)
    held_out = xgboost.DMatrix(FRAME[200:], SUM[200:], nthread=1)
    model = xgboost.train(
        {"nthread": 1, "eta": 0.9},
        rows,
        60,
        evals=[(held_out, "holdout")],
        early_stopping_rounds=2,
        verbose_eval=False,
    )
    assert model.best_iteration + 1 < model.num_boosted_rounds()
    return model


def with_categories(levels, as_text=True, **params):
    """A Booster of our trainer, whose last feature has so many categories, and its table."""
    codes = RNG.permutation(np.arange(300) % levels)
    labels = SUM + (codes * 7 % 5) * 2
    categories = [f"größe {code:02}" if as_text else code * 3 - 5 for code in range(levels)]
    column = [None if place % 13 == 0 else categories[code] for place, code in enumerate(codes)]
    columns = {name: FEATURES[:, place] for place, name in enumerate(NAMES)}
    table = pa.table({**columns, "kind": column, "label": labels})
    trainer = XGBoostTrainer(
        label="label",
        features=(*NAMES, "kind"),
        categorical=("kind",),
        holdout=None,
        rounds=8,
        params=params,
    )
    return trainer(DataConnector(table), PartitionContext()).model, table


@dataclass
class Exported:
    model: Any
    description: ModelDescription
    session: "onnxruntime.InferenceSession"
    path: str

    def run(self, feeds):
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, feeds), strict=True))

    def predictions(self, feeds):
        return self.description.signature.predictions(self.run(feeds))


def table_of(features=FEATURES):
    names = [*NAMES, *FRAME.columns]
    return pa.table({name: features[:, place % 4] for place, name in enumerate(names)})


def export(model, tmp_path, table=None, feeds=None, **options):
    """Export what the serde reads of a model, as the engine does."""
    serde = XGBoostSerde()
    path = str(tmp_path / serde.filename)
    serde.write(model, path)
    model = serde.read(path)
    settings = ExportOptions(**options)
    table = table_of() if table is None else table
    description = EXPORTER.describe(model, table, feeds, settings)
    path = str(tmp_path / "model.onnx")
    EXPORTER.write(model, description, feeds or {}, settings, path)
    onnx.checker.check_model(path, full_check=True)
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, threads, providers=["CPUExecutionProvider"])
    return Exported(model, description, session, path)


def splits_of(model):
    trees = read_trees(model)
    return split_values(trees.ensemble, trees.n_features)


def adversarial(splits):
    """Rows on each threshold and one ulp beside it, and with what else is unusual."""
    n_features = len(splits)
    base = np.zeros((40, n_features), np.float32)
    base[:, :4] = np.nan_to_num(FEATURES[:40])
    rows = [base]
    unusual = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, -1, 2.5, 1.7e9, 40, -0.5]
    for feature, thresholds in enumerate(splits):
        assert (np.diff(thresholds) > 0).all()
        on = thresholds.astype(np.float32)
        assert (on == thresholds).all()
        above, below = np.nextafter(on, np.float32(np.inf)), np.nextafter(on, np.float32(-np.inf))
        for values in (on, above, below, np.array(unusual, np.float32)):
            block = base[np.arange(len(values)) % 40].copy()
            block[:, feature] = values
            rows.append(block)
    return np.concatenate(rows)


def assert_right(exported):
    """Compare an export with its model on adversarial rows, on one, and on none."""
    description = exported.description
    matrix = adversarial(splits_of(exported.model))
    for rows in (matrix, matrix[7:8], matrix[:0]):
        feeds = feeds_of_matrix(description.signature, rows)
        expected = EXPORTER.predict(exported.model, description.signature, feeds)
        found = exported.run(feeds)
        assert list(found) == [tensor.name for tensor in description.signature.outputs]
        for tensor in description.signature.outputs:
            assert found[tensor.name].dtype == expected[tensor.name].dtype == tensor.dtype
            assert found[tensor.name].shape == expected[tensor.name].shape
            assert found[tensor.name].shape == (len(rows), *tensor.shape[1:])
            np.testing.assert_allclose(
                found[tensor.name],
                expected[tensor.name],
                atol=description.tolerance.atol,
                rtol=description.tolerance.rtol,
                err_msg=tensor.name,
            )
        if len(rows) > 1:
            predicted = description.signature.predictions(expected)
            assert description.is_constant == (len(np.unique(predicted, axis=0)) == 1)


def native(model, table):
    """What inference gives with the model itself."""
    return default_predict(DataConnector(table), model, PartitionContext())


def ranker(objective, labels=THREE):
    model = xgboost.XGBRanker(n_jobs=1, n_estimators=5, objective=objective)
    return model.fit(FRAME, labels, qid=np.arange(300) // 10)


def survival():
    rows = xgboost.DMatrix(FRAME, nthread=1)
    rows.set_float_info("label_lower_bound", POSITIVE)
    rows.set_float_info("label_upper_bound", np.where(BINARY, POSITIVE, np.inf))
    return xgboost.train({"nthread": 1, "objective": "survival:aft"}, rows, 8)


def multi_output():
    return wrapper(xgboost.XGBRegressor, TWO, multi_strategy="multi_output_tree")


def custom():
    def squares(predictions, rows):
        return 3 * (predictions - rows.get_label()), np.full(len(predictions), 3.0)

    rows = xgboost.DMatrix(FRAME, SUM, nthread=1)
    return xgboost.train({"nthread": 1}, rows, 8, obj=squares)


def continued():
    rows = xgboost.DMatrix(FRAME, SUM, nthread=1)
    first = xgboost.train({"nthread": 1}, rows, 5)
    return xgboost.train({"nthread": 1, "eta": 0.1}, rows, 5, xgb_model=first)


TWO = np.column_stack([SUM, -SUM * 2 + FEATURES[:, 2]])
ROUNDED = FRAME.round()
DART = {"booster": "dart", "rate_drop": 0.3, "skip_drop": 0.2}

RIGHT = {
    "squarederror": lambda: booster("reg:squarederror", SUM * 100),
    "absoluteerror": lambda: booster("reg:absoluteerror", SUM * 100),
    "quantileerror": lambda: booster("reg:quantileerror", SUM * 100, quantile_alpha=0.3),
    "pseudohubererror": lambda: booster("reg:pseudohubererror", SUM),
    "squaredlogerror": lambda: booster("reg:squaredlogerror", POSITIVE),
    "poisson": lambda: booster("count:poisson", COUNTS),
    "gamma": lambda: booster("reg:gamma", POSITIVE),
    "tweedie": lambda: booster("reg:tweedie", COUNTS, tweedie_variance_power=1.3),
    "binary": lambda: booster("binary:logistic", BINARY),
    "binary, imbalanced": lambda: booster("binary:logistic", SUM > 5),
    "binary, base_score": lambda: booster("binary:logistic", BINARY, base_score=0.1),
    "binary, stump": lambda: booster("binary:logistic", BINARY, 1, max_depth=1),
    "binary, forests": lambda: booster("binary:logistic", BINARY, num_parallel_tree=3),
    "hinge": lambda: booster("binary:hinge", BINARY),
    "hinge, base_score": lambda: booster("binary:hinge", BINARY, base_score=0.9),
    "softprob": lambda: booster("multi:softprob", THREE, num_class=3),
    "softprob, base_score": lambda: booster(
        "multi:softprob", THREE, num_class=3, base_score=[0.1, 2, -1]
    ),
    "softprob, absent class": lambda: booster("multi:softprob", THREE, num_class=5),
    "softprob, forests": lambda: booster(
        "multi:softprob", THREE, num_class=3, num_parallel_tree=2, subsample=0.5
    ),
    "integer types": lambda: booster("reg:squarederror", SUM, kinds=["int", "q", "i", "float"]),
    "pruned": lambda: booster("reg:squarederror", SUM, tree_method="exact", gamma=9),
    "early stopping, Booster": early_booster,
    "early stopping": lambda: early(xgboost.XGBRegressor, SUM),
    "early stopping, forests": lambda: early(
        xgboost.XGBRegressor, SUM, num_parallel_tree=2, subsample=0.5
    ),
    "early stopping, classes": lambda: early(xgboost.XGBClassifier, THREE),
    "XGBRegressor": lambda: wrapper(xgboost.XGBRegressor, SUM),
    "XGBRegressor, binary": lambda: wrapper(
        xgboost.XGBRegressor, BINARY, objective="binary:logistic"
    ),
    "XGBClassifier": lambda: wrapper(xgboost.XGBClassifier, BINARY),
    "XGBClassifier, hinge": lambda: wrapper(
        xgboost.XGBClassifier, BINARY, objective="binary:hinge"
    ),
    "XGBClassifier, classes": lambda: wrapper(xgboost.XGBClassifier, THREE),
    "logistic": lambda: booster("reg:logistic", np.clip(SUM / 8 + 0.5, 0, 1)),
    "logitraw": lambda: booster("binary:logitraw", BINARY),
    "softmax": lambda: booster("multi:softmax", THREE, num_class=3),
    "softmax of two": lambda: booster("multi:softmax", BINARY, num_class=2),
    "softprob of two": lambda: booster("multi:softprob", BINARY, num_class=2),
    "softprob, vectors": lambda: booster(
        "multi:softprob", THREE, num_class=3, multi_strategy="multi_output_tree"
    ),
    "pairwise": lambda: ranker("rank:pairwise"),
    "ndcg": lambda: ranker("rank:ndcg").get_booster(),
    "map": lambda: ranker("rank:map", labels=BINARY),
    "cox": lambda: booster("survival:cox", POSITIVE),
    "aft": lambda: survival(),
    "two targets": lambda: booster("reg:squarederror", TWO),
    "two targets, vectors": lambda: multi_output(),
    "two targets, forests": lambda: booster(
        "reg:absoluteerror", TWO, num_parallel_tree=2, subsample=0.5
    ),
    "two targets, binary": lambda: booster("binary:logistic", TWO > 0),
    "two quantiles": lambda: booster("reg:quantileerror", SUM, quantile_alpha=[0.1, 0.9]),
    "dart": lambda: booster("reg:squarederror", SUM, 20, **DART),
    "dart, far from zero": lambda: booster("reg:squarederror", SUM + 1000, 20, **DART),
    "dart, wrapper": lambda: wrapper(xgboost.XGBRegressor, SUM, **DART),
    "dart, wrapper, far from zero": lambda: wrapper(xgboost.XGBRegressor, SUM + 1000, **DART),
    "dart, classes": lambda: wrapper(xgboost.XGBClassifier, THREE, **DART),
    "dart, softmax": lambda: booster("multi:softmax", THREE, num_class=3, **DART),
    "dart, early stopping": lambda: early(xgboost.XGBRegressor, SUM, **DART),
    "custom objective": lambda: custom(),
    "slice": lambda: booster("reg:squarederror", SUM, 20)[3:15:2],
    "continued": lambda: continued(),
    "missing 0": lambda: wrapper(xgboost.XGBRegressor, SUM, ROUNDED, missing=0.0),
    "missing -1": lambda: wrapper(xgboost.XGBClassifier, BINARY, ROUNDED, missing=-1.0),
    "missing inf": lambda: wrapper(xgboost.XGBRegressor, SUM, missing=np.inf),
    "missing inf, dart": lambda: wrapper(xgboost.XGBRegressor, SUM, missing=np.inf, **DART),
    "missing, dart": lambda: wrapper(xgboost.XGBRegressor, SUM, ROUNDED, missing=1.0, **DART),
    "XGBClassifier, softmax": lambda: wrapper(
        xgboost.XGBClassifier, THREE, objective="multi:softmax"
    ),
    "XGBRFRegressor": lambda: wrapper(xgboost.XGBRFRegressor, SUM),
    "XGBRFClassifier": lambda: wrapper(xgboost.XGBRFClassifier, BINARY),
    "XGBRFClassifier, classes": lambda: wrapper(xgboost.XGBRFClassifier, THREE),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right(case, tmp_path, capfd):
    exported = export(RIGHT[case](), tmp_path)
    assert_right(exported)

    signature = exported.description.signature
    expected = native(exported.model, table_of())
    feeds = feeds_of_rows(signature, table_of())
    own = signature.predictions(EXPORTER.predict(exported.model, signature, feeds))
    np.testing.assert_array_equal(own, expected)
    assert exported.predictions(feeds).shape == expected.shape
    assert capfd.readouterr().err == ""  # onnxruntime warns there of shapes


def test_sums_of_leaves_may_not_differ(tmp_path):
    for case in ("squarederror", "early stopping, forests", "dart, far from zero", "softmax"):
        tolerance = export(RIGHT[case](), tmp_path).description.tolerance
        assert tolerance.atol <= 1e-37
        assert tolerance.rtol == (8 * EPSILON if case == "softmax" else 0)


def test_small_rates_are_told_from_zero_leaves(tmp_path):
    rates = RNG.poisson(np.exp(SUM / 2 - 9)) + RNG.random(300) * 1e-5
    exported = export(booster("count:poisson", rates, base_score=1e-5), tmp_path)
    tolerance = exported.description.tolerance
    assert tolerance.atol < 1e-37
    assert tolerance.rtol < 1e-6
    assert_right(exported)


def test_labels_far_from_zero(tmp_path):
    exported = export(booster("reg:squarederror", SUM + 1000, 200), tmp_path)
    assert_right(exported)


def test_timestamps_in_double(tmp_path):
    seconds = 1.7e9 + np.arange(300) * 40
    table = table_of().append_column("time", pa.array(seconds)).append_column("y", pa.array(SUM))
    trainer = XGBoostTrainer(label="y", features=("time", "f0"), holdout=None, rounds=20)
    model = trainer(DataConnector(table), PartitionContext()).model
    exported = export(model, tmp_path, table)
    feeds = feeds_of_rows(exported.description.signature, table)
    np.testing.assert_array_equal(exported.predictions(feeds), native(model, table))


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        ("reg:squarederror", 42.0),
        ("reg:squarederror", 0.0),
        ("reg:absoluteerror", 3.0),
        ("count:poisson", 0.0),
        ("reg:gamma", 7.0),
        ("binary:logistic", 0.0),
        ("binary:logistic", 1.0),
        ("binary:hinge", 1.0),
    ],
)
def test_constants(objective, label, tmp_path):
    exported = export(booster(objective, ONES * label, 3), tmp_path)
    assert exported.description.is_constant
    assert_right(exported)


def test_a_binary_model_without_splits(tmp_path):
    model = booster("binary:logistic", BINARY, base_score=BINARY.mean(), gamma=1e9)
    assert model.get_dump()[0] in ("0:leaf=0\n", "0:leaf=-0\n")
    assert_right(export(model, tmp_path))


@pytest.mark.parametrize("base_score", [0.02, 0.5])
def test_a_binary_model_of_positive_leaves(base_score, tmp_path):
    # onnxruntime's own label is that of margins above 0.5.
    labels = (RNG.random(300) < 0.97).astype(int)
    model = booster("binary:logistic", labels, 2, base_score=base_score, max_depth=2, eta=0.1)
    assert_right(export(model, tmp_path))


@pytest.mark.parametrize("levels", [1, 3, 8, 25, 70])
@pytest.mark.parametrize("max_cat_to_onehot", [1, 1000])
def test_categories(levels, max_cat_to_onehot, tmp_path):
    model, table = with_categories(levels, max_cat_to_onehot=max_cat_to_onehot)
    exported = export(model, tmp_path, table)
    assert_right(exported)

    codes = splits_of(model)[4]
    assert len(codes) > 0 or levels < 3
    assert set(codes) <= set(range(levels))
    feature = exported.description.signature.features[4]
    assert feature.name == "kind"
    assert feature.categories == tuple(f"größe {code:02}" for code in range(levels))
    unseen = table.set_column(4, "kind", pa.array(["neu"] * 150 + ["größe 00"] * 150))
    for rows in (table, unseen):
        found = exported.predictions(feeds_of_rows(exported.description.signature, rows))
        atol = exported.description.tolerance.atol
        np.testing.assert_allclose(found, native(model, rows), atol=atol)


@pytest.mark.parametrize("as_text", [True, False])
def test_columns(as_text, tmp_path):
    model, table = with_categories(25, as_text)
    exported = export(model, tmp_path, table, input_layout="columns")
    signature = exported.description.signature
    found = [(i.name, i.type, i.shape) for i in exported.session.get_inputs()]
    kind = "tensor(string)" if as_text else "tensor(float)"
    assert found == [
        *((name, "tensor(float)", ["rows", 1]) for name in NAMES),
        ("kind", kind, ["rows", 1]),
    ]
    assert_right(exported)

    value = "neu" if as_text else 999
    first = table.column("kind").to_pylist()
    unseen = table.set_column(4, "kind", pa.array([value] * 9 + first[9:]))
    feeds = feeds_of_rows(signature, unseen)
    assert list(feeds) == [*NAMES, "kind"]
    expected = native(model, unseen)
    np.testing.assert_allclose(
        exported.predictions(feeds), expected, atol=exported.description.tolerance.atol
    )


def two_categorical_features(levels, **params):
    codes = RNG.integers(0, levels, size=(2, 10 * levels)).astype(np.int32)
    texts = pa.array([f"k{code}" for code in range(levels)])
    columns = [pa.DictionaryArray.from_arrays(pa.array(column), texts) for column in codes]
    rows = xgboost.DMatrix(
        pa.table(columns, ["a", "b"]),
        RNG.normal(size=levels)[codes].sum(axis=0),
        enable_categorical=True,
        nthread=1,
    )
    model = xgboost.train({"nthread": 1, "max_depth": 6, **params}, rows, 2)
    return model, pa.table({"a": pa.array(["k0"]), "b": ["k1"]}), codes.T


def test_sets_of_many_categories_below_one_another(tmp_path):
    model, table, codes = two_categorical_features(100)
    exported = export(model, tmp_path, table)
    feeds = feeds_of_matrix(exported.description.signature, codes.astype(np.float32))
    expected = EXPORTER.predict(exported.model, exported.description.signature, feeds)
    atol = exported.description.tolerance.atol
    np.testing.assert_allclose(exported.predictions(feeds), expected["prediction"], atol=atol)
    assert len(np.unique(expected["prediction"])) > 50


def test_a_set_of_thousands_of_categories(tmp_path):
    # A chain of nodes, one for each category, ended onnxruntime's stack.
    model, table, codes = two_categorical_features(2200, max_cat_threshold=2200)
    exported = export(model, tmp_path, table)
    assert max(len(members) for members in exported.description.trees.sets) > 500
    feeds = feeds_of_matrix(exported.description.signature, codes.astype(np.float32))
    expected = EXPORTER.predict(exported.model, exported.description.signature, feeds)
    np.testing.assert_array_equal(exported.predictions(feeds), expected["prediction"])


def test_names_within_the_graph_are_no_column(tmp_path):
    names = ["features", "_matrix", "__first", "variable"]
    rows = xgboost.DMatrix(FEATURES, SUM, feature_names=names, nthread=1)
    model = xgboost.train({"nthread": 1}, rows, 3)
    table = pa.table({name: FEATURES[:, place] for place, name in enumerate(names)})
    assert_right(export(model, tmp_path, table, input_layout="columns"))


def test_columns_of_a_frame_with_categories(tmp_path):
    frame = FRAME.assign(size=pd.Categorical(RNG.integers(5, 9, 300)))
    labels = SUM + frame["size"].cat.codes
    model = wrapper(xgboost.XGBRegressor, labels, frame, enable_categorical=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    exported = export(model, tmp_path, table)
    assert exported.description.signature.features[4].categories == (5, 6, 7, 8)
    assert_right(exported)
    found = exported.predictions(feeds_of_rows(exported.description.signature, table))
    atol = exported.description.tolerance.atol
    np.testing.assert_allclose(found, model.predict(frame), atol=atol)


def test_a_slice_that_lost_its_categories(tmp_path):
    frame = FRAME.assign(size=pd.Categorical(RNG.integers(5, 9, 300)))
    matrix = xgboost.DMatrix(frame, SUM + frame["size"].cat.codes, enable_categorical=True)
    model = xgboost.train({"nthread": 1}, matrix, 8)
    table = pa.Table.from_pandas(frame.astype({"size": int}), preserve_index=False)
    assert_right(export(model, tmp_path, table))
    # What no tree splits by them is missing in the export, and in the model.
    noise = xgboost.DMatrix(frame, SUM, enable_categorical=True)
    unused = xgboost.train({"nthread": 1, "interaction_constraints": [["f3"]]}, noise, 8)[:5]
    text = pa.Table.from_pandas(frame.astype({"size": str}), preserve_index=False)
    for inputs in ("tensor", "columns"):
        exported = export(unused, tmp_path, text, input_layout=inputs)
        found = exported.predictions(feeds_of_rows(exported.description.signature, text))
        np.testing.assert_array_equal(found, unused.predict(noise))
        np.testing.assert_array_equal(found, native(unused, text))
    with pytest.raises(
        ExportRefusedError, match=r"splits 'size' by categories that it does not have"
    ):
        export(model[:5], tmp_path, table)


def test_a_matrix_that_the_user_makes(tmp_path):
    model = xgboost.XGBRegressor(n_estimators=3, n_jobs=1).fit(FEATURES, SUM)
    feeds = {"x": FEATURES}
    exported = export(model, tmp_path, feeds=feeds)
    assert exported.description.signature.layout == "custom"
    atol = exported.description.tolerance.atol
    np.testing.assert_allclose(exported.predictions(feeds), model.predict(FEATURES), atol=atol)
    with pytest.raises(
        ExportRefusedError, match=r"one input of float32 and shape \(n, 4\).*float64 \(300, 4\)"
    ):
        EXPORTER.describe(model, table_of(), {"x": FEATURES.astype(float)}, ExportOptions())


@pytest.mark.parametrize("opset", [13, 17, 18, 23])
@pytest.mark.parametrize("case", ["poisson", "hinge", "softprob", "missing 0"])
def test_opsets(case, opset, tmp_path):
    exported = export(RIGHT[case](), tmp_path, opset=opset)
    versions = {o.domain: o.version for o in onnx.load(exported.path).opset_import}
    assert versions[""] == exported.description.opset == opset
    assert_right(exported)


def test_the_file_says_what_it_is(tmp_path):
    exported = export(RIGHT["binary"](), tmp_path)
    signature = exported.description.signature
    (entry,) = onnx.load(exported.path).metadata_props
    assert entry.key == METADATA_KEY
    assert entry.value == signature.to_json()
    told = json.loads(entry.value)
    assert [feature["name"] for feature in told["features"]] == NAMES
    assert told["inputs"] == [{"name": "features", "dtype": "float32", "shape": [None, 4]}]
    assert [tensor["name"] for tensor in told["outputs"]] == ["label", "probabilities"]
    assert (told["prediction"], told["prediction_column"]) == ("probabilities", 1)
    assert told["class_labels"] == [0, 1]
    assert told["model_type"] == "xgboost.core.Booster"
    assert exported.description.opset == 21


@pytest.mark.parametrize("layout", ["tensor", "columns"])
def test_equal_models_give_equal_bytes(layout, tmp_path):
    model, table = with_categories(8)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        export(model, folder, table, input_layout=layout)
    assert (first / "model.onnx").read_bytes() == (second / "model.onnx").read_bytes()


def test_the_model_stays_as_it_was(tmp_path):
    model = RIGHT["integer types"]()
    before = model.save_raw("json")
    description = EXPORTER.describe(model, table_of(), None, ExportOptions())
    EXPORTER.write(model, description, {}, ExportOptions(), str(tmp_path / "model.onnx"))
    assert model.save_raw("json") == before


def linear_early():
    rows = xgboost.DMatrix(FRAME.fillna(0), SUM, nthread=1)
    params = {"nthread": 1, "booster": "gblinear"}
    return xgboost.train(
        params, rows, 9, evals=[(rows, "rows")], early_stopping_rounds=2, verbose_eval=False
    )


REFUSED = {
    "dart, slice without an end": (
        lambda: booster("reg:squarederror", SUM, booster="dart")[3:],
        r"have lost their weights.*give the end, such as booster\[4:12\]",
    ),
    "two labels": (
        lambda: wrapper(xgboost.XGBClassifier, (TWO > 0).astype(int)),
        r"predicts 2 labels side by side.*return its get_booster\(\)",
    ),
    "XGBClassifier, softprob of two": (
        lambda: wrapper(xgboost.XGBClassifier, BINARY, objective="multi:softprob", num_class=2),
        r"predicts 2 labels side by side.*train it with binary:logistic",
    ),
    "gblinear, early stopping": (
        lambda: linear_early(),
        r'booster is "gblinear"',
    ),
    "gblinear": (
        lambda: booster("reg:squarederror", SUM, booster="gblinear"),
        r'booster is "gblinear"',
    ),
    "XGBClassifier of numbers": (
        lambda: wrapper(xgboost.XGBClassifier, BINARY, objective="reg:squarederror"),
        r"XGBClassifier has the objective reg:squarederror",
    ),
    "no names": (
        lambda: xgboost.train({"nthread": 1}, xgboost.DMatrix(FEATURES, SUM), 2),
        r"4 features of this XGBoost model have no names.*export features=, which names",
    ),
    "NaN": (lambda: booster("reg:tweedie", ONES * 0, 2), r"not finite numbers"),
    "small leaves": (
        lambda: booster("reg:squarederror", SUM + 1e6, 50),
        r"so small beside its base of 1000001 .*label less its mean",
    ),
    "no trees": (lambda: booster("reg:squarederror", SUM, 0), r"has no trees"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, tmp_path):
    make, match = REFUSED[case]
    with pytest.raises(ExportRefusedError, match=match):
        export(make(), tmp_path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"precision": "float16"}, "not exported in float16: its thresholds would move"),
        ({"precision": "int8"}, "not exported in int8: its thresholds would move"),
        ({"optimization": "all"}, "optimization='all' is for PyTorch modules"),
        ({"opset": 12}, r"opset 12: pass one of 13 to 23"),
        ({"opset": 24}, r"opset 24: pass one of 13 to 23, or none for 21"),
    ],
)
def test_options_that_are_refused(options, match, tmp_path):
    with pytest.raises(ExportRefusedError, match=match):
        export(RIGHT["squarederror"](), tmp_path, **options)


def test_names_that_inputs_cannot_have(tmp_path):
    frame = FRAME.rename(columns={"f0": "label"})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    model = wrapper(xgboost.XGBClassifier, BINARY, frame)
    assert_right(export(model, tmp_path, table))
    with pytest.raises(ExportRefusedError, match=r"'label' cannot be the name of an input"):
        export(model, tmp_path, table, input_layout="columns")


def test_columns_that_are_missing_are_named(tmp_path):
    with pytest.raises(ColumnError, match=r"lacks features of the model: 'f3'"):
        export(RIGHT["squarederror"](), tmp_path, table_of().drop_columns(["f3"]))
