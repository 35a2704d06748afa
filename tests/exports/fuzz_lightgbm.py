"""LightGBM models drawn at random."""

from typing import Any

import numpy as np
import pyarrow as pa

from tests.exports.fuzz_columns import Columns, draw_columns, target_of
from tests.exports.fuzz_models import Trained, draw_inputs, draw_labels, draw_scale, draw_size

_REGRESSIONS = (
    *("regression", "regression", "regression_l1", "huber", "fair", "quantile", "mape"),
    *("poisson", "gamma", "tweedie", "cross_entropy", "cross_entropy_lambda", "custom"),
)
_RANKINGS = ("lambdarank", "rank_xendcg")
_POSITIVE = ("poisson", "gamma", "tweedie")


def draw_lightgbm(random: np.random.Generator) -> Trained:
    """Train a model.

    Raises:
        Exception: LightGBM refuses what was drawn.
    """
    wrapper = str(random.choice(["booster", "booster", "regressor", "classifier", "ranker"]))
    form = str(random.choice(["frame", "frame", "frame", "named matrix", "matrix"]))
    if wrapper != "booster" and form == "named matrix":
        form = "frame"
    columns = draw_columns(random, with_categories=form == "frame" and random.random() < 0.6)
    table = columns.draw(draw_size(random), random)
    target = target_of(columns, table, random)
    params = _params(random, table.num_rows)
    features: Any = columns.frame(table) if form == "frame" else columns.matrix(table)
    categorical = _categorical(random, columns, form)
    if wrapper == "booster":
        model, what = _booster(random, params, features, target, columns, form, categorical)
    else:
        model, what = _wrapper(random, wrapper, params, features, target, categorical)

    def predict(rows: pa.Table) -> Any:
        return model.predict(columns.frame(rows) if form == "frame" else columns.matrix(rows))

    told = {name: value for name, value in params.items() if name not in _QUIET}
    return Trained(
        what=f"{wrapper} of {what}; {form} {columns.kinds}, {table.num_rows} rows, "
        f"categorical_feature={categorical!r}, {told}",
        model=model,
        columns=columns,
        table=table,
        predict=predict,
        rtol=1e-9,
        inputs=draw_inputs(random, form),
        takes_unseen=True,
        gives_labels=wrapper == "classifier",
    )


_QUIET = {"verbosity": -1, "num_threads": 1, "seed": 1}


