"""XGBoost models drawn at random."""

from typing import Any

import numpy as np
import pyarrow as pa

from tests.exports.fuzz_columns import Columns, draw_columns, target_of
from tests.exports.fuzz_models import Trained, draw_inputs, draw_labels, draw_scale, draw_size

_REGRESSIONS = (
    *("reg:squarederror", "reg:squarederror", "reg:squarederror", "reg:squaredlogerror"),
    *("reg:pseudohubererror", "reg:absoluteerror", "reg:quantileerror", "reg:gamma"),
    *("reg:tweedie", "count:poisson", "reg:logistic", "custom"),
)
_CLASSES = ("binary:logistic", "binary:logitraw", "binary:hinge", "multi:softmax", "multi:softprob")
_RANKINGS = ("rank:ndcg", "rank:pairwise", "rank:map")
_SURVIVAL = ("survival:cox", "survival:aft")
_POSITIVE = ("reg:gamma", "reg:tweedie", "count:poisson", "reg:squaredlogerror", *_SURVIVAL)


def draw_xgboost(random: np.random.Generator) -> Trained:
    """Train a model.

    Raises:
        Exception: XGBoost refuses what was drawn.
    """
    import xgboost

    kinds = ["booster", "booster", "booster", "regressor", "classifier", "ranker"]
    wrapper = str(random.choice([*kinds, "rf regressor", "rf classifier"]))
    form = str(random.choice(["frame", "frame", "frame", "named matrix", "matrix"]))
    if wrapper != "booster" and form == "named matrix":
        form = "frame"
    columns = draw_columns(random, with_categories=form == "frame" and random.random() < 0.5)
    table = columns.draw(draw_size(random), random)
    target = target_of(columns, table, random)
    params = _params(random, columns)

    def features(rows: pa.Table) -> Any:
        return columns.frame(rows) if form == "frame" else columns.matrix(rows)

    def matrix(rows: pa.Table, labels: Any = None) -> Any:
        names = columns.names if form == "named matrix" else None
        given = features(rows)
        return xgboost.DMatrix(given, labels, feature_names=names, enable_categorical=True)

    if wrapper == "booster":
        model, what = _booster(random, params, lambda labels: matrix(table, labels), target)

        def predict(rows: pa.Table) -> Any:
            return model.predict(matrix(rows))
    else:
        model, what = _wrapper(random, wrapper, params, features(table), target)

        def predict(rows: pa.Table) -> Any:
            return model.predict(features(rows))

    told = {name: value for name, value in params.items() if name not in _QUIET}
    return Trained(
        what=f"{wrapper} of {what}; {form} {columns.kinds}, {table.num_rows} rows, {told}",
        model=model,
        columns=columns,
        table=table,
        predict=predict,
        rtol=2e-6,
        inputs=draw_inputs(random, form),
        gives_labels="classifier" in wrapper or "softmax" in what or "hinge" in what,
    )


_QUIET = {"seed": 1, "nthread": 1, "verbosity": 0}


def _params(random: np.random.Generator, columns: Columns) -> dict[str, Any]:
    params: dict[str, Any] = {
        **_QUIET,
        "max_depth": int(random.integers(1, 7)),
        "learning_rate": float(random.choice([0.1, 0.3, 1.0])),
        "min_child_weight": float(random.choice([0.0, 1.0])),
    }
    match str(random.choice(["gbtree"] * 6 + ["dart", "gblinear"])):
        case "dart":
            params |= {"booster": "dart", "rate_drop": 0.4}
        case "gblinear":
            return {**_QUIET, "booster": "gblinear", "learning_rate": 0.5}
    for name, values, share in (
        ("tree_method", ["exact", "approx", "hist"], 0.4),
        ("subsample", [0.7], 0.2),
        ("reg_alpha", [0.5], 0.1),
        ("reg_lambda", [0.0, 5.0], 0.2),
        ("gamma", [0.5], 0.1),
        ("max_cat_to_onehot", [1, 4, 100], 0.5),
        ("max_cat_threshold", [2, 64], 0.3),
        ("base_score", [0.1, 0.5], 0.15),
        ("num_parallel_tree", [3], 0.1),
        ("max_bin", [5, 512], 0.2),
        ("max_delta_step", [0.7], 0.1),
    ):
        if random.random() < share:
            params[name] = random.choice(values).item()
    if random.random() < 0.15:
        params |= {"grow_policy": "lossguide", "max_leaves": 12, "tree_method": "hist"}
    if random.random() < 0.1 and not columns.sizes:
        directions = random.integers(-1, 2, len(columns.names)).tolist()
        params["monotone_constraints"] = tuple(directions)
    return params


