"""What trainers of boosted trees have in common: settings, checks, rows, holdout and metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import ColumnError, InputError
from partwise.evaluation import (
    CrossValidation,
    Evaluation,
    FitOn,
    HoldoutFraction,
    fits_on_all,
)
from partwise.evaluation.metrics import Task
from partwise.form_schema import for_forms
from partwise.outcomes import Result, Skip
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_number
from partwise.tables.features import (
    Categories,
    FeatureColumns,
    choose_features,
    feature_matrix,
    find_categories,
    numbers,
)
from partwise.tables.roles import marked_labels
from partwise.trainers.candidate import Fit, Watch, score

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector


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


class BoostingSettings(BaseModel):
    """What trainers of boosted trees are told, whether of one model or of one per partition."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=for_forms)

    label: str = Field(
        default="",
        title="Label",
        description="The column to be predicted. Rows in which it is null are left out. Empty: the "
        "one that the dataset marks as its label.",
    )
    features: tuple[str, ...] = Field(
        default=(),
        title="Features",
        description="The columns to predict from. None: all but the label, the key columns and "
        "the holdout's time column.",
    )
    categorical: tuple[str, ...] = Field(
        default=(),
        title="Categorical features",
        description="Features whose values are categories. Those of an Arrow dictionary type are "
        "so in any case; text is a feature only when it is listed here.",
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        title="Parameters",
        description="The library's own parameters, by its own names. A partition's share of the "
        "run's params overrides them.",
    )
    rounds: int = Field(
        default=100, ge=1, title="Rounds", description="The most boosting rounds to train."
    )

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

    def _label_of(self, schema: pa.Schema) -> str:
        """Return the label's name: the one given, else the one that the rows' dataset marks."""
        marked = marked_labels(schema)
        if self.label or len(marked) == 1:
            return self.label or marked[0]
        found = (
            f"several columns are marked: {names_in_words(marked)}"
            if marked
            else ("the rows mark none, as those of a dataset registered with label= do")
        )
        raise ColumnError(
            f"The trainer was given no label, and {found}: it needs --label, or label= in Python."
        )

    def _check_label_column(self, schema: pa.Schema, empty_columns: frozenset[str]) -> None:
        label = self._label_of(schema)
        if label not in schema.names:
            raise ColumnError(
                f"The label {label!r} is missing; there are {names_in_words(schema.names)}."
            )
        if label in empty_columns:
            raise ColumnError(f"The label {label!r} is null in every row.")
        kind = schema.field(label).type
        if not is_number(kind):
            raise ColumnError(
                f"The label {label!r} is {kind}, but numbers are needed; classes are counted "
                "from 0."
            )

    def _check_labels(
        self, label: str, labels: np.ndarray, params: Mapping[str, Any], task: Task
    ) -> None:
        if task == "regression":
            fits, what = np.isfinite(labels), "a finite number"
        else:
            n_classes = 2 if task == "binary" else int(params["num_class"])
            fits = (labels >= 0) & (labels < n_classes) & (labels == np.floor(labels))
            what = f"a class from 0 to {n_classes - 1}"
        if not fits.all():
            raise InputError(
                f"The label {label!r} has to be {what} for the objective "
                f"{params['objective']!r}, but {labels[~fits][0]:g} is among its values."
            )

    def _task(self, params: Mapping[str, Any]) -> Task:
        for name in params:
            if name in self.RESERVED:
                raise InputError(f"Set {self.RESERVED[name]}, not {name} in params.")
        objective = params.get("objective", self.DEFAULT_OBJECTIVE)
        task = self.TASKS.get(str(objective))
        if task is None:
            raise InputError(
                f"The objective {objective!r} cannot be trained here; choose one of "
                f"{', '.join(sorted(self.TASKS))}, or write a train function of your own."
            )
        if task == "multiclass" and "num_class" not in params:
            raise InputError(f"The objective {objective!r} needs num_class in params.")
        return task

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no trial can set.

        Raises:
            InputError: The library does not know one, a setting stands for it, or two are one.
        """
        given = [name for name in names if name != "rounds"]
        native = self._native_names(dict.fromkeys(given))
        for name in native:
            if name in self.RESERVED:
                raise InputError(f"Search {self.RESERVED[name]}, not {name}.")
        if len(native) < len(given):
            raise InputError(f"Two of {names_in_words(given)} name one parameter: leave one out.")

    @abstractmethod
    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters by the library's first names for them, not by aliases."""


