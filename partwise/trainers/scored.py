"""What trainers that are scored have in common: a label, features, a holdout, and metrics."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from partwise.choices import FitOn  # noqa: TC001
from partwise.errors import ColumnError, InputError
from partwise.evaluation import CrossValidation, Evaluation, HoldoutFraction
from partwise.form_schema import for_forms
from partwise.outcomes import Result, Skip
from partwise.settings import Settings
from partwise.tables.calendar import source_columns, zones_of
from partwise.tables.classes import ClassValue, class_array
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.column_types import is_number, is_text
from partwise.tables.features import (
    DECIMAL_COMMA,
    FeatureColumns,
    choose_features,
    label_numbers,
)
from partwise.tables.roles import marked_labels
from partwise.trainers.candidate import fit_kept, score, with_intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partwise.choices import Task
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.trainers.candidate import PreparedRows


def _plain(given: Any) -> Any:
    """Return a value of numpy's, or a whole number with a point, as Python has it."""
    value = given.item() if isinstance(given, np.generic) else given
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_order(given: Any) -> Any:
    if isinstance(given, set | frozenset):
        raise ValueError(f"classes have an order, that of a model's outputs, and {given} has none")
    return given


_Class = Annotated[StrictBool | StrictInt | StrictStr, BeforeValidator(_plain)]
Classes = Annotated[tuple[_Class, ...], BeforeValidator(_in_order)]
"""All classes of a label, in the order of a model's outputs."""


def _different(given: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(given)) < len(given):
        raise ValueError(f"one is named twice: {list(given)}")
    return given


Levels = Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], AfterValidator(_different)]
"""Shares, or quantiles, each once."""

MIN_ROWS: Any = Field(
    default=10,
    ge=1,
    title="Fewest rows",
    description="A partition with fewer rows to train on is skipped.",
)
"""The field of trainers that skip small partitions."""


