"""Models made of other models, which may be of any library that partwise trains with itself.

They are kept as one file (`partwise.models.serdes.plain`). What predicts with the models inside is
given by whoever predicts, since they do not say it themselves.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.models.plain_models import PlainModel, check_steps, steps_of
from partwise.tables.steps import StepScale

_MOST_IN_WINDOWS = 4_000_000
"""Values of which means are made at one time."""

PredictWith = Callable[[pa.Table, Any], Any]
"""Predicts rows with a model inside."""


class CompositeModel(PlainModel):
    """A model that has others in it."""

    @property
    def format_version(self) -> int:
        """See `PlainModel.format_version`."""
        return 3

    @abstractmethod
    def predict_with(self, table: pa.Table, predict: PredictWith) -> Any:
        """Predict rows by the models inside."""

    def predict(self, table: pa.Table) -> np.ndarray:
        """Refuse: `partwise.default_predict` knows how the models inside predict."""
        raise NotImplementedError("predict with partwise.default_predict(data, model, context)")


def columns_of(outcome: Any) -> dict[str, Any]:
    """Return predictions by the names of their columns, that of the one number first."""
    return dict(outcome) if isinstance(outcome, Mapping) else {"prediction": outcome}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalModel(CompositeModel):
    """Gives bounds beside the predictions of a model, which are as far from it in each row."""

    KIND: ClassVar[str] = "intervals"

    model: Any
    levels: tuple[float, ...]
    half_widths: tuple[float | None, ...]
    """For each level; None where there were too few rows to know."""

    def predict_with(self, table: pa.Table, predict: PredictWith) -> Any:
        """Predict rows; see `CompositeModel.predict_with`."""
        columns = columns_of(predict(table, self.model))
        point = np.asarray(columns["prediction"], dtype=np.float64)
        for level, width in zip(self.levels, self.half_widths, strict=True):
            names = [f"prediction_{name}_{percent(level)}" for name in ("lower", "upper")]
            if width is None:
                columns |= dict.fromkeys(names, pa.nulls(len(point), pa.float64()))
            else:
                columns |= zip(names, (point - width, point + width), strict=True)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantileModel(CompositeModel):
    """Gives quantiles beside the predictions of a model, each by a model of its own."""

    KIND: ClassVar[str] = "quantiles"

    model: Any
    quantiles: tuple[float, ...]
    """Ascending."""
    models: tuple[Any, ...]
    """One for each quantile."""

    def predict_with(self, table: pa.Table, predict: PredictWith) -> Any:
        """Predict rows; see `CompositeModel.predict_with`."""
        point = predict(table, self.model)
        return with_quantiles(point, self.quantiles, [predict(table, each) for each in self.models])


def with_quantiles(
    point: Any, quantiles: tuple[float, ...], found: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Return predictions with those of ascending quantiles beside them.

    Where those of a row cross, as models of their own may do, they are put in order, which is never
    worse: Chernozhukov et al., Quantile and Probability Curves Without Crossing (2010).
    """
    ordered = np.sort(np.stack(found), axis=0)
    names = [f"prediction_q{percent(quantile)}" for quantile in quantiles]
    return {"prediction": point, **dict(zip(names, ordered, strict=True))}


def percent(share: float) -> str:
    """Return a share as the names of columns have it: 0.025 as 2.5."""
    # Six digits would make 100 of a share of 0.9999999.
    return f"{share * 100:.12g}"


def lag_names(lags: tuple[int, ...], means: tuple[int, ...]) -> list[str]:
    """Return what the features of earlier values are called."""
    of_means = [f"lag{min(lags)}_mean{window}" for window in means]
    return [*(f"lag{lag}" for lag in lags), *of_means]


def reach_of(lags: tuple[int, ...], means: tuple[int, ...]) -> int:
    """Return how many steps back the features of earlier values look."""
    return max(*lags, min(lags) + max(means, default=1) - 1)


