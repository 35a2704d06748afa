"""The options that say on which rows models are scored."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError
from partwise.flows.cli.parsing import build_settings, flag, given_options, parse_value

if TYPE_CHECKING:
    from partwise.evaluation import Evaluation

_EVALUATIONS = {
    "backtest_time": ("backtest_horizon", "backtest_windows", "backtest_step"),
    "folds": ("fold_group",),
    "holdout_by_time": ("holdout_start", "holdout_fraction"),
    "no_holdout": (),
}
"""The option that chooses an evaluation, and those that go with it alone."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """On which rows models are scored: drawn ones, the latest, windows of time, or folds."""

    holdout_fraction: float | None = None
    """The share of each partition's rows that is held out for the metrics. Default: 0.2."""
    holdout_by_time: str | None = None
    """A column by which the latest rows are held out, in place of random ones."""
    holdout_start: str | None = None
    """With --holdout-by-time: the first time held out, in place of a fraction."""
    no_holdout: bool = False
    """Train on all rows, without metrics of a holdout."""
    backtest_time: str | None = None
    """A column of times: score on the last windows of it, with models of the rows before each."""
    backtest_horizon: str | None = None
    """With --backtest-time: the length of a window, such as 28D, 12h, or a number."""
    backtest_windows: int | None = None
    """With --backtest-time: how many windows. Default: 1."""
    backtest_step: str | None = None
    """With --backtest-time: from one window to the next. Default: the horizon."""
    folds: int | None = None
    """Score by cross-validation with so many folds."""
    fold_group: str | None = None
    """With --folds: a column whose equal values are in one fold."""
    season: int | None = None
    """Steps of time, or rows, after which a season repeats: for mase, and for seasonal_naive and
    models of statsforecast. Default: 1."""

    def evaluation(self) -> "dict[str, Evaluation | None]":
        """Return the setting `holdout` of a trainer; nothing where none was chosen.

        Raises:
            InputError: Options contradict each other, or one of them is wrong.
        """
        from partwise.evaluation import Backtest, CrossValidation, HoldoutByTime, HoldoutFraction

        chosen = self._chosen()
        make: Any
        settings: dict[str, Any]
        match chosen:
            case ["no_holdout"]:
                return {"holdout": None}
            case ["backtest_time"]:
                make = Backtest
                settings = {
                    "time": self.backtest_time,
                    "horizon": _period(self.backtest_horizon),
                    "windows": self.backtest_windows,
                    "step": _period(self.backtest_step),
                    "season": self.season,
                }
                if self.backtest_horizon is None:
                    raise InputError("--backtest-time goes with --backtest-horizon, such as 28D.")
            case ["folds"]:
                make, settings = CrossValidation, {"folds": self.folds, "group": self.fold_group}
            case ["holdout_by_time"]:
                start = None if self.holdout_start is None else parse_value(self.holdout_start)
                fraction = self.holdout_fraction
                make = HoldoutByTime
                settings = {"column": self.holdout_by_time, "start": start, "fraction": fraction}
            case _ if self.holdout_fraction is not None:
                make, settings = HoldoutFraction, {"fraction": self.holdout_fraction}
            case _:
                return {}
        holdout: Evaluation = build_settings(make, **given_options(settings))
        return {"holdout": holdout}

    def _chosen(self) -> list[str]:
        """Return the option that chooses an evaluation, as a list of one or none.

        Raises:
            InputError: There are several, or one that goes with another.
        """
        given = given_options(vars(self))
        chosen = [name for name in _EVALUATIONS if name in given]
        if len(chosen) > 1:
            raise InputError(f"{' and '.join(map(flag, chosen))} exclude each other: give one.")
        for choice, names in _EVALUATIONS.items():
            for name in names:
                # A fraction alone is that of random rows.
                alone = name == "holdout_fraction" and not chosen
                if name not in given or choice in chosen or alone:
                    continue
                if "no_holdout" in chosen:
                    raise InputError(f"--no-holdout does not go with {flag(name)}.")
                raise InputError(f"{flag(name)} goes with {flag(choice)}: give both.")
        return chosen


def _period(text: str | None) -> Any:
    """Return a number as such, and any other text as it is."""
    return None if text is None else parse_value(text)
