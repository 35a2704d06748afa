"""Forecasts of a series by any trainer of features, to which earlier values are features too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, model_validator

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError
from partwise.evaluation import HoldoutByTime, HoldoutFraction
from partwise.models.composite_models import LagModel, lag_names, reach_of, with_lags
from partwise.outcomes import Skip
from partwise.settings import kind_field
from partwise.tables.times import times_of
from partwise.trainers.ready.lightgbm import LightGBMTrainer
from partwise.trainers.ready.naive import ForecastTrainer, PreparedPlain
from partwise.trainers.ready.predict import predict_ready
from partwise.trainers.ready.scikit_learn import Linear, RandomForest
from partwise.trainers.ready.xgboost import XGBoostTrainer
from partwise.trainers.scored import check_fit_on, label_named

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_Inner = LightGBMTrainer | XGBoostTrainer | Linear | RandomForest
_Steps = Annotated[int, Field(ge=1)]


class Lagged(ForecastTrainer):
    """Forecast with a trainer of features, which gets earlier labels as features besides its own.

    Its own features have to be known of the rows to come, as those of the calendar are. Steps count
    as those of `SeasonalNaive`. A step without a row has no label: a lag is missing there, and a
    mean is that of the others.

    Example:
        >>> from partwise import LightGBMTrainer
        >>> trainer = LightGBMTrainer(label="sales", features=("price",))
        >>> Lagged(trainer, lags=(7, 14), means=(28,), time="date").candidate_name
        'lagged_lightgbm'
    """

    model_config = ConfigDict(title="Lagged")

    kind: Literal["lagged"] = kind_field("lagged")
    trainer: Annotated[_Inner, Field(discriminator="kind")] = Field(
        description="What is trained. Its own holdout does not count.",
    )
    lags: tuple[_Steps, ...] = Field(
        default=(1,),
        min_length=1,
        description="So many steps of time before a row lie the labels that are its features.",
    )
    means: tuple[_Steps, ...] = Field(
        default=(),
        title="Rolling means",
        description="Means of so many labels in a row are features as well; the last of them is "
        "that of the least lag.",
    )
    horizon: int = Field(
        default=100, ge=1, description="How many steps of time the kept model predicts at most."
    )
    strategy: Literal["recursive", "direct"] = Field(
        default="recursive",
        description='"recursive": one model, whose forecasts stand for the labels that are not '
        'known yet. "direct": a model for each step of the horizon, of labels that are known.',
    )

    def __init__(self, trainer: Any = None, **settings: Any) -> None:
        super().__init__(**{**settings, "trainer": trainer})

    @model_validator(mode="before")
    @classmethod
    def _take_label(cls, given: Any) -> Any:
        """Have the label that its trainer names."""
        if not isinstance(given, dict):
            return given
        return {**given, "label": given.get("label") or label_named(given.get("trainer"))}

    @model_validator(mode="after")
    def _check_trainer(self) -> Lagged:
        trainer = self.trainer
        if trainer.task != "regression":
            raise ValueError(f"forecasts are numbers, and the trainer predicts for {trainer.task}")
        if trainer.label not in ("", self.label):
            raise ValueError(f"the trainer predicts {trainer.label!r}, and Lagged {self.label!r}")
        if trainer.holdout not in (HoldoutFraction(), self.holdout):
            raise ValueError("give holdout to Lagged, which scores forecasts by it")
        if trainer.intervals:
            raise ValueError("give intervals to Lagged, not to its trainer")
        if getattr(trainer, "early_stopping_rounds", None) is not None:
            raise ValueError("leave early_stopping_rounds out: it looks one step ahead only")
        for name in ("lags", "means"):
            if len(set(steps := getattr(self, name))) < len(steps):
                raise ValueError(f"{name} names a number twice: {list(steps)}")
        return self

    @property
    def candidate_name(self) -> str:
        """How it is called among candidates."""
        return f"lagged_{self.trainer.kind}"

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that train."""
        return self.trainer.libraries

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported to train."""
        return self.trainer.modules

    def calendar_zones(self, schema: pa.Schema) -> dict[str, str]:
        """Return the time zones of the columns of which calendar features are made."""
        return self.trainer.calendar_zones(schema)

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse names that no trial can set."""
        self.trainer.check_settings(names)

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        super().check(schema, empty_columns, key_columns)
        check_fit_on(self, self.trainer, f"The trainer {self.trainer.kind!r}")
        inner = self._inner(schema)
        inner.check(self._lagged_schema(schema), empty_columns, key_columns)

    def reads(self, schema: pa.Schema) -> list[str] | None:  # type: ignore[override]
        """Return the columns that are looked at; None: all of them."""
        theirs = self._inner(schema).reads(self._lagged_schema(schema))
        if theirs is None:
            return None
        made = lag_names(self.lags, self.means)
        return list(dict.fromkeys([*super().reads(schema), *(n for n in theirs if n not in made)]))

    def _lagged_schema(self, schema: pa.Schema) -> pa.Schema:
        for name in lag_names(self.lags, self.means):
            if name in schema.names:
                raise ColumnError(
                    f"The rows have a column {name!r}, as a feature of earlier labels is called: "
                    "give it another name."
                )
            schema = schema.append(pa.field(name, pa.float64()))
        return schema

    def _inner(self, schema: pa.Schema) -> Any:
        """Return the trainer as it is fitted: by the holdout it knows that time is no feature."""
        own = self.trainer
        made = lag_names(self.lags, self.means)
        # Where all columns are features, those that are made here are among them.
        features = (*own.features, *made) if own.features else ()
        update = {
            "label": self._label_of(schema),
            "features": features,
            "holdout": HoldoutByTime(column=self._time_column()),
        }
        return own.model_copy(update=update)

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        settings: Mapping[str, Any],
    ) -> LagModel | Skip:
        # One step back is one in any series.
        seasons = [steps for steps in (*self.lags, *self.means) if steps > 1] or [2]
        series = self._regular_series(rows, train, test, seasons)
        if isinstance(series, Skip):
            return series
        scale, places, means, ahead = series
        length = int(1 - places[0])
        values = np.full(length, np.nan)
        values[places - places[0]] = means
        reach = reach_of(self.lags, self.means)
        column = rows.table.column(self._time_column())
        present = train & times_of(column).present
        at = scale.steps(column.filter(pa.array(present)), "The time column") - places[0]
        table = rows.table.filter(pa.array(present))
        inner, models = self._inner(rows.table.schema), []
        for ahead_of in range(self.horizon if self.strategy == "direct" else 1):
            known = at - ahead_of >= reach
            if not known.any():
                needed = reach + ahead_of + 1
                return Skip(f"too short: {length} steps of time, and {needed} are needed")
            chosen = table.filter(pa.array(known))
            lagged = with_lags(chosen, values, at[known] - ahead_of, self.lags, self.means)
            prepared = inner.prepare(DataConnector(lagged), rows.context)
            fit = prepared.fit(np.ones(lagged.num_rows, dtype=bool), None, settings)
            if isinstance(fit, Skip):
                return fit
            models.append(fit.model)
        recent = np.append(np.full(reach, np.nan), values)[-reach:]
        return LagModel(
            time=self._time_column(),
            scale=scale,
            lags=self.lags,
            means=self.means,
            recent=recent,
            # Of direct models too: those of the first step come after that of the last.
            horizon=max(self.horizon, ahead),
            models=tuple(models),
            direct=self.strategy == "direct",
        )

    def _predict(self, model: Any, rows: PreparedPlain, test: np.ndarray) -> Any:
        return predict_ready(
            DataConnector(rows.table.filter(pa.array(test))), model, rows.context.threads
        )
