"""LightGBM: a trainer, and predictions of its models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import pyarrow as pa  # noqa: TC002
from pydantic import ConfigDict

from partwise.choices import Task
from partwise.errors import ColumnError, InputError
from partwise.formatting import did_you_mean
from partwise.settings import kind_field
from partwise.tables.calendar import with_calendar
from partwise.tables.features import (
    REFUSED_BY_LIGHTGBM,
    Categories,
    columns_in_order,
    feature_matrix,
    feature_names,
    find_columns,
)
from partwise.trainers.candidate import Fit, Look
from partwise.trainers.ready.boosting import BoostingTrainer, TrainingData, predict_rows
from partwise.trainers.ready.lightgbm_categories import categories_of_features
from partwise.trainers.ready.lightgbm_parameters import parameter_names

if TYPE_CHECKING:
    import numpy as np

    from partwise.connector.data_connector import DataConnector

_REGRESSION = (
    "regression", "regression_l2", "l2", "mean_squared_error", "mse", "l2_root",
    "root_mean_squared_error", "rmse", "regression_l1", "l1", "mean_absolute_error", "mae",
    "huber", "fair", "poisson", "quantile", "mape", "mean_absolute_percentage_error", "gamma",
    "tweedie",
)  # fmt: skip

_RANKED = {"auc", "average_precision", "auc_mu"}
"""Metrics of how rows of one class stand to those of others."""
_OF_COMMAND_LINE = (
    "config", "convert_model", "convert_model_language", "data", "group_column", "header",
    "ignore_column", "input_model", "label_column", "output_model", "output_result", "save_binary",
    "snapshot_freq", "task", "two_round", "valid", "weight_column",
)  # fmt: skip
"""What LightGBM's own program reads, with its files. Of rows in memory it is passed over."""
_OF_NETWORK = ("local_listen_port", "machine_list_filename", "machines", "num_machines")

MARK = {"parser_config_file": "partwise.LightGBMTrainer"}
"""Says in the text of a model that its categories are those of its categorical features, in order.

The parameter is for files that LightGBM parses itself, and does nothing here.
"""


_rows_of: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The rows of a Booster in LightGBM's own memory, which it may point to as long as it lives."""


class LightGBMTrainer(BoostingTrainer):
    """Train one LightGBM Booster per partition.

    Null and NaN are missing values. Categories are kept in the model, so that inference codes them
    alike in any process; a category that training had not met is missing.

    Example:
        >>> LightGBMTrainer(label="sales", params={"learning_rate": 0.05}).rounds
        100
    """

    model_config = ConfigDict(title="LightGBM")

    kind: Literal["lightgbm"] = kind_field("lightgbm")

    DEFAULT_OBJECTIVE: ClassVar[str] = "regression"
    TASKS: ClassVar[Mapping[str, Task]] = {
        **dict.fromkeys(_REGRESSION, "regression"),
        "binary": "binary",
        "multiclass": "multiclass",
        "multiclassova": "multiclass",
    }
    RESERVED: ClassVar[Mapping[str, str]] = {
        "num_iterations": "rounds of the trainer",
        "early_stopping_round": "early_stopping_rounds of the trainer",
        "num_threads": "threads of the trainer",
        "categorical_feature": "categorical of the trainer",
    }

    def _task(self, params: Mapping[str, Any]) -> Task:
        if found := [name for name in params if name in _OF_NETWORK]:
            raise InputError(
                f"Leave {found[0]} out of params: each partition is trained by one process. One "
                "model on several machines is trained by train_distributed."
            )
        task = super()._task(params)
        if self.early_stopping_rounds is None:
            return task
        native = self._native_names(params)
        if native.get("boosting") == "dart":
            raise InputError(
                'The boosting "dart" changes earlier trees, so that LightGBM does not stop early: '
                "leave early_stopping_rounds out, or take another boosting."
            )
        if str(native.get("metric")) in ("None", "na", "null", "custom") and "metric" in native:
            raise InputError(
                f"early_stopping_rounds needs a metric, and metric is {native['metric']!r}: leave "
                "one of both out."
            )
        return task

    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return lightgbm_names(params)

    def _of_quantile(self, quantile: float) -> dict[str, Any]:
        return {"objective": "quantile", "alpha": quantile, "metric": None}

    def _fit(
        self,
        data: TrainingData,
        params: dict[str, Any],
        rounds: int,
        threads: int,
        look: Look | None,
    ) -> Fit:
        import lightgbm

        # "deterministic" with one of the two ways to build histograms: else LightGBM times both.
        fixed = {"num_threads": threads, "deterministic": True, "force_row_wise": True}
        params = {"verbosity": -1, **fixed, **params, **MARK}
        names = data.columns.names
        train = lightgbm.Dataset(
            data.train.features,
            data.train.labels,
            params=params,
            feature_name=feature_names(names, REFUSED_BY_LIGHTGBM),
            categorical_feature=[names.index(name) for name in data.columns.categorical],
        )
        evaluated: list[Any] = []
        callbacks: list[Any] = []
        has_holdout = len(data.holdout.labels) > 0
        metrics = params.get("metric") or ()
        metrics = metrics.split(",") if isinstance(metrics, str) else metrics
        ranked = _RANKED & {str(metric).strip() for metric in metrics}
        stopping = self._stopping_rounds(data, params, ranked)
        if stopping is not None:
            evaluated = [train.create_valid(data.holdout.features, data.holdout.labels)]
            callbacks = [stops_early(stopping, params)]
        if has_holdout and look is not None:
            callbacks.append(_each_round(look, data.holdout.features, threads))
        # Else LightGBM writes the model as text at the end and reads that, for the same trees: a
        # sixth of the time of a small one. Where it stopped early, that drops the last trees.
        keeps = not evaluated
        booster = lightgbm.train(
            params,
            train,
            rounds,
            valid_sets=evaluated,
            callbacks=callbacks,
            keep_training_booster=keeps,
        )
        if keeps:
            _rows_of[booster] = train
            booster.free_dataset()
        # What LightGBM keeps of a pandas frame: a list for each categorical column.
        booster.pandas_categorical = [
            list(data.categories[name]) for name in data.columns.categorical
        ]
        predictions: Any = booster.predict(data.holdout.features) if has_holdout else None
        # LightGBM (4.7) leaves 0 there where there was no early stopping.
        rounds = booster.best_iteration if booster.best_iteration > 0 else rounds
        return Fit(model=booster, rounds=rounds, predictions=predictions)


