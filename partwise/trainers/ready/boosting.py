"""What trainers of boosted trees have in common: settings, checks, rows, holdout and metrics."""

from __future__ import annotations

import logging
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.choices import Task
from partwise.errors import InputError
from partwise.models.composite_models import QuantileModel, with_quantiles
from partwise.outcomes import Skip
from partwise.tables.calendar import with_calendar
from partwise.tables.column_names import names_in_words
from partwise.tables.features import (
    LARGEST_SINGLE,
    Categories,
    FeatureColumns,
    feature_matrix,
    find_categories,
)
from partwise.trainers.ready.by_feature import by_place
from partwise.trainers.scored import MIN_ROWS, FeatureSettings, Levels, TabularTrainer

if TYPE_CHECKING:
    import pyarrow as pa

    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.trainers.candidate import Fit, Look

_LARGER_IS_BETTER = re.compile(
    r"(auc|aucpr|auc_mu|average_precision|ndcg|map|pre|ams|r2|(interval-regression-)?accuracy)"
    r"(@[\d.]+)?-?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRows:
    """Rows as a library takes them."""

    features: np.ndarray
    """Single or double, shape (n, k), NaN where a value is missing."""
    labels: np.ndarray
    """Double, shape (n,), finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The labelled rows of a partition."""

    columns: FeatureColumns
    categories: Categories
    """Of the rows trained on: what only the holdout has is missing there, as in inference."""
    train: LabelledRows
    holdout: LabelledRows
    """Without rows where nothing is held out."""


def is_larger_better(metric: str) -> bool:
    """Whether more of a metric of XGBoost or LightGBM is better, by its name there.

    Example:
        >>> is_larger_better("ndcg@5"), is_larger_better("rmse")
        (True, False)
    """
    return _LARGER_IS_BETTER.fullmatch(metric) is not None


def predict_rows(matrix: np.ndarray, predict: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return what a library predicts; of no rows, it forgets how many classes there are."""
    asked = matrix if len(matrix) else np.full((1, matrix.shape[1]), np.nan, matrix.dtype)
    return predict(asked)[: len(matrix)]


class BoostingSettings(FeatureSettings):
    """The settings of trainers of boosted trees, whether of one model or of one per partition."""

    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        title="Parameters",
        description="The library's own parameters, by its own names. A partition's share of the "
        "run's params overrides them.",
    )
    rounds: int = Field(default=100, ge=1, description="The most boosting rounds to train.")

    TASKS: ClassVar[Mapping[str, Task]]
    """The task of each objective that can be trained."""
    DEFAULT_OBJECTIVE: ClassVar[str]
    RESERVED: ClassVar[Mapping[str, str]]
    """Parameters that a setting stands for, and that setting."""

    @property
    def library(self) -> str:
        """The library that trains, as packages name it."""
        kind: str = self.kind  # type: ignore[attr-defined]
        return kind.removeprefix("distributed_")

    @property
    def libraries(self) -> tuple[str, ...]:
        """Those whose versions decide what becomes of a partition."""
        return (self.library,)

    @property
    def task(self) -> Task:
        """What its objective comes to: regression, or two or more classes."""
        return self._task({"objective": self.DEFAULT_OBJECTIVE, **self._native_names(self.params)})

    def _check_labels(
        self, label: str, labels: np.ndarray, params: Mapping[str, Any], task: Task
    ) -> None:
        if task == "regression":
            # Both libraries keep labels in single precision.
            fits, what = np.abs(labels) <= LARGEST_SINGLE, "a finite number"
            if np.isfinite(labels).all():
                what = f"a number up to {LARGEST_SINGLE:.2g}, which single precision holds,"
        else:
            n_classes = 2 if task == "binary" else int(params["num_class"])
            fits = (labels >= 0) & (labels < n_classes) & (labels == np.floor(labels))
            what = f"a class from 0 to {n_classes - 1}"
        if not fits.all():
            raise InputError(
                f"The label {label!r} has to be {what} for the objective "
                f"{params['objective']!r}, but {labels[~fits][0]:g} is among its values."
            )

    def _class_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of classes, where they are named and the objective is of several."""
        objective = params.get("objective", self.DEFAULT_OBJECTIVE)
        if not self.classes or self.TASKS.get(str(objective)) != "multiclass":
            return {}
        n_classes = len(self.classes)
        if params.get("num_class") not in (None, n_classes):
            raise InputError(
                f"num_class is {params['num_class']}, and classes names {n_classes}: leave "
                "num_class out."
            )
        return {"num_class": n_classes}

    def _task(self, params: Mapping[str, Any]) -> Task:
        for name in params:
            if name in self.RESERVED:
                raise InputError(f"Set {self.RESERVED[name]}, not {name} in params.")
        for name, value in params.items():
            # Neither library refuses it: the model would be of NaN, or of one step.
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value!r} in params: give a finite number.")
        objective = params.get("objective", self.DEFAULT_OBJECTIVE)
        task = self.TASKS.get(str(objective))
        if task is None:
            raise InputError(
                f"The objective {objective!r} cannot be trained here; choose one of "
                f"{', '.join(sorted(self.TASKS))}, or write a train function of your own."
            )
        n_classes = {**params, **self._class_params(params)}.get("num_class")
        if task == "multiclass" and n_classes is None:
            raise InputError(
                f"The objective {objective!r} needs num_class in params, or the names of all "
                "classes in classes."
            )
        return task

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no trial can set."""
        given = [name for name in names if name != "rounds"]
        for name in self._native_names(dict.fromkeys(given)):
            if name in self.RESERVED:
                raise InputError(f"Search {self.RESERVED[name]}, not {name}.")
        self._check_aliases(given)

    def _own_params(self) -> dict[str, Any]:
        params = {"objective": self.DEFAULT_OBJECTIVE, **self._native_names(self.params)}
        return {**params, **self._class_params(params)}

    def _check_own_params(self) -> None:
        """Refuse the trainer's own parameters of which the library would pass over some."""
        self._check_aliases(self.params)
        self._check_known(self._own_params())

    def _check_known(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters that the library trains with, and does not use."""

    def _check_aliases(self, names: Collection[str]) -> None:
        """Refuse two names of one parameter, of which one would be passed over."""
        if len(self._native_names(dict.fromkeys(names))) < len(names):
            raise InputError(
                f"Two of {names_in_words([*names])} name one parameter: leave one out."
            )

    @abstractmethod
    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters by the library's first names for them, not by aliases."""

    def _of_features(self, params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return parameters with those that are of single features as the library writes them."""
        return by_place(params, names)


class BoostingTrainer(BoostingSettings, TabularTrainer):
    """The settings and steps that LightGBM and XGBoost share, for a model of each partition."""

    early_stopping_rounds: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Stop when the holdout has not improved for so many rounds, and keep the best "
        "one. The holdout's metrics are then a little too good.",
    )
    quantiles: Levels = Field(
        default=(),
        description="Quantiles of the label, such as 0.1 and 0.9, that are predicted beside it, "
        "each by a model of its own in the same file.",
    )
    min_rows: int = MIN_ROWS
    threads: int = Field(
        default=1,
        ge=1,
        description="Threads for one model, or more where the run gives a partition more CPUs "
        "(cpus). Partitions are trained side by side, so 1 is fastest for small ones.",
    )

    @model_validator(mode="after")
    def _check_settings(self) -> BoostingTrainer:
        if self.early_stopping_rounds is not None and self.holdout is None:
            raise ValueError("early_stopping_rounds needs a holdout")
        task = self._task(self.params)
        if self.quantiles and task != "regression":
            raise ValueError(f"quantiles are of numbers, and the trainer predicts for {task}")
        return self

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        super().check(schema, empty_columns, key_columns)
        self._check_own_params()
        if self.features or key_columns is not None:
            names = self._choose_features(schema, key_columns or ()).names
            self._of_features(self._native_names(self.params), names)

    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedBoosting:
        """Return the rows of a partition as the library takes them; see `Candidate.prepare`."""
        return PreparedBoosting(self, self._labelled(data.to_arrow()), context)

    def _stopping_rounds(
        self, data: TrainingData, params: Mapping[str, Any], ranked: Collection[str]
    ) -> int | None:
        """Return after how many rounds without progress a fit stops; None: it does not.

        The `ranked` metrics say how rows of one class stand to those of others. Where the holdout
        lacks a class they are NaN or 1 from the first round on, and nothing would be better than
        one round.
        """
        labels = data.holdout.labels
        if self.early_stopping_rounds is None or not len(labels):
            return None
        if ranked and len(np.unique(labels)) < int(params.get("num_class", 2)):
            logging.getLogger("partwise").warning(
                "The rows that are held out lack a class, of which %s says nothing: all rounds are "
                "trained.",
                " and ".join(sorted(ranked)),
            )
            return None
        return self.early_stopping_rounds

    @abstractmethod
    def _of_quantile(self, quantile: float) -> dict[str, Any]:
        """Return the library's parameters by which a quantile is predicted, and a fit stopped."""

    @abstractmethod
    def _fit(
        self,
        data: TrainingData,
        params: dict[str, Any],
        rounds: int,
        threads: int,
        look: Look | None,
    ) -> Fit:
        """Train a model, and predict the holdout with it."""


class PreparedBoosting:
    """The labelled rows of a partition, with their features as one matrix for all fits."""

    def __init__(
        self, trainer: BoostingTrainer, table: pa.Table, context: PartitionContext
    ) -> None:
        self._trainer, self._context = trainer, context
        self._columns = trainer._choose_features(table.schema, context.key_columns)
        self._label = trainer._label_of(table.schema)
        self.table = table = with_calendar(table, self._columns.names)
        self.labels = trainer._labels(table)
        self._categories = {
            name: find_categories(table.column(name)) for name in self._columns.categorical
        }
        self._matrix = feature_matrix(table, self._columns.names, self._categories)

    def fit(
        self,
        train: np.ndarray,
        test: np.ndarray | None = None,
        settings: Mapping[str, Any] | None = None,
        look: Look | None = None,
    ) -> Fit | Skip:
        """Train a model, and predict other rows with it; see `PreparedRows.fit`."""
        trainer, context = self._trainer, self._context
        # A table of params has a null where a partition has none of its own.
        of_call = {name: value for name, value in context.params.items() if value is not None}
        of_call |= settings or {}
        quantiles = tuple(sorted(trainer.quantiles))
        rounds = of_call.pop("rounds", trainer.rounds)
        if not (quantiles and isinstance(rounds, tuple)):
            rounds = (int(rounds),) * (1 + len(quantiles))
        if rounds[0] < 1:
            raise InputError(f"rounds is {rounds[0]}: give 1 boosting round or more.")
        params = {"objective": trainer.DEFAULT_OBJECTIVE, "seed": context.seed}
        # By the library's first names: an alias would stand beside the name that it is to override.
        params |= trainer._native_names(trainer.params) | trainer._native_names(of_call)
        # Once more, since the params of the partition may name another objective.
        task = trainer._task(params)
        params |= trainer._class_params(params)
        if context.params:
            trainer._check_known(params)
        params = trainer._of_features(params, self._columns.names)
        trainer._check_labels(self._label, self.labels, params, task)
        if (n_train := int(train.sum())) < trainer.min_rows:
            return Skip(f"too few rows: {n_train} of {trainer.min_rows}")
        data = self._training_data(train, test)
        threads = max(trainer.threads, context.threads)
        fit = replace(trainer._fit(data, params, rounds[0], threads, look), task=task)
        if not quantiles:
            return fit
        fits = [
            trainer._fit(data, params | trainer._of_quantile(each), own, threads, None)
            for each, own in zip(quantiles, rounds[1:], strict=True)
        ]
        model = QuantileModel(
            model=fit.model, quantiles=quantiles, models=tuple(each.model for each in fits)
        )
        of_quantiles = tuple(each.rounds for each in fits if each.rounds is not None)
        fit = replace(fit, model=model, quantile_rounds=of_quantiles)
        if fit.predictions is None:
            return fit
        found = [each.predictions for each in fits]
        crossed = (np.diff(np.stack(found), axis=0) < 0).any(axis=0)
        return replace(
            fit,
            predictions=with_quantiles(fit.predictions, quantiles, found),
            metrics={"crossed": float(crossed.mean())},
        )

    def _training_data(self, train: np.ndarray, test: np.ndarray | None) -> TrainingData:
        held_out = np.zeros(len(train), dtype=bool) if test is None else test
        matrix, categories = self._matrix, dict(self._categories)
        for place, name in enumerate(self._columns.names):
            if name not in categories:
                continue
            # What only other rows have is missing to this model, as in inference.
            codes = matrix[:, place]
            met = np.unique(codes[train & ~np.isnan(codes)]).astype(np.int64)
            if len(met) == len(categories[name]):
                continue
            if matrix is self._matrix:
                matrix = matrix.copy(order="F")
            new_codes = np.full(len(categories[name]), np.nan, dtype=matrix.dtype)
            new_codes[met] = np.arange(len(met))
            present = ~np.isnan(codes)
            matrix[present, place] = new_codes[codes[present].astype(np.int64)]
            categories[name] = [categories[name][code] for code in met]
        # An index would copy the matrix.
        whole = train.all()
        return TrainingData(
            columns=self._columns,
            categories=categories,
            train=LabelledRows(
                features=matrix if whole else matrix[train],
                labels=self.labels if whole else self.labels[train],
            ),
            holdout=LabelledRows(features=matrix[held_out], labels=self.labels[held_out]),
        )