class BoostingTrainer(BoostingSettings):
    """The settings and steps that LightGBM and XGBoost share, for a model of each partition."""

    holdout: Evaluation | None = Field(
        default=HoldoutFraction(),
        title="Holdout",
        description="The rows that are not trained on, from which the metrics are computed: drawn "
        "at random, the latest, the windows of a backtest, or the folds of a cross-validation, "
        "each with a model of its own. None: all rows are trained on, and there are no such "
        "metrics.",
    )
    fit_on: FitOn = Field(
        default="auto",
        title="Fit on",
        description="The rows that the kept model is trained on: all, those that are not held out "
        'in the last window ("train"), or "auto": all after a backtest or a cross-validation, '
        "else those that are not held out.",
    )
    early_stopping_rounds: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        title="Early stopping rounds",
        description="Stop when the holdout has not improved for so many rounds, and keep the best "
        "one. The holdout's metrics are then a little too good.",
    )
    min_rows: int = Field(
        default=10,
        ge=1,
        title="Fewest rows",
        description="A partition with fewer rows to train on is skipped.",
    )
    threads: int = Field(
        default=1,
        ge=1,
        title="Threads",
        description="Threads for one model, or more where the run gives a partition more CPUs "
        "(partition_cpus). Partitions are trained side by side, so 1 is fastest for small ones.",
    )

    @model_validator(mode="after")
    def _check_settings(self) -> BoostingTrainer:
        if self.early_stopping_rounds is not None and self.holdout is None:
            raise ValueError("early_stopping_rounds needs a holdout")
        if self.fit_on == "train" and isinstance(self.holdout, CrossValidation):
            raise ValueError(
                'fit_on="train" needs a last window, which a cross-validation does not have'
            )
        self._task(self.params)
        return self

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work.

        Args:
            schema: Of the rows that partitions will have, key columns included.
            empty_columns: Columns in which every value of every partition is null.
            key_columns: The columns that make the keys. None: not known, so that features which
                nobody named are left unchecked.

        Raises:
            ColumnError: A column is missing or its type does not fit.
            InputError: The library does not know a parameter.
        """
        self._check_label_column(schema, empty_columns)
        if self.holdout is not None:
            self.holdout.check(schema, empty_columns)
        if self.features or key_columns is not None:
            self._choose_features(schema, key_columns or ())

    def reads(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns that are looked at: features, label and that of the holdout.

        Returns:
            None where no features are named: then all columns are looked at.
        """
        # A class that is derived from this one may look at more than these settings say.
        if not self.features or not type(self).__module__.startswith("partwise.trainers."):
            return None
        names = [*self.features, self._label_of(schema)]
        if self.holdout is not None:
            names += self.holdout.columns
        return list(dict.fromkeys(names))

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Train one partition, and measure the model on what is held out.

        Returns:
            The model with the metrics rounds, train_rows, holdout_rows, null_label_rows and, where
            rows are held out, holdout_<metric>; or a Skip where there are too few rows.

        Raises:
            ColumnError: The label has no values, or a column's type does not fit.
            InputError: A label is infinite or no class, or a parameter cannot be used.
        """
        rows = self.prepare(data, context)
        splits = [] if self.holdout is None else self.holdout.splits(rows.table, context.seed)
        if isinstance(splits, Skip):
            return splits
        season = getattr(self.holdout, "season", 1)
        scored = score(rows, splits, season=season)
        if isinstance(scored, Skip):
            return scored
        kept, trained = scored.last, splits[-1].train if splits else _all(rows)
        if kept is None or fits_on_all(self.fit_on, self.holdout):
            # Without early stopping, as no rows are left to stop by.
            settings = {} if scored.rounds is None else {"rounds": scored.rounds}
            trained = _all(rows)
            whole = rows.fit(trained, None, settings)
            if isinstance(whole, Skip):
                return whole
            kept = whole
        metrics: dict[str, float] = {
            "rounds": kept.rounds or 0,
            "train_rows": int(trained.sum()),
            "holdout_rows": int(sum(split.test.sum() for split in splits)),
            "null_label_rows": data.to_arrow().num_rows - rows.table.num_rows,
        }
        if len(splits) > 1:
            metrics["windows"] = len(splits)
        metrics |= {f"holdout_{name}": value for name, value in scored.metrics.items()}
        return Result(kept.model, metrics)

    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedBoosting:
        """Return the rows of a partition as the library takes them; see `Candidate.prepare`."""
        return PreparedBoosting(self, self._labelled(data.to_arrow()), context)

    def held_out(self, table: pa.Table, seed: int) -> tuple[pa.Table, np.ndarray]:
        """Return the rows that are held out of training, and their labels.

        Args:
            table: A partition's rows.
            seed: The partition's own, as in training.

        Returns:
            The rows (all labelled ones, where none is held out), and the labels as doubles of shape
            (n,).

        Raises:
            ColumnError: The label is missing, or null in every row.
        """
        rows = self._labelled(table)
        splits = [] if self.holdout is None else self.holdout.splits(rows, seed)
        if not isinstance(splits, Skip) and splits:
            rows = rows.filter(pa.array(np.logical_or.reduce([split.test for split in splits])))
        label = self._label_of(rows.schema)
        return rows, numbers(label, rows.column(label)).astype(np.float64, copy=False)

    def _choose_features(self, schema: pa.Schema, key_columns: Sequence[str]) -> FeatureColumns:
        # A key is constant within its partition, and another label would give this one away.
        left_out = {*key_columns, *marked_labels(schema)}
        if self.holdout is not None:
            left_out.update(self.holdout.columns)
        return choose_features(
            schema,
            label=self._label_of(schema),
            features=self.features,
            categorical=self.categorical,
            left_out=left_out,
        )

    def _labelled(self, table: pa.Table) -> pa.Table:
        """Return the rows that have a label."""
        label = self._label_of(table.schema)
        if label not in table.column_names:
            raise ColumnError(f"The label {label!r} is missing.")
        labels = table.column(label)
        present = ~np.isnan(numbers(label, labels))
        if not present.any():
            raise ColumnError(f"The label {label!r} is null in all {len(labels)} rows.")
        return table if present.all() else table.filter(pa.array(present))

    @abstractmethod
    def _fit(
        self,
        data: TrainingData,
        params: dict[str, Any],
        rounds: int,
        threads: int,
        watch: Watch | None,
    ) -> Fit:
        """Train a model, and predict the holdout with it."""


class PreparedBoosting:
    """The labelled rows of a partition, with their features as one matrix for all fits.

    Args:
        trainer: Fits them.
        table: The rows, all of which have a label.
        context: Of the partition.

    Raises:
        ColumnError: A column's type does not fit.
    """

    def __init__(
        self, trainer: BoostingTrainer, table: pa.Table, context: PartitionContext
    ) -> None:
        self.table = table
        self._trainer, self._context = trainer, context
        self._columns = trainer._choose_features(table.schema, context.key_columns)
        self._label = trainer._label_of(table.schema)
        labels = numbers(self._label, table.column(self._label))
        self.labels = labels.astype(np.float64, copy=False)
        self._categories = {
            name: find_categories(table.column(name)) for name in self._columns.categorical
        }
        self._matrix = feature_matrix(table, self._columns.names, self._categories)

    def fit(
        self,
        train: np.ndarray,
        test: np.ndarray | None = None,
        settings: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
    ) -> Fit | Skip:
        """Train a model, and predict other rows with it; see `PreparedRows.fit`.

        Raises:
            InputError: A label is infinite or no class, or a parameter cannot be used.
        """
        trainer, context = self._trainer, self._context
        # A table of params has a null where a partition has none of its own.
        of_call = {name: value for name, value in context.params.items() if value is not None}
        of_call |= settings or {}
        rounds = int(of_call.pop("rounds", trainer.rounds))
        params = {"objective": trainer.DEFAULT_OBJECTIVE, "seed": context.seed}
        # By the library's first names: an alias would stand beside the name that it is to override.
        params |= trainer._native_names(trainer.params) | trainer._native_names(of_call)
        # Once more, since the params of the partition may name another objective.
        task = trainer._task(params)
        trainer._check_labels(self._label, self.labels, params, task)
        if (n_train := int(train.sum())) < trainer.min_rows:
            return Skip(f"too few rows: {n_train} of {trainer.min_rows}")
        data = self._training_data(train, test)
        threads = max(trainer.threads, context.threads)
        return replace(trainer._fit(data, params, rounds, threads, watch), task=task)

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


def _all(rows: PreparedBoosting) -> np.ndarray:
    return np.ones(rows.table.num_rows, dtype=bool)
