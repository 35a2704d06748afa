"""Which metrics are better when larger: as libraries compute them while a model learns."""

import inspect
import re

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.evaluation import HoldoutFraction
from partwise.evaluation.scores import _FUNCTIONS, Predicted, find_metric
from partwise.trainers import LightGBMTrainer, XGBoostTrainer
from partwise.trainers.ready.boosting import is_larger_better
from partwise.trainers.ready.xgboost import maximizes
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
SIGNAL = X @ [1.0, 0.5, 0.2] + 2 * RNG.normal(size=600)
NUMBER, TWO, THREE = np.exp(SIGNAL / 4), SIGNAL > 0, np.digitize(SIGNAL, [-1, 1])
GROUPS = [20] * 30
OF_XGBOOST = [
    ("reg:squarederror", NUMBER, ["rmse", "rmsle", "mae", "mape", "mphe"]),
    ("reg:quantileerror", NUMBER, ["quantile"]),
    ("count:poisson", NUMBER, ["poisson-nloglik"]),
    ("reg:gamma", NUMBER, ["gamma-nloglik", "gamma-deviance"]),
    ("reg:tweedie", NUMBER, ["tweedie-nloglik@1.5"]),
    ("survival:cox", NUMBER, ["cox-nloglik"]),
    ("survival:aft", NUMBER, ["aft-nloglik", "interval-regression-accuracy"]),
    ("binary:logistic", TWO, ["logloss", "error", "error@0.6", "auc", "aucpr", "ams@0.15"]),
    ("multi:softprob", THREE, ["merror", "mlogloss", "auc", "aucpr"]),
    ("rank:ndcg", TWO, ["ndcg", "ndcg@3", "ndcg@3-", "map", "map@5", "map@5-", "pre@5"]),
]
OF_LIGHTGBM = [
    ("regression", NUMBER, ["l1", "l2", "rmse", "mape", "huber", "fair", "r2"]),
    ("quantile", NUMBER, ["quantile"]),
    ("poisson", NUMBER, ["poisson"]),
    ("gamma", NUMBER, ["gamma", "gamma_deviance"]),
    ("tweedie", NUMBER, ["tweedie"]),
    ("binary", TWO, ["binary_logloss", "binary_error", "auc", "average_precision"]),
    ("cross_entropy", TWO, ["cross_entropy", "cross_entropy_lambda", "kullback_leibler"]),
    ("multiclass", THREE, ["multi_logloss", "multi_error", "auc_mu"]),
    ("lambdarank", TWO, ["ndcg", "map"]),
]


def measured_by_xgboost(objective, labels, metrics) -> dict[str, list[float]]:
    rows = xgboost.DMatrix(X, labels)
    if objective.startswith("rank"):
        rows.set_group(GROUPS)
    if objective == "survival:aft":
        rows = xgboost.DMatrix(X)
        rows.set_float_info("label_lower_bound", labels * 0.8)
        rows.set_float_info("label_upper_bound", labels * 1.2)
    params = {"objective": objective, "eval_metric": metrics, "nthread": 1, "max_depth": 3}
    more = {"num_class": 3} if objective.startswith("multi") else {}
    more |= {"quantile_alpha": 0.5} if "quantile" in objective else {}
    found: dict[str, dict[str, list[float]]] = {}
    xgboost.train(
        params | more,
        rows,
        30,
        evals=[(rows, "rows")],
        evals_result=found,
        verbose_eval=False,
    )
    return found["rows"]


def measured_by_lightgbm(objective, labels, metrics) -> dict[str, list[float]]:
    params = {"objective": objective, "metric": metrics, "num_threads": 1, "verbosity": -1}
    params |= {"num_leaves": 8, "eval_at": [3, 5]} | (
        {"num_class": 3} if objective == "multiclass" else {}
    )
    groups = GROUPS if objective == "lambdarank" else None
    rows = lightgbm.Dataset(X, labels, group=groups, params={"verbosity": -1})
    found: dict[str, dict[str, list[float]]] = {}
    lightgbm.train(
        params,
        rows,
        30,
        valid_sets=[rows],
        valid_names=["rows"],
        callbacks=[lightgbm.record_evaluation(found)],
    )
    return found["rows"]