def _params(random: np.random.Generator, rows: int) -> dict[str, Any]:
    params: dict[str, Any] = {
        **_QUIET,
        "num_leaves": int(random.integers(2, 32)),
        "min_data_in_leaf": int(random.choice([1, 5, 20])) if rows > 50 else 1,
        "min_data_in_bin": 1 if rows < 50 else 3,
        "learning_rate": float(random.choice([0.05, 0.1, 0.3])),
        "min_data_per_group": int(random.choice([1, 5, 100])),
        "cat_smooth": float(random.choice([1, 10])),
        "max_cat_to_onehot": int(random.choice([1, 4, 20])),
    }
    match str(random.choice(["gbdt", "gbdt", "gbdt", "dart", "rf", "goss"])):
        case "dart":
            params |= {"boosting": "dart", "drop_rate": 0.5}
        case "rf":
            params |= {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
        case "goss":
            params |= {"data_sample_strategy": "goss"}
    for name, values, share in (
        ("use_missing", [False], 0.1),
        ("zero_as_missing", [True], 0.15),
        ("linear_tree", [True], 0.05),
        ("extra_trees", [True], 0.1),
        ("path_smooth", [1.0], 0.1),
        ("lambda_l1", [0.5], 0.1),
        ("max_bin", [7, 1000], 0.2),
        ("max_depth", [1, 3], 0.1),
        ("boost_from_average", [False], 0.1),
    ):
        if random.random() < share:
            params[name] = random.choice(values).item()
    return params


def _categorical(random: np.random.Generator, columns: Columns, form: str) -> Any:
    """Return what a user gives as categorical_feature."""
    chance = random.random()
    whole = [name for name, kind in columns.kinds.items() if kind == "whole"]
    some = [*whole, *columns.categorical] if form == "frame" else whole
    if not some or chance < 0.5:
        return "auto"
    chosen = [name for name in some if random.random() < 0.7] or some[:1]
    if form == "matrix" or chance < 0.75:
        return [columns.names.index(name) for name in chosen]
    return chosen


def _labels(
    random: np.random.Generator, objective: str, target: np.ndarray, params: dict[str, Any]
) -> np.ndarray:
    scale = draw_scale(random)
    if random.random() < 0.03:
        return np.full(len(target), 1.0)
    match objective:
        case "binary":
            return (target > np.median(target)).astype(float)
        case "multiclass" | "multiclassova":
            params["num_class"] = int(random.integers(2, 6))
            return (
                np.digitize(target, np.quantile(target, [0.2, 0.5, 0.7, 0.9]))
                % (params["num_class"])
            )
        case "cross_entropy" | "cross_entropy_lambda":
            return 1 / (1 + np.exp(-target))
        case "lambdarank" | "rank_xendcg":
            return np.digitize(target, [-1, 0, 1])
    if objective in _POSITIVE:
        return np.exp(np.clip(target, -5, 5)) * scale
    params["reg_sqrt"] = bool(objective == "regression" and random.random() < 0.2)
    return (target + float(random.choice([0.0, 100.0]))) * scale


def _squares(predicted: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
    return predicted - data.get_label(), np.ones_like(predicted)


def _booster(
    random: np.random.Generator,
    params: dict[str, Any],
    features: Any,
    target: np.ndarray,
    columns: Columns,
    form: str,
    categorical: Any,
) -> tuple[Any, str]:
    import lightgbm

    objective = str(random.choice([*_REGRESSIONS, "binary", "multiclass", "multiclassova"]))
    if random.random() < 0.08:
        objective = str(random.choice(_RANKINGS))
    labels = _labels(random, objective, target, params)
    params["objective"] = _squares if objective == "custom" else objective
    if objective == "binary" and random.random() < 0.3:
        params["sigmoid"] = 0.7
    names: Any = columns.names if form == "named matrix" else "auto"
    group = [len(target)] if objective in _RANKINGS else None
    how = {"feature_name": names, "categorical_feature": categorical, "free_raw_data": False}
    data = lightgbm.Dataset(features, labels, group=group, params=dict(params), **how)
    rounds, what = int(random.integers(1, 30)), objective
    if params.get("boosting") == "rf" and objective == "custom":
        params["boosting"] = "gbdt"
    early = params.get("boosting") != "dart" and random.random() < 0.15
    if early:
        half = lightgbm.Dataset(features, labels[::-1], group=group, reference=data)
        model = lightgbm.train(
            params, data, rounds, valid_sets=[half],
            callbacks=[lightgbm.early_stopping(2, verbose=False)],
        )  # fmt: skip
        return model, f"{what}, {rounds} rounds, stopped at {model.best_iteration}"
    model = lightgbm.train(params, data, rounds, keep_training_booster=True)
    match str(random.choice(["none"] * 8 + ["go on", "refit", "slice", "copy", "leaf"])):
        case "go on":
            more = lightgbm.Dataset(features, labels, group=group, params=dict(params), **how)
            model = lightgbm.train(params, more, 5, init_model=model)
            what += ", trained on"
        case "refit":
            model = model.refit(features, labels, decay_rate=0.5)
            what += ", refit"
        case "slice":
            text = model.model_to_string(num_iteration=max(1, rounds // 2))
            model = lightgbm.Booster(model_str=text)
            what += ", its first half"
        case "copy":
            model = lightgbm.Booster(model_str=model.model_to_string())
            what += ", read again"
        case "leaf":
            model.set_leaf_output(0, 0, float(model.get_leaf_output(0, 0)) * 2)
            what += ", with another leaf"
    return model, f"{what}, {rounds} rounds"


def _wrapper(
    random: np.random.Generator,
    wrapper: str,
    params: dict[str, Any],
    features: Any,
    target: np.ndarray,
    categorical: Any,
) -> tuple[Any, str]:
    import lightgbm

    params = {**params, "n_estimators": int(random.integers(1, 25))}
    params["n_jobs"] = params.pop("num_threads")
    fit: dict[str, Any] = {"categorical_feature": categorical}
    if wrapper == "classifier":
        n_classes = int(random.integers(2, 5))
        objective = str(random.choice(["", "", "", "multiclassova", "cross_entropy"]))
        labels = draw_labels(random, target, n_classes)
        if objective and (n_classes > 2) == (objective == "multiclassova"):
            params["objective"] = objective
        model = lightgbm.LGBMClassifier(**params).fit(features, labels, **fit)
        return model, f"{n_classes} classes {labels[:1].tolist()} {objective}"
    if wrapper == "ranker":
        labels = np.digitize(target, [-1, 0, 1])
        fit["group"] = [len(target)]
        return lightgbm.LGBMRanker(**params).fit(features, labels, **fit), "ranks"
    objective = str(random.choice([name for name in _REGRESSIONS if name != "custom"]))
    labels = _labels(random, objective, target, params)
    model = lightgbm.LGBMRegressor(objective=objective, **params)
    if random.random() < 0.2 and params.get("boosting") != "dart":
        fit["eval_set"] = [(features, labels[::-1])]
        fit["callbacks"] = [lightgbm.early_stopping(2, verbose=False)]
        return model.fit(features, labels, **fit), f"{objective}, early stopping"
    return model.fit(features, labels, **fit), objective