def _labels(
    random: np.random.Generator, objective: str, target: np.ndarray, params: dict[str, Any]
) -> np.ndarray:
    if objective in _CLASSES:
        if objective.startswith("multi"):
            params["num_class"] = int(random.integers(2, 6))
            edges = np.quantile(target, [0.2, 0.5, 0.7, 0.9])
            return np.digitize(target, edges) % params["num_class"]
        return (target > np.median(target)).astype(float)
    if objective == "reg:logistic":
        return 1 / (1 + np.exp(-target))
    if objective in _RANKINGS:
        return np.digitize(target, [-1, 0, 1]) if objective != "rank:map" else target > 0
    if random.random() < 0.03:
        return np.full(len(target), 1.0)
    scale = draw_scale(random)
    if objective in _POSITIVE:
        return np.exp(np.clip(target, -5, 5)) * scale
    labels = (target + float(random.choice([0.0, 100.0]))) * scale
    if objective in ("reg:squarederror", "reg:absoluteerror") and random.random() < 0.08:
        params["multi_strategy"] = str(random.choice(["one_output_per_tree", "multi_output_tree"]))
        return np.column_stack([labels, -labels[::-1]])
    if objective == "reg:quantileerror":
        several = random.random() < 0.4
        params["quantile_alpha"] = [0.1, 0.5, 0.9] if several else 0.3
    return labels


def _squares(predicted: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
    return predicted - data.get_label().reshape(predicted.shape), np.ones_like(predicted)


def _booster(
    random: np.random.Generator, params: dict[str, Any], matrix: Any, target: np.ndarray
) -> tuple[Any, str]:
    import xgboost

    others = (*_CLASSES, *_RANKINGS, *_SURVIVAL)
    objective = str(random.choice([*_REGRESSIONS, *_REGRESSIONS, *others]))
    labels = _labels(random, objective, target, params)
    data = matrix(labels)
    if objective in _RANKINGS:
        data.set_group([len(target)])
    own = _squares if objective == "custom" else None
    if own is None:
        params["objective"] = objective
    if objective == "survival:aft":
        data = matrix(None)
        data.set_float_info("label_lower_bound", labels)
        data.set_float_info("label_upper_bound", labels * 2)
    rounds, what = int(random.integers(1, 25)), objective
    if random.random() < 0.15:
        model = xgboost.train(
            params, data, rounds, evals=[(data, "all")], early_stopping_rounds=2, obj=own,
            verbose_eval=False,
        )  # fmt: skip
        return model, f"{what}, {rounds} rounds, stopped at {model.best_iteration}"
    model = xgboost.train(params, data, rounds, obj=own)
    match str(random.choice(["none"] * 8 + ["slice", "slice", "step", "go on", "refresh", "copy"])):
        case "slice":
            model = model[: max(1, rounds // 2)]
            what += ", its first half"
        case "step":
            # XGBoost (3.2) writes beyond its memory where the step does not divide the range, and
            # loses the weights of dart without an end.
            start = rounds // 3
            model = model[start : start + max(2, (rounds - start) // 2 * 2) : 2]
            what += ", every second round"
        case "go on":
            model = xgboost.train(params, data, 5, xgb_model=model, obj=own)
            what += ", trained on"
        case "refresh":
            again = {**params, "process_type": "update", "updater": "refresh"}
            model = xgboost.train(again, data, rounds, xgb_model=model, obj=own)
            what += ", refreshed"
        case "copy":
            model = model.copy()
            what += ", a copy"
    return model, f"{what}, {rounds} rounds"


def _wrapper(
    random: np.random.Generator,
    wrapper: str,
    params: dict[str, Any],
    features: Any,
    target: np.ndarray,
) -> tuple[Any, str]:
    import xgboost

    settings = {**params, "n_estimators": int(random.integers(1, 20)), "enable_categorical": True}
    settings["n_jobs"], settings["random_state"] = settings.pop("nthread"), settings.pop("seed")
    if random.random() < 0.1:
        settings["missing"] = float(random.choice([0.0, -999.0, 3.0]))
    if wrapper.startswith("rf"):
        settings.pop("learning_rate", None)
        settings.pop("num_parallel_tree", None)
    what = f"missing={settings['missing']}" if "missing" in settings else ""
    if "classifier" in wrapper:
        n_classes = int(random.integers(2, 5))
        labels = draw_labels(random, target, n_classes)
        kind = xgboost.XGBRFClassifier if wrapper.startswith("rf") else xgboost.XGBClassifier
        objective = str(random.choice(["", "", "", "binary:hinge", "multi:softmax"]))
        if objective and (n_classes > 2) == objective.startswith("multi"):
            settings["objective"] = objective
        model = kind(**settings).fit(features, labels)
        return model, f"{n_classes} classes {labels[:1].tolist()} {objective} {what}"
    if wrapper == "ranker":
        settings["objective"] = str(random.choice(_RANKINGS))
        labels = _labels(random, settings["objective"], target, settings)
        model = xgboost.XGBRanker(**settings).fit(features, labels, group=[len(target)])
        return model, f"ranks {what}"
    objective = str(random.choice([name for name in _REGRESSIONS if name != "custom"]))
    settings["objective"] = objective
    labels = _labels(random, objective, target, settings)
    kind = xgboost.XGBRFRegressor if wrapper.startswith("rf") else xgboost.XGBRegressor
    fit: dict[str, Any] = {}
    if random.random() < 0.2:
        settings["early_stopping_rounds"] = 2
        fit = {"eval_set": [(features, labels[::-1])], "verbose": False}
    model = kind(**settings).fit(features, labels, **fit)
    return model, f"{objective} {'early stopping' if fit else ''} {what}"
