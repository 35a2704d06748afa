"""Statistical models of one series, by the package statsforecast."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, JsonValue

from partwise.errors import InputError
from partwise.formatting import did_you_mean
from partwise.models.plain_models import ForecastModel
from partwise.outcomes import Skip
from partwise.settings import kind_field
from partwise.tables.column_names import names_in_words
from partwise.trainers.ready.naive import ForecastTrainer, PreparedPlain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa


class StatsForecast(ForecastTrainer):
    """Forecast with a model of statsforecast, from the times and labels of rows alone.

    Steps without rows are filled in between their neighbours. The kept model is the forecast for
    the next `horizon` steps after the last row trained on, so that it needs no package.

    Example:
        >>> StatsForecast("AutoETS", label="sales", time="date", season=7).horizon
        100
    """

    model_config = ConfigDict(title="StatsForecast")

    kind: Literal["statsforecast"] = kind_field("statsforecast")
    model: str = Field(
        default="AutoETS",
        description="A class of statsforecast.models: AutoETS, AutoARIMA, AutoTheta, AutoCES, "
        "SeasonalExponentialSmoothingOptimized and others that forecast a series.",
    )
    season: int = Field(
        default=1,
        ge=1,
        description="Steps of time after which a season repeats: 7 for days of a week, or 5 in a "
        "series of Mondays to Fridays only.",
    )
    horizon: int = Field(
        default=100,
        ge=1,
        description="How many steps of time the kept model predicts.",
    )
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        title="Parameters",
        description="Further arguments of the class.",
    )

    def __init__(self, model: str = "AutoETS", **settings: Any) -> None:
        super().__init__(**{**settings, "model": model})

    @property
    def candidate_name(self) -> str:
        """How it is called among candidates."""
        return self.model.lower()

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that train."""
        return ("statsforecast",)

    @property
    def modules(self) -> tuple[str, ...]:
        """Nothing: it brings polars, which starts a thread that a fork would lack."""
        return ()

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data; parameters that the class lacks too.

        See `Trainer.check`.
        """
        super().check(schema, empty_columns, key_columns)
        self.check_settings(self.params)

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse parameters that the class does not have."""
        if not names:
            return  # statsforecast takes seconds to import
        try:
            known = inspect.signature(self._class()).parameters
        except InputError as error:
            if isinstance(error.__cause__, ImportError):
                return  # the packages of the run may have it
            raise
        self._check_known(names, {*known, "season_length"})

    def _check_known(self, names: Collection[str], known: Collection[str]) -> None:
        if unknown := [name for name in names if name not in known]:
            raise InputError(
                f"{self.model} of statsforecast has no parameter {names_in_words(unknown)}."
                f"{did_you_mean(unknown[0], known)}"
            )

    def _class(self) -> type[Any]:
        try:
            from statsforecast import models
        except ImportError as error:
            raise InputError(
                "StatsForecast needs the package statsforecast: install partwise[statsforecast]."
            ) from error
        kind = getattr(models, self.model, None)
        if not isinstance(kind, type):
            meant = did_you_mean(self.model, vars(models))
            raise InputError(f"statsforecast.models has no class {self.model!r}.{meant}")
        return kind

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,
        settings: Mapping[str, Any],
    ) -> ForecastModel | Skip:
        params = {"season_length": self.season, **self.params, **self._given(rows, settings)}
        series = self._regular_series(rows, train, test, params["season_length"])
        if isinstance(series, Skip):
            return series
        scale, places, means, ahead = series
        regular = np.interp(np.arange(places[0], 1), places, means)
        values = self._forecast(regular, max(self.horizon, ahead), params)
        time = self._time_column()
        return ForecastModel(time=time, scale=scale, values=values, repeats=False)

    def _forecast(self, series: np.ndarray, horizon: int, params: Mapping[str, Any]) -> np.ndarray:
        kind = self._class()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Some classes, such as Naive, know no season.
            known = inspect.signature(kind).parameters
            if params["season_length"] == 1 and "season_length" not in known:
                params = {name: params[name] for name in params if name != "season_length"}
            self._check_known(params, known)
            forecast = kind(**params).forecast(y=series, h=horizon)
        return np.asarray(forecast["mean"], dtype=np.float64)
