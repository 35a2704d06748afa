"""XGBoost: a trainer, and predictions of its models."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict

from partwise.choices import Task
from partwise.connector.categories import with_categories
from partwise.errors import InputError
from partwise.settings import kind_field
from partwise.tables.calendar import with_calendar
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_number
from partwise.tables.features import (
    LARGEST_SINGLE,
    REFUSED_BY_XGBOOST,
    columns_in_order,
    feature_matrix,
    feature_names,
    find_categories,
    find_columns,
    within_single,
)
from partwise.trainers.candidate import Fit, Look
from partwise.trainers.ready.boosting import (
    BoostingTrainer,
    LabelledRows,
    TrainingData,
    is_larger_better,
    predict_rows,
)
from partwise.trainers.ready.by_feature import INTERACTION, MONOTONE
from partwise.trainers.ready.xgboost_parameters import check_parameters

if TYPE_CHECKING:
    from partwise.connector.data_connector import DataConnector

_REGRESSION = (
    "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror", "reg:gamma", "reg:tweedie", "count:poisson",
)  # fmt: skip
_CUT = (
    "XGBoost has cut categories of this model that are not ASCII, which it does to a pandas frame's"
    ": train it on an Arrow table, or pass predict=."
)
_LARGEST_SQUARED = 1e18
_ABOVE_ZERO = ("reg:gamma", "reg:tweedie")
"""Objectives of which XGBoost (3.2) makes NaN, or an error, where the mean label is 0."""
_NO_BEST_ROUND = {
    "gblinear": "keeps no rounds apart",
    "dart": "changes the trees of earlier rounds",
}
"""Boosters without a round to which one could go back."""
_RANKED = {"auc", "aucpr"}
"""Metrics of how rows of one class stand to those of others."""
CODES_ATTRIBUTE = "partwise_categories"
"""Set to "codes", it says that a Booster was trained on codes of categories, and takes such."""

_ALIASES = {
    "eta": "learning_rate",
    "min_split_loss": "gamma",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "random_state": "seed",
    "n_jobs": "nthread",
}


class XGBoostTrainer(BoostingTrainer):
    """Train one XGBoost Booster per partition.

    Null and NaN are missing values. Categories are kept in the model, so that inference codes them
    alike in any process; a category that training had not met is missing.

    Example:
        >>> XGBoostTrainer(label="sales", params={"max_depth": 4}).rounds
        100
    """

    model_config = ConfigDict(title="XGBoost")

    kind: Literal["xgboost"] = kind_field("xgboost")

    DEFAULT_OBJECTIVE: ClassVar[str] = "reg:squarederror"
    TASKS: ClassVar[Mapping[str, Task]] = {
        **dict.fromkeys(_REGRESSION, "regression"),
        "binary:logistic": "binary",
        "multi:softprob": "multiclass",
    }
    RESERVED: ClassVar[Mapping[str, str]] = {
        "n_estimators": "rounds of the trainer",
        "num_boost_round": "rounds of the trainer",
        "early_stopping_rounds": "early_stopping_rounds of the trainer",
        "nthread": "threads of the trainer",
        "n_jobs": "threads of the trainer",
    }

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no trial can set; see `BoostingSettings.check_settings`."""
        super().check_settings(names)
        # Another booster or objective has other parameters.
        if not {"booster", "objective"} & {*names}:
            check_parameters(self._own_params(), [name for name in names if name != "rounds"])

    def _task(self, params: Mapping[str, Any]) -> Task:
        if isinstance(params.get("quantile_alpha"), list):
            raise InputError("A model predicts one quantile: give quantile_alpha as a number.")
        objective = params.get("objective")
        if objective == "reg:quantileerror" and params.get("quantile_alpha") is None:
            raise InputError(
                f"The objective {objective!r} needs a quantile_alpha in params, such as 0.9."
            )
        reason = _NO_BEST_ROUND.get(str(params.get("booster")))
        if reason is not None and self.early_stopping_rounds is not None:
            raise InputError(
                f'The booster "{params["booster"]}" {reason}, so that the best one cannot be kept:'
                " leave early_stopping_rounds out, or take another booster."
            )
        return super()._task(params)

    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return xgboost_names(params)

    def _of_features(self, params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        return constraints_as_text(super()._of_features(params, names))

    def _check_known(self, params: Mapping[str, Any]) -> None:
        check_parameters(params)

    def _of_quantile(self, quantile: float) -> dict[str, Any]:
        own = {"objective": "reg:quantileerror", "quantile_alpha": quantile}
        return {**own, "eval_metric": None}

    def _fit(
        self,
        data: TrainingData,
        params: dict[str, Any],
        rounds: int,
        threads: int,
        look: Look | None,
    ) -> Fit:
        import xgboost

        if params.get("booster") == "gblinear":
            _check_squares(data)
        check_mean(params, data.train.labels.sum())
        has_holdout = len(data.holdout.labels) > 0
        train = self._matrix(data, data.train, threads)
        holdout = self._matrix(data, data.holdout, threads) if has_holdout else None
        ranked = _RANKED & {*metrics_of(params)[-1:]}
        stopping = self._stopping_rounds(data, params, ranked)
        booster = xgboost.train(
            {"nthread": threads, **params},
            train,
            num_boost_round=rounds,
            evals=[(holdout, "holdout")] if stopping else [],
            early_stopping_rounds=stopping,
            maximize=maximizes(params),
            verbose_eval=False,
            callbacks=[] if look is None or holdout is None else [_each_round(look, holdout)],
        )
        if stopping:
            booster = first_rounds(booster, booster.best_iteration + 1)
        return Fit(
            model=booster,
            rounds=booster.num_boosted_rounds(),
            predictions=None if holdout is None else booster.predict(holdout),
        )

    def _matrix(self, data: TrainingData, rows: LabelledRows, threads: int) -> Any:
        import xgboost

        names = feature_names(data.columns.names, REFUSED_BY_XGBOOST)
        features = within_single(rows.features)
        if not data.categories:
            return xgboost.DMatrix(features, rows.labels, feature_names=names, nthread=threads)
        columns = [
            with_categories(pa.array(values, from_pandas=True), data.categories[name])
            if name in data.categories
            else pa.array(values)
            for name, values in zip(data.columns.names, features.T, strict=True)
        ]
        # From Arrow: XGBoost (3.2) cuts categories that are not ASCII when they come from pandas.
        return xgboost.DMatrix(
            pa.table(columns, names),
            rows.labels,
            enable_categorical=True,
            nthread=threads,
        )


def _check_squares(data: TrainingData) -> None:
    """Refuse features that XGBoost's linear booster makes NaN of without a word."""
    features = np.abs(within_single(data.train.features).astype(np.float64))
    sums = np.nansum(features**2, axis=0)
    for name, total, column in zip(data.columns.names, sums, features.T, strict=True):
        if total > LARGEST_SINGLE:
            largest, count = np.nanmax(column), int((column > _LARGEST_SQUARED).sum())
            raise InputError(
                f"The feature {name!r} has {count} numbers beyond {_LARGEST_SQUARED:g} among its "
                f"{len(column)} rows, up to {largest:g}, whose squares the booster 'gblinear' "
                "cannot add up in single precision: scale it, leave such rows out, or take the "
                "booster 'gbtree'."
            )


def check_mean(params: Mapping[str, Any], mean: float) -> None:
    """Refuse labels that are all 0, of which the objective has no first prediction."""
    if params["objective"] in _ABOVE_ZERO and not mean and params.get("base_score") is None:
        raise InputError(
            f"The label is 0 in all rows trained on, and {params['objective']!r} predicts by the "
            'logarithm of their mean: leave them out, or take an objective such as "count:poisson".'
        )


def metrics_of(params: Mapping[str, Any]) -> list[Any]:
    """Return the metrics that parameters name, of which the last one stops early."""
    given = params.get("eval_metric") or []
    return [given] if isinstance(given, str) else [*given]


def maximizes(params: Mapping[str, Any]) -> bool | None:
    """Whether more of the metric that stops early is better; None: XGBoost chooses the metric.

    XGBoost (3.2) itself takes less of its ams for better.
    """
    metrics = metrics_of(params)
    return is_larger_better(str(metrics[-1])) if metrics else None


def _each_round(look: Look, rows: Any) -> Any:
    import xgboost

    class EachRound(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            look(epoch + 1, lambda: model.predict(rows))
            return False

    return EachRound()


def xgboost_names(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by XGBoost's first names for them, not by aliases."""
    return {_ALIASES.get(name, name): value for name, value in params.items()}


def constraints_as_text(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with lists of constraints as XGBoost's library reads them."""
    lists = {name: params[name] for name in (MONOTONE, INTERACTION) if params.get(name) is not None}
    texts = {name: json.dumps(values) for name, values in lists.items()}
    if MONOTONE in texts:
        texts[MONOTONE] = f"({texts[MONOTONE][1:-1]})"
    return {**params, **texts}


def _typed(categories: list[Any], kind: pa.DataType) -> list[Any]:
    """Return categories as numbers where they are text of numbers, and the column has numbers."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not is_number(values):
        return categories
    for number in (int, float):
        with suppress(ValueError):
            return [number(category) for category in categories]
    return categories


def first_rounds(booster: Any, rounds: int) -> Any:
    """Return the first rounds of a Booster.

    A slice has lost the categories (3.2), and would code those of other frames wrongly without a
    word, so they are put back.
    """
    first = booster[:rounds]
    if "c" in (booster.feature_types or ()):
        content = json.loads(first.save_raw("json"))
        whole = json.loads(booster.save_raw("json"))
        _trees(content)["cats"] = _trees(whole)["cats"]
        # As it is, XGBoost does not read names that are escaped.
        first.load_model(bytearray(json.dumps(content, ensure_ascii=False).encode()))
    return first


def _trees(content: dict[str, Any]) -> dict[str, Any]:
    machine = content["learner"]["gradient_booster"]
    trees: dict[str, Any] = machine.get("gbtree", machine)["model"]  # dart holds a gbtree
    return trees


def predict_xgboost(data: DataConnector, booster: Any) -> np.ndarray:
    """Predict with a Booster, whose features are taken from the data by name.

    Of a classifier it gives probabilities, shape (n, classes) where there are several.

    Raises:
        ColumnError: A feature is missing, or its type does not fit.
        InputError: The model has no names for its features.
    """
    import xgboost

    def predict(asked: np.ndarray) -> np.ndarray:
        names, kinds = booster.feature_names, booster.feature_types
        rows = xgboost.DMatrix(within_single(asked), feature_names=names, feature_types=kinds)
        found: np.ndarray = booster.predict(rows)
        return found

    table = data.to_arrow()
    # Codes, as XGBoost itself refuses a category that training had not met.
    return predict_rows(feature_matrix(table, *booster_features(booster, table)), predict)


def booster_features(
    booster: Any, rows: pa.Table, given: Sequence[str] | None = None
) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the columns of a Booster's features in its order, and the categories of training.

    A model that has no names for its features has `given` columns, in its order.

    Raises:
        ColumnError: A feature is missing.
        InputError: The model has no names for its features, or its categories were cut or lost.
    """
    features = booster.feature_names
    if given is not None:
        n_features = booster.num_features()
        names = columns_in_order(given, n_features, rows.schema, features is not None)
        if "c" in (booster.feature_types or ()):
            raise InputError(
                "The XGBoost model has categories but no feature names: train it with them."
            )
        return names, {}
    if features is None:
        raise InputError(
            f"The {booster.num_features()} features of this XGBoost model have no names, since it "
            "was trained on a matrix: name them in training (xgboost.DMatrix(..., "
            "feature_names=[...]), or a data frame), or pass predict= to an inference, and to an "
            "export features=, which names the columns in order, or example_inputs=, a function "
            "that makes the matrix."
        )
    spelling = partial(feature_names, refused=REFUSED_BY_XGBOOST)
    names = find_columns(features, rows.schema, [spelling])
    rows = with_calendar(rows, names)
    lists = _kept_categories(booster) if "c" in (booster.feature_types or ()) else {}
    if booster.attr(CODES_ATTRIBUTE) != "codes":
        lists |= _lost_categories(booster, lists)
    categories = {
        name: _typed(lists[feature], rows.schema.field(name).type)
        for name, feature in zip(names, features, strict=True)
        if feature in lists
    }
    for name, known in categories.items():
        if any(_is_cut(known, value) for value in _foreign_texts(known, rows.column(name))):
            raise InputError(_CUT)
    return names, categories


def _lost_categories(booster: Any, kept: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return empty lists for the categorical features whose categories are lost, and unused.

    A slice of a Booster loses the categories (3.2), and is then, to the byte, like a model that was
    trained on codes. So whoever trained on codes has to say so.

    Raises:
        InputError: A tree splits a feature by categories that the model does not have: the values
            of a column would pass for codes.
    """
    names, kinds = booster.feature_names, booster.feature_types or ()
    lost = [
        place
        for place, (name, kind) in enumerate(zip(names, kinds, strict=False))
        if kind == "c" and name not in kept
    ]
    if not lost:
        return {}
    split = {
        tree["split_indices"][node]
        for tree in _trees(json.loads(booster.save_raw("json"))).get("trees", ())
        for node in tree["categories_nodes"]
        if tree["left_children"][node] >= 0  # others were pruned
    }
    if needed := [names[place] for place in lost if place in split]:
        raise InputError(
            f"The XGBoost model splits {names_in_words(needed)} by categories that it does not "
            "have, as they are lost in a slice such as booster[:20], and before XGBoost 3.1: return"
            " the whole booster, trained for so many rounds. Where the columns hold the codes that "
            f"it was trained on, say so by booster.set_attr({CODES_ATTRIBUTE}='codes')."
        )
    return {names[place]: [] for place in lost}


def _foreign_texts(known: list[Any], column: pa.ChunkedArray) -> list[str]:
    """Return the texts of a column that are not categories, where some category is not ASCII."""
    if all(not isinstance(category, str) or category.isascii() for category in known):
        return []
    others = set(find_categories(column)) - set(known)
    return [value for value in others if isinstance(value, str)]


def _is_cut(known: list[str], value: str) -> bool:
    """Tell whether the first category that is not ASCII is what XGBoost has left of this text.

    From a pandas frame it takes as many bytes of each category as that has characters, one category
    after another. So up to the first that is not ASCII they are whole, and of that the end is gone.
    """
    first = next(category for category in known if not category.isascii())
    return value.encode()[: len(value)] == first.encode()


def _kept_categories(booster: Any) -> dict[str, list[Any]]:
    try:
        kept = booster.get_categories(export_to_arrow=True).to_arrow()
        return {name: values.to_pylist() for name, values in kept if values is not None}
    except UnicodeDecodeError as error:
        raise InputError(_CUT) from error