def _each_round(look: Look, rows: np.ndarray, threads: int) -> Callable[[Any], None]:
    def each_round(state: Any) -> None:
        # Else the rounds after it would have as many threads as there are cores.
        look(state.iteration + 1, lambda: state.model.predict(rows, num_threads=threads))

    return each_round


def stops_early(
    rounds: int, params: Mapping[str, Any], own_metric: str = ""
) -> Callable[[Any], None]:
    """Return LightGBM's callback that stops early, once it is told the direction of its metrics.

    LightGBM (4.7) itself takes less of its r2 for better. `own_metric` is the name of a function of
    the user's, of which it was told.
    """
    import lightgbm

    stops = lightgbm.early_stopping(
        rounds,
        # It reads these of the parameters only where it makes the callback itself.
        first_metric_only=bool(params.get("first_metric_only")),
        min_delta=float(params.get("early_stopping_min_delta") or 0),
        verbose=False,
    )

    def told(environment: Any) -> None:
        if not environment.evaluation_result_list:
            # LightGBM passes over a metric that it does not know.
            raise InputError(
                f"LightGBM has no metric {params.get('metric')!r}, and training is to stop early "
                "by it: correct metric in params, or leave early_stopping_rounds out."
            )
        results = [
            # Plain tuples before 4.7, which have no such metric.
            lightgbm.EvalResult(each[0], each[1], each[2], maximize=True)
            if each[1] == "r2" != own_metric
            else each
            for each in environment.evaluation_result_list
        ]
        stops(replace(environment, evaluation_result_list=results))

    # Behind those that only report.
    told.order = stops.order  # type: ignore[attr-defined]
    return told


def lightgbm_names(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by LightGBM's first names for them, not by aliases.

    Refused are those that it does not know: it trains with a misspelled one all the same.
    """
    names = parameter_names()
    if unknown := [name for name in params if name not in names]:
        hints = "".join(did_you_mean(name, names) for name in unknown[:3])
        raise InputError(f"LightGBM has no parameter {', '.join(map(repr, unknown))}.{hints}")
    found = {names[name]: value for name, value in params.items()}
    if unused := [name for name in found if name in _OF_COMMAND_LINE]:
        raise InputError(
            f"LightGBM reads {', '.join(unused)} with its own files only, and passes over it where "
            "rows are in memory: leave it out of params."
        )
    return found


def predict_lightgbm(data: DataConnector, booster: Any, threads: int = 1) -> np.ndarray:
    """Predict with a Booster, whose features are taken from the data by name.

    Of a classifier it gives probabilities, shape (n, classes) where there are several.

    Raises:
        ColumnError: A feature is missing, or its type does not fit.
        InputError: Which columns are categorical cannot be determined.
    """
    table = data.to_arrow()
    matrix = feature_matrix(table, *features_of_booster(booster, table))
    return predict_rows(matrix, lambda asked: booster.predict(asked, num_threads=threads))


def features_of_booster(
    booster: Any, rows: pa.Table, given: Sequence[str] | None = None
) -> tuple[list[str], Categories]:
    """Return the columns of a Booster's features, in its order, and the categories of some.

    Args:
        booster: Trained by `LightGBMTrainer`, or by LightGBM itself.
        rows: May be empty. They can tell which features the categories of a pandas frame belong
            to, where the model does not.
        given: The columns of a model that has no names for its features, in its order.

    Raises:
        ColumnError: A feature is missing, or the model has no names for its features.
        InputError: Which columns are categorical cannot be determined.
    """
    schema, features = rows.schema, booster.feature_name()
    has_names = features != [f"Column_{place}" for place in range(len(features))]
    if given is not None:
        return columns_in_order(given, len(features), schema, has_names), {}
    if not has_names and not {*features} & {*schema.names}:
        raise ColumnError(
            f"The {len(features)} features of this LightGBM model have no names, only Column_0 and "
            "so on, since it was trained on a matrix: name them in training "
            "(lightgbm.Dataset(..., feature_name=[...]), or a data frame), or pass predict= to an "
            "inference, and to an export features=, which names their columns in order."
        )
    spelling = partial(feature_names, refused=REFUSED_BY_LIGHTGBM)
    names = find_columns(features, schema, [spelling, _without_spaces])
    lists = booster.pandas_categorical or []
    if not lists:
        return names, {}
    if not MARK.items() <= booster.params.items():
        made = with_calendar(rows, names)
        return names, categories_of_features(booster.model_to_string(), lists, names, made)
    # A Booster has the one parameter when it was read, and the other when it was trained here.
    places = booster.params.get("categorical_feature", booster.params.get("categorical_column"))
    return names, dict(zip((names[place] for place in sorted(places)), lists, strict=True))


def _without_spaces(columns: Sequence[str]) -> list[str]:
    """Return names as LightGBM itself writes them."""
    return [re.sub(r"\s", "_", name) for name in columns]