def with_lags(
    table: pa.Table,
    values: np.ndarray,
    places: np.ndarray,
    lags: tuple[int, ...],
    means: tuple[int, ...],
) -> pa.Table:
    """Return rows with their features of earlier values.

    Args:
        table: n rows.
        values: Of all steps of time, NaN where none is known.
        places: Of the rows among these, from `reach_of` on; shape (n,).
        lags: How many steps back single values lie.
        means: Lengths of windows that end at the least of the lags; what is known in them counts.
    """
    columns = [
        *(values[places - lag] for lag in lags),
        *(_rolling_mean(values, places - min(lags), window) for window in means),
    ]
    for name, column in zip(lag_names(lags, means), columns, strict=True):
        if name in table.column_names:
            raise ColumnError(
                f"The rows have a column {name!r}, as a feature of earlier values is called: give "
                "it another name."
            )
        table = table.append_column(name, pa.array(column))
    return table


def _rolling_mean(values: np.ndarray, ends: np.ndarray, window: int) -> np.ndarray:
    means = np.empty(len(ends))
    # All windows at once, but of a long series.
    at_once = max(1, _MOST_IN_WINDOWS // window)
    for begin in range(0, len(ends), at_once):
        part = slice(begin, begin + at_once)
        found = values[ends[part, None] - np.arange(window)[::-1]]
        known = np.isfinite(found)
        total, count = np.where(known, found, 0).sum(axis=1), known.sum(axis=1)
        means[part] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LagModel(CompositeModel):
    """Forecasts a series by models that have earlier values of it among their features."""

    KIND: ClassVar[str] = "lags"

    time: str
    """The time column."""
    scale: StepScale
    lags: tuple[int, ...]
    means: tuple[int, ...]
    recent: np.ndarray
    """The last values, as many as features look back; NaN at steps without a row."""
    horizon: int
    """How many steps are forecast at most."""
    models: tuple[Any, ...]
    """One for each step, or one for all; their forecasts are the earlier values of later steps."""
    direct: bool
    """Whether there is one for each step."""

    @property
    def format_version(self) -> int:
        """See `PlainModel.format_version`."""
        return 3 if self.scale.last_instant is None else 4

    def predict_with(self, table: pa.Table, predict: PredictWith) -> Any:
        """Predict rows; see `CompositeModel.predict_with`."""
        steps = steps_of(table, self.time, self.scale)
        check_steps(steps, self.horizon)
        if not len(steps):
            return np.empty(0)
        last, reach = int(steps.max()), len(self.recent)
        # None of so many steps looks back at another of them.
        stride = len(self.models) if self.direct else min(self.lags)
        values = np.append(self.recent, np.full(last, np.nan))
        # Steps without a row are forecast as well, where later ones look back at them: from what is
        # null in all columns.
        looked_at = np.arange(1, last + 1) if last > stride else steps
        missing = np.setdiff1d(looked_at, steps)
        of_rows = np.append(np.arange(len(steps)), np.zeros(len(missing), np.int64))
        is_row = np.arange(len(of_rows)) < len(steps)
        all_steps = np.append(steps, missing)
        order = np.argsort(all_steps, kind="stable")
        all_steps, of_rows, is_row = all_steps[order], of_rows[order], is_row[order]
        rows = table.take(pa.array(of_rows, mask=~is_row))
        forecasts: dict[str, np.ndarray] = {}
        for first in range(1, last + 1, stride):
            ends = range(1, stride + 1) if self.direct else [stride]
            bounds = np.searchsorted(all_steps, [first, *(first + end for end in ends)])
            for place, (begin, end) in enumerate(pairwise(bounds)):
                if begin == end:
                    continue
                asked = np.full(end - begin, first) if self.direct else all_steps[begin:end]
                here = rows.slice(begin, end - begin)
                lagged = with_lags(here, values, reach + asked - 1, self.lags, self.means)
                for name, column in columns_of(predict(lagged, self.models[place])).items():
                    whole = forecasts.setdefault(name, np.empty(len(all_steps)))
                    whole[begin:end] = column
            begin, end = bounds[0], bounds[-1]
            of_step, codes = np.unique(all_steps[begin:end], return_inverse=True)
            sums = np.bincount(codes, forecasts["prediction"][begin:end])
            values[reach + of_step - 1] = sums / np.bincount(codes)
        back = np.argsort(of_rows[is_row])
        found = {name: column[is_row][back] for name, column in forecasts.items()}
        return found if len(found) > 1 else found["prediction"]