class LabelSettings(Settings):
    """The column that a model predicts."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=for_forms)

    label: str = Field(
        default="",
        kw_only=False,
        description="The column to be predicted. Rows in which it is null are left out. Empty: the "
        "one that the dataset marks as its label.",
    )
    classes: Classes = Field(
        default=(),
        description="All classes that the label has in any partition: text, booleans or whole "
        "numbers, in the order of a model's outputs. Of two, a probability is that of the second. "
        "Empty: classes are counted from 0.",
    )

    ADDED_SETTINGS: ClassVar[Mapping[str, Any]] = {
        "classes": (),
        "intervals": (),
        "quantiles": (),
    }
    """Settings with the value that leaves the fingerprints of earlier runs as they were."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that train, besides partwise."""
        return ()

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported to train, for processes that train to find it loaded."""
        return self.libraries

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
                f"The label {label!r} is missing; {columns_there(schema.names, label)}"
            )
        if label in empty_columns:
            raise ColumnError(f"The label {label!r} is null in every row.")
        self._check_classes(label, schema.field(label).type)

    def _check_classes(self, label: str, kind: pa.DataType) -> None:
        """Refuse a label that is neither numbers nor one of the classes that are named."""
        task: Task | None = getattr(self, "task", None)
        if self.classes and task == "regression":
            raise InputError(
                f"classes go with a label of classes, and {type(self).__name__} predicts a number: "
                "leave classes out, or have it predict classes."
            )
        if self.classes and (n := len(self.classes)) != 2 and (task == "binary" or n < 2):
            wanted = "two classes are" if task == "binary" else "at least two classes are"
            raise InputError(f"{wanted} needed, and classes names {n}: {list(self.classes)}.")
        if self.classes:
            class_array(label, kind, self.classes)
            return
        # Categories of text need names as well: each partition has codes of its own.
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        if is_text(values) and task != "regression":
            raise ColumnError(
                f"The label {label!r} is {kind}: name all of its classes, as in classes=['no', "
                "'yes'] (--classes no,yes). Of two, a probability is that of the second."
            )
        if not is_number(kind):
            hint = f" {DECIMAL_COMMA}" if is_text(kind) else ""
            raise ColumnError(
                f"The label {label!r} is {kind}, but numbers are needed: where it is classes, have "
                f"the trainer predict classes, and name them in classes.{hint}"
            )

    def label_classes(self, schema: pa.Schema) -> tuple[str, pa.Array] | None:
        """Return the label and its classes, which are kept beside a model; None: it names none."""
        if not self.classes:
            return None
        label = self._label_of(schema)
        return label, class_array(label, schema.field(label).type, self.classes)

    def _labels(self, table: pa.Table) -> np.ndarray:
        """Return the labels of rows as doubles of shape (n,), NaN where there is none.

        Of classes that are named, a label is the place.
        """
        label = self._label_of(table.schema)
        return label_numbers(label, table.column(label), self.classes)


class FeatureSettings(LabelSettings):
    """The label, and the columns that it is predicted from."""

    features: tuple[str, ...] = Field(
        default=(),
        description="The columns to predict from. None: all but the label, the key columns and "
        "the holdout's time column.",
    )
    categorical: tuple[str, ...] = Field(
        default=(),
        title="Categorical features",
        description="Features whose values are categories. Those of an Arrow dictionary type are "
        "so in any case; text is a feature only when it is listed here.",
    )
    calendar: tuple[str, ...] = Field(
        default=(),
        title="Calendar features",
        description="Dates and times that become features as numbers: of a column day, day@year, "
        "day@month, day@day, day@weekday (0 is Monday), day@day_of_year, day@week (of ISO 8601) "
        "and day@epoch_days (since 1970-01-01), and of one with a time of day also day@hour and "
        "day@minute. Single ones are named in features.",
    )

    def calendar_zones(self, schema: pa.Schema) -> dict[str, str]:
        """Return the time zones of the columns of which calendar features are made, by name."""
        made = [name for name in self.features if name not in schema.names]
        return zones_of([*made, *self.calendar], schema)


OWN_TRAINERS_ONLY = "intervals stand beside models of partwise's own trainers, not of functions."


class HoldoutTrainer(LabelSettings):
    """A trainer that holds out rows on which models are scored."""

    holdout: Evaluation | None = Field(
        default=HoldoutFraction(),
        description="The rows that are not trained on, from which the metrics are computed: drawn "
        "at random, the latest, the windows of a backtest, or the folds of a cross-validation, "
        "each with a model of its own. None: all rows are trained on, and there are no such "
        "metrics.",
    )
    fit_on: FitOn = Field(
        default="auto",
        description="The rows that the kept model is trained on: all, those that are not held out "
        'in the last window ("train"), or "auto": all after a backtest or a cross-validation and '
        "of forecasts by time, else those that are not held out.",
    )

    intervals: Levels = Field(
        default=(),
        description="Shares of labels, such as 0.9, that are to lie between two bounds beside each "
        "prediction: as far from it as predictions of the rows held out were off in that share "
        "of them.",
    )

    @model_validator(mode="after")
    def _check_holdout(self) -> HoldoutTrainer:
        if self.intervals and self.holdout is None:
            raise ValueError("intervals need a holdout, whose errors they are made of")
        if self.fit_on == "train" and isinstance(self.holdout, CrossValidation):
            raise ValueError(
                'fit_on="train" needs a last window, which a cross-validation does not have'
            )
        return self

    @property
    @abstractmethod
    def task(self) -> Task:
        """What is predicted: a number, or one of two or more classes."""

    @property
    def evaluation(self) -> Evaluation | None:
        """The rows that models are scored on: those of `holdout`, as this trainer can use it."""
        return None if self.holdout is None else self.scored_on(self.holdout)

    def scored_on(self, holdout: Evaluation) -> Evaluation:
        """Return a holdout as this trainer can use it: by time, where its models forecast.

        Raises:
            ColumnError: The time column is not known.
            InputError: It cannot be used.
        """
        return holdout

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,  # noqa: ARG002 (others look at them)
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        self._check_label_column(schema, empty_columns)
        if self.intervals and self.task != "regression":
            raise InputError(f"intervals are of numbers, and the task is {self.task}.")
        if (evaluation := self.evaluation) is not None:
            evaluation.check(schema, empty_columns)

    def held_out(self, table: pa.Table, seed: int) -> tuple[pa.Table, np.ndarray]:
        """Return the rows that are held out of training, and their labels.

        Returns:
            The rows (all labelled ones, where none is held out), and the labels as doubles of shape
            (n,).

        Raises:
            ColumnError: The label is missing, or null in every row.
        """
        rows = self._labelled(table)
        evaluation = self.evaluation
        splits = [] if evaluation is None else evaluation.splits(rows, seed)
        if not isinstance(splits, Skip) and splits:
            rows = rows.filter(pa.array(np.logical_or.reduce([split.test for split in splits])))
        return rows, self._labels(rows)

    def _labelled(self, table: pa.Table) -> pa.Table:
        """Return the rows that have a label."""
        label = self._label_of(table.schema)
        if label not in table.column_names:
            raise ColumnError(f"The label {label!r} is missing.")
        present = ~np.isnan(self._labels(table))
        if not present.any():
            raise ColumnError(f"The label {label!r} is null in all {table.num_rows} rows.")
        return table if present.all() else table.filter(pa.array(present))


def check_fit_on(outer: HoldoutTrainer, inner: object, what: str) -> None:
    """Refuse a setting of a trainer within another one, which alone says what is kept.

    `what` is what a message calls it. It is no part of the settings' own checks, as earlier
    releases passed over it, and their runs are read.
    """
    own = getattr(inner, "fit_on", "auto") if isinstance(inner, HoldoutTrainer) else "auto"
    if own not in ("auto", outer.fit_on):
        raise InputError(
            f"{what} has fit_on={own!r}, which does not count: give fit_on to "
            f"{type(outer).__name__}, which trains the model that is kept."
        )


def libraries_of(trainer: object) -> tuple[str, ...]:
    """Return the libraries that a trainer of partwise trains with; of anything else, none.

    An attribute of that name on a user's function or class is the user's own affair.
    """
    return trainer.libraries if isinstance(trainer, LabelSettings) else ()


def modules_of(trainer: object) -> tuple[str, ...]:
    """Return what a trainer of partwise imports to train; of anything else, nothing is known."""
    return trainer.modules if isinstance(trainer, LabelSettings) else ()


def classes_named(trainer: object) -> tuple[ClassValue, ...]:
    """Return the classes that settings name, be they a trainer or as a document has them."""
    if isinstance(trainer, LabelSettings):
        return trainer.classes
    classes = trainer.get("classes") if isinstance(trainer, dict) else ()
    # Of a document nothing has been checked yet.
    return tuple(classes) if isinstance(classes, list | tuple) else ()


def label_named(trainer: object) -> str:
    """Return the label that settings name, be they a trainer or as a document has them."""
    label = trainer.get("label") if isinstance(trainer, dict) else getattr(trainer, "label", "")
    return label or ""


def task_of(classes: Sequence[ClassValue]) -> Task:
    """Return what train functions predict, of which only the classes are known."""
    if not classes:
        return "regression"
    return "binary" if len(classes) == 2 else "multiclass"


class ScoredTrainer(HoldoutTrainer):
    """A trainer whose models are scored on rows which they were not trained on."""

    @abstractmethod
    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedRows:
        """Return the labelled rows of a partition; see `Candidate.prepare`."""

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Train one partition, and measure the model on what is held out.

        Returns:
            The model with the metrics train_rows, holdout_rows, null_label_rows, where rows are
            held out holdout_<metric>, and for boosted trees rounds; or a Skip where there are too
            few rows.

        Raises:
            ColumnError: The label has no values, or a column's type does not fit.
            InputError: A label is infinite or no class, or a parameter cannot be used.
        """
        rows = self.prepare(data, context)
        evaluation = self.evaluation
        splits = [] if evaluation is None else evaluation.splits(rows.table, context.seed)
        if isinstance(splits, Skip):
            return splits
        scored = score(rows, splits, season=getattr(evaluation, "season", 1))
        if isinstance(scored, Skip):
            return scored
        if scored.reason:
            context.logger.warning("The metrics are the worst there are: %s.", scored.reason)
        kept = fit_kept(rows, scored, self.fit_on, evaluation)
        if isinstance(kept, Skip):
            return kept
        trained = splits[-1].train.sum() if kept is scored.last else rows.table.num_rows
        metrics: dict[str, float] = {} if kept.rounds is None else {"rounds": kept.rounds}
        metrics |= {
            "train_rows": int(trained),
            "holdout_rows": int(sum(split.test.sum() for split in splits)),
            "null_label_rows": data.to_arrow().num_rows - rows.table.num_rows,
        }
        if len(splits) > 1:
            metrics["windows"] = len(splits)
        metrics |= {f"holdout_{name}": value for name, value in scored.metrics.items()}
        model, of_intervals = with_intervals(kept.model, scored, self.intervals)
        return Result(model, metrics | of_intervals)


class TabularTrainer(FeatureSettings, ScoredTrainer):
    """A trainer whose models predict each row from its other columns."""

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        super().check(schema, empty_columns, key_columns)
        if self.features or key_columns is not None:
            self._choose_features(schema, key_columns or ())

    def reads(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns that are looked at: features, label and those of the holdout.

        Returns:
            None where no features are named: then all columns are looked at.
        """
        # A class that is derived from this one may look at more than these settings say.
        if not self.features or not type(self).__module__.startswith("partwise.trainers."):
            return None
        names = [*self.features, *self.calendar, self._label_of(schema)]
        if self.holdout is not None:
            names += self.holdout.columns
        return source_columns(names, schema)

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
            calendar=self.calendar,
        )
