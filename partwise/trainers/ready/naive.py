"""The trainers that a model has to beat: a mean, the last value, and that of a season before."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field

from partwise.choices import Task
from partwise.errors import ColumnError, InputError
from partwise.evaluation import Backtest, HoldoutByTime, by_time
from partwise.formatting import counted
from partwise.models.plain_models import ConstantModel, ForecastModel, PlainModel
from partwise.outcomes import Skip
from partwise.settings import kind_field
from partwise.tables.column_names import names_in_words
from partwise.tables.steps import is_of_business_days, scale_of
from partwise.tables.times import check_time_column, times_of
from partwise.trainers.candidate import Fit
from partwise.trainers.scored import ScoredTrainer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.evaluation import Evaluation
    from partwise.tables.steps import StepScale
    from partwise.trainers.candidate import Look


PREDICTS: Any = Field(
    default="regression",
    title="Predicts",
    description="A number, the probability of the second of two classes (0 and 1, unless classes "
    "are named), or those of several classes, which have to be named.",
)
"""The field of trainers whose models can be of each task."""

_MOST_GAPS = 10
"""Steps of time for each that rows are at, beyond which a series has no regular times."""


class PlainTrainer(ScoredTrainer):
    """A trainer of plain models, each of which is fitted by one function of rows."""

    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedPlain:
        """Return the labelled rows of a partition; see `Candidate.prepare`."""
        return PreparedPlain(self, self._labelled(data.to_arrow()), context)

    def _check_labels(self, labels: np.ndarray, task: Task) -> None:
        wrong = ~np.isfinite(labels)
        if task != "regression":
            wrong |= (labels < 0) | (labels != np.floor(labels))
            wrong |= labels >= self._n_classes()
        if wrong.any():
            what = (
                "finite" if task == "regression" else f"a class of a {task} model, counted from 0"
            )
            raise InputError(f"Labels have to be {what}, and {labels[wrong][0]:g} is among them.")

    def _check_classes(self, label: str, kind: pa.DataType) -> None:
        super()._check_classes(label, kind)
        if self.task == "multiclass":
            self._n_classes()

    def _n_classes(self) -> int:
        """Return how many classes each model of the run predicts."""
        if self.classes or self.task == "binary":
            return len(self.classes) or 2
        raise InputError(
            f"A {self.kind} model of several classes needs to know them all, as a partition may "  # type: ignore[attr-defined]
            "lack one: name them, as in classes=[0, 1, 2] (--classes 0,1,2)."
        )

    def _given(self, rows: PreparedPlain, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the partition's share of the run's params, and what a trial sets over it."""
        return {k: v for k, v in rows.context.params.items() if v is not None} | dict(settings)

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no partition and no trial can set: there are none that could."""
        if names:
            raise InputError(
                f"{type(self).__name__} has no parameters, and is given "
                f"{names_in_words(sorted(names))}."
            )

    @abstractmethod
    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        settings: Mapping[str, Any],
    ) -> PlainModel | Skip:
        """Train a model on some rows; `test` says which it will be scored on."""

    def _predict(self, model: Any, rows: PreparedPlain, test: np.ndarray) -> Any:
        """Predict some rows."""
        return model.predict(rows.table.filter(pa.array(test)))


class PreparedPlain:
    """The labelled rows of a partition; see `PreparedRows`."""

    def __init__(self, trainer: PlainTrainer, table: pa.Table, context: PartitionContext) -> None:
        self.table = table
        self.labels = trainer._labels(table)
        self.context = context
        self._trainer = trainer
        trainer._check_labels(self.labels, trainer.task)

    def fit(
        self,
        train: np.ndarray,
        test: np.ndarray | None = None,
        settings: Mapping[str, Any] | None = None,
        look: Look | None = None,  # noqa: ARG002 (there are no rounds)
    ) -> Fit | Skip:
        """Train a model, and predict other rows with it; see `PreparedRows.fit`."""
        if not train.any():
            return Skip("no row to train on")
        model = self._trainer._fit(self, train, test, settings or {})
        if isinstance(model, Skip):
            return model
        predictions = None
        if test is not None:
            predictions = self._trainer._predict(model, self, test)
        return Fit(model=model, predictions=predictions, task=self._trainer.task)


class Mean(PlainTrainer):
    """Predict the mean of the labels, or how frequent each class is.

    Example:
        >>> Mean(label="sales").task
        'regression'
    """

    model_config = ConfigDict(title="Mean")

    kind: Literal["mean"] = kind_field("mean")
    predicts: Task = PREDICTS

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.predicts

    def reads(self, schema: pa.Schema) -> list[str]:
        """Return the columns that are looked at."""
        return [self._label_of(schema), *([] if self.holdout is None else self.holdout.columns)]

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,  # noqa: ARG002 (no matter to this one)
        settings: Mapping[str, Any],  # noqa: ARG002 (it has none)
    ) -> ConstantModel:
        labels = rows.labels[train]
        if self.predicts != "multiclass":
            return ConstantModel(values=np.array([labels.mean()]))
        # A partition may lack a class, also the last one, and all models have the same outputs.
        counts = np.bincount(labels.astype(np.int64), minlength=self._n_classes())
        return ConstantModel(values=counts / counts.sum())


class ForecastTrainer(PlainTrainer):
    """A trainer that predicts by time alone, from the last row on.

    So it is scored on the latest rows, and the kept model is trained on all, unless `fit_on` says
    otherwise.
    """

    time: str = Field(
        default="",
        title="Time column",
        description="A timestamp, a date or a number that orders rows. Empty: that of the holdout. "
        "Of rows of one time the mean counts.",
    )

    @property
    def task(self) -> Task:
        """What is predicted: numbers."""
        return "regression"

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        time = self._time_column()
        check_time_column(time, f"The time column {time!r}", schema, empty_columns)
        super().check(schema, empty_columns, key_columns)

    def scored_on(self, holdout: Evaluation) -> Evaluation:
        """Return a holdout that is by time; see `HoldoutTrainer.scored_on`."""
        return by_time(holdout, self._time_in(holdout))

    def reads(self, schema: pa.Schema) -> list[str]:
        """Return the columns that are looked at."""
        of_holdout = () if self.holdout is None else self.holdout.columns
        time = self._time_column()
        return list(dict.fromkeys([time, self._label_of(schema), *of_holdout]))

    def _time_column(self) -> str:
        return self._time_in(self.holdout)

    def _time_in(self, holdout: Evaluation | None) -> str:
        if self.time:
            return self.time
        if isinstance(holdout, Backtest | HoldoutByTime):
            return holdout.columns[0]
        raise ColumnError(
            f"{type(self).__name__} predicts by time, and knows no time column: it needs "
            "--time, or time= in Python, or a holdout that has one, such as Backtest."
        )

    def _series(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        season: int | Sequence[int],
    ) -> tuple[StepScale, np.ndarray, np.ndarray] | Skip:
        """Return steps of time at which rows are, ascending up to 0, and the mean label of each."""
        column_name = self._time_column()
        column = rows.table.column(column_name)
        times = times_of(column)
        present = train & times.present
        seasons = np.atleast_1d(season)
        # Seven days are a week with its weekend. All rows say which days there are: in one that is
        # scored on, the first Saturday may come.
        no_weeks = bool(((seasons > 1) & (seasons % 7 != 0)).all())
        in_business_days = no_weeks and is_of_business_days(column)
        scale = scale_of(column.filter(pa.array(present)), business_days=in_business_days)
        if scale is None:
            return Skip("no row to train on has a time")
        if test is not None and (
            (times.numbers[test & times.present] <= times.numbers[present].max()).any()
        ):
            raise InputError(
                f"{type(self).__name__} forecasts what is after the rows trained on, and the "
                f"holdout has rows that by {column_name!r} are not: give a holdout by that column."
            )
        steps = scale.steps(column.filter(pa.array(present)), "The time column")
        places, codes = np.unique(steps, return_inverse=True)
        means = np.bincount(codes, rows.labels[present]) / np.bincount(codes)
        return scale, places, means

    def _regular_series(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        season: int | Sequence[int],
    ) -> tuple[StepScale, np.ndarray, np.ndarray, int] | Skip:
        """Return what `_series` does, and up to how many steps ahead rows are scored on.

        A Skip where most steps of time have no row: each of them takes memory.
        """
        series = self._series(rows, train, test, season)
        if isinstance(series, Skip):
            return series
        scale, places, means = series
        count, length = len(places), int(1 - places[0])
        if length > _MOST_GAPS * count:
            return Skip(f"rows are at {count} of {length} steps of time, which is not a series")
        if test is None or not test.any():
            return scale, places, means, 0
        column = rows.table.column(self._time_column()).filter(pa.array(test))
        ahead = int(scale.steps(column, "The time column").max())
        if ahead > _MOST_GAPS * (count + int(test.sum())):
            steps = f"{ahead} steps after {counted(count, 'row')}"
            return Skip(f"rows that are scored on are up to {steps}, which is not a series")
        return scale, places, means, ahead

    def _season_before(
        self, rows: PreparedPlain, train: np.ndarray, test: np.ndarray | None, season: int
    ) -> ForecastModel | Skip:
        """Return a model of the last season."""
        series = self._series(rows, train, test, season)
        if isinstance(series, Skip):
            return series
        scale, places, means = series
        if (length := int(1 - places[0])) < season:
            return Skip(f"too short: {length} steps of time, and a season of {season}")
        # A place of the season that no row is at has the mean of all.
        values = np.full(season, means.mean())
        values[(places - 1) % season] = means  # the last of each place stays
        # An hour that clocks show twice is the same place of the season both times.
        scale = replace(scale, last_instant=None)
        return ForecastModel(time=self._time_column(), scale=scale, values=values, repeats=True)


class SeasonalNaive(ForecastTrainer):
    """Predict what was a season before, or as many seasons before as it takes.

    Example:
        >>> SeasonalNaive(label="sales", time="date", season=7).season
        7
    """

    model_config = ConfigDict(title="Seasonal naive")

    kind: Literal["seasonal_naive"] = kind_field("seasonal_naive")
    season: int = Field(
        default=1,
        ge=1,
        description="Steps of time after which a season repeats: 7 for days of a week. A step is "
        "the most frequent distance between the times of rows. Of a series of Mondays to Fridays "
        "only, steps are business days (5 a week), unless a season is a number of 7 days.",
    )

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        settings: Mapping[str, Any],
    ) -> ForecastModel | Skip:
        given = self._given(rows, settings)
        self.check_settings(given)
        season = given.get("season", self.season)
        number = float(season) if isinstance(season, Real) else 0.0
        if number < 1 or not number.is_integer():
            raise InputError(f"season is {season!r}: give a whole number of steps, 1 or more.")
        return self._season_before(rows, train, test, int(number))

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no partition and no trial can set."""
        if unknown := [name for name in names if name != "season"]:
            raise InputError(
                f"SeasonalNaive has no parameter {names_in_words(unknown)}: it has season alone."
            )


class LastValue(ForecastTrainer):
    """Predict the last value for ever.

    Example:
        >>> LastValue(label="sales", time="date").time
        'date'
    """

    model_config = ConfigDict(title="Last value")

    kind: Literal["last_value"] = kind_field("last_value")

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        settings: Mapping[str, Any],  # noqa: ARG002 (it has none)
    ) -> ForecastModel | Skip:
        return self._season_before(rows, train, test, 1)