@pytest.mark.parametrize(
    ("measure", "cases"),
    [(measured_by_xgboost, OF_XGBOOST), (measured_by_lightgbm, OF_LIGHTGBM)],
    ids=["xgboost", "lightgbm"],
)
def test_a_metric_goes_up_as_a_model_learns_where_larger_is_better(measure, cases) -> None:
    for objective, labels, metrics in cases:
        found = measure(objective, labels, metrics)
        assert len(found) >= len(metrics)
        for name, values in found.items():
            assert values[-1] != values[0], name
            assert is_larger_better(name) == (values[-1] > values[0]), name


def rounds_kept(trainer, params, labels) -> int:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": labels})
    fields = {"params": params, "rounds": 60, "early_stopping_rounds": 5}
    result = trainer(label="y", holdout=HoldoutFraction(), **fields)(
        DataConnector(table), PartitionContext(seed=1)
    )
    return int(result.metrics["rounds"])


def test_a_trainer_stops_early_where_a_metric_gets_worse_that_a_library_takes_for_better() -> None:
    # Of the same rows, the squared errors and what they leave of the variance go together.
    kept = [rounds_kept(LightGBMTrainer, {"metric": name}, NUMBER) for name in ("l2", "r2")]
    assert kept[0] == kept[1] > 1
    of_classes = {"objective": "binary:logistic", "eval_metric": ["auc", "ams@0.3"]}
    assert rounds_kept(XGBoostTrainer, of_classes, TWO.astype(float)) > 1


def test_a_trainer_stops_early_as_the_parameters_of_lightgbm_say() -> None:
    both = {"metric": ["l2", "mape"], "learning_rate": 0.3}
    alone = rounds_kept(LightGBMTrainer, {**both, "metric": "l2"}, NUMBER)
    assert rounds_kept(LightGBMTrainer, {**both, "first_metric_only": True}, NUMBER) == alone
    assert rounds_kept(LightGBMTrainer, both, NUMBER) < alone
    assert rounds_kept(LightGBMTrainer, {"early_stopping_min_delta": 1e9}, NUMBER) == 1


def test_who_stops_early_by_ams_says_so_to_xgboost() -> None:
    assert maximizes({}) is None
    assert maximizes({"eval_metric": []}) is None
    assert maximizes({"eval_metric": "ams@0.15"}) is True
    assert maximizes({"eval_metric": ["auc", "logloss"]}) is False


def test_what_the_libraries_take_for_better_when_larger_is_known_as_that() -> None:
    of_xgboost = inspect.getsource(xgboost.callback.EarlyStopping)
    (listed,) = re.findall(r"maximize_metrics = \(([^)]+)\)", of_xgboost)
    names = re.findall(r'"([^"]+)"', listed)
    (listed,) = re.findall(
        r"higher_better_inner_eval = \[\s+name\.startswith\(\(([^)]+)\)",
        inspect.getsource(lightgbm.basic),
    )
    names += re.findall(r'"([^"]+)"', listed)
    assert {"auc", "ndcg@", "average_precision"} <= set(names)
    for name in names:
        assert is_larger_better(f"{name}3" if name.endswith("@") else name), name


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_of_our_own_metrics_the_truth_is_no_worse_than_anything(name) -> None:
    classes = np.array([0.0, 1.0, 1.0, 0.0])
    # Mape has no value where a label is 0.
    more = 0.0 if name in ("logloss", "accuracy", "auc") else 1.0
    labels, history = classes + more, classes[:3]
    near = Predicted(labels=labels, predictions=np.abs(classes - 0.1) + more, history=history)
    far = Predicted(labels=labels, predictions=np.abs(classes - 0.9) + more, history=history)
    metric = find_metric(name)
    assert metric.loss(metric(near)) < metric.loss(metric(far))
