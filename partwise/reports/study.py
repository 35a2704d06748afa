"""The trials of a study as pictures: its history, what decides, and the settings of each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from partwise.formatting import number, shortened, value_text
from partwise.outcomes import PartitionStatus
from partwise.reports.scales import Scale, Tick, anchor_at, plain_number, scale_of, seconds_text
from partwise.runs.run import Run
from partwise.runs.trials import Trial, best_of, read_trials
from partwise.studies.search import importances

MOST_DOTS = 1_000
MOST_LINES = 150
MOST_AXES = 8
MOST_ROWS = 100
_NAME_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A trial by its number and value; places in percent."""

    x: float
    y: float
    is_best: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting in the picture of all settings, the value last."""

    name: str
    at: float
    """Percent of the picture's width."""
    low: str
    high: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A trial across all axes."""

    places: tuple[tuple[float, float, float, float], ...]
    """Of each piece x and y at both ends, in percent."""
    is_best: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPicture:
    """A study."""

    metric: str
    best: int
    best_value: str
    best_settings: tuple[tuple[str, str], ...]
    trials: int
    done: int
    pruned: int
    dots: tuple[Dot, ...]
    steps: tuple[tuple[float, float, float, float], ...]
    """The best value by then, as lines: x and y at both ends, in percent."""
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    is_log: bool
    importances: tuple[tuple[str, float], ...]
    """Settings by how much they decide, in percent, the most first."""
    axes: tuple[Axis, ...]
    lines: tuple[Line, ...]
    names: tuple[str, ...]
    """Of the settings in `rows`."""
    rows: tuple[tuple[str, ...], ...]
    """Trials as texts: number, status, value, seconds, and the settings; the best first."""


def describe_study(run: Run) -> StudyPicture | None:
    """Return the pictures of a study; None: the run is none, or no trial has a value yet."""
    trials = read_trials(run.ledger) if run.kind == "tune" else []
    best = best_of(trials)
    if best is None or best.value is None:
        return None
    done = [trial for trial in trials if trial.status is PartitionStatus.DONE]
    # Of very many, evenly chosen ones, and the best.
    # It comes last, as SVG draws what comes later over what was there.
    shown = [trial for trial in _evenly(done, MOST_DOTS) if trial is not best] + [best]
    values = np.array([trial.value for trial in shown], dtype=float)
    x_scale = Scale(low=0.0, high=float(max(1, trials[-1].number)))
    y_scale = scale_of(values)
    decide = importances(trials)
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    varied = sorted(
        (name for name in names if len({json.dumps(t.settings.get(name)) for t in done}) > 1),
        key=lambda name: -decide.get(name, 0.0),
    )
    axes, lines = _parallel(_evenly(done, MOST_LINES), best, varied[: MOST_AXES - 1])
    ranked = sorted(trials, key=lambda trial: (trial.record.loss, trial.number))
    return StudyPicture(
        metric=shortened(best.metric, _NAME_CHARS),
        best=best.number,
        best_value=number(best.value),
        best_settings=tuple(
            (shortened(name, _NAME_CHARS), _text(value)) for name, value in best.settings.items()
        ),
        trials=len(trials),
        done=len(done),
        pruned=sum(trial.record.pruned for trial in trials),
        dots=tuple(
            Dot(
                x=float(x_scale.place(trial.number)),
                y=float(100 - y_scale.place(value)),
                is_best=trial is best,
                text=f"trial {trial.number}: {number(value)}",
            )
            for trial, value in zip(shown, values.tolist(), strict=True)
        ),
        steps=tuple(_steps(done, x_scale, y_scale)),
        x_ticks=tuple(x_scale.ticks(plain_number)),
        y_ticks=tuple(y_scale.ticks(plain_number)),
        is_log=y_scale.is_log,
        importances=tuple(
            (shortened(name, _NAME_CHARS), round(100 * share, 1)) for name, share in decide.items()
        ),
        axes=axes,
        lines=lines,
        names=tuple(shortened(name, _NAME_CHARS) for name in names[:MOST_AXES]),
        rows=tuple(_row(trial, names[:MOST_AXES]) for trial in ranked[:MOST_ROWS]),
    )


def _evenly(trials: Sequence[Trial], most: int) -> list[Trial]:
    if len(trials) <= most:
        return list(trials)
    places = np.linspace(0, len(trials) - 1, most).astype(int)
    return [trials[place] for place in places]


def _steps(
    done: Sequence[Trial], x_scale: Scale, y_scale: Scale
) -> list[tuple[float, float, float, float]]:
    """Return the best value by then as level and upright lines."""
    lines: list[tuple[float, float, float, float]] = []
    lowest: Trial | None = None
    x = y = 0.0
    for trial in done:
        if trial.value is None or (lowest and trial.record.loss >= lowest.record.loss):
            continue
        new_x, new_y = float(x_scale.place(trial.number)), float(100 - y_scale.place(trial.value))
        if lowest is not None:
            lines += [(x, y, new_x, y), (new_x, y, new_x, new_y)]
        lowest, x, y = trial, new_x, new_y
    return [*lines, (x, y, 100.0, y)]


def _parallel(
    done: Sequence[Trial], best: Trial, names: Sequence[str]
) -> tuple[tuple[Axis, ...], tuple[Line, ...]]:
    """Return an axis for each setting and for the value, and a line across them for each trial."""
    if not names:
        return (), ()
    trials = [trial for trial in done if trial is not best] + [best]
    columns = [_axis([trial.settings.get(name) for trial in trials]) for name in names]
    columns.append(_axis([trial.value for trial in trials]))
    at = [round(100 * place / (len(columns) - 1), 2) for place in range(len(columns))]
    axes = tuple(
        Axis(
            name=shortened(name, _NAME_CHARS),
            at=x,
            low=low,
            high=high,
            anchor=anchor_at(x),
        )
        for name, x, (_, low, high) in zip([*names, best.metric], at, columns, strict=True)
    )
    lines = tuple(
        Line(
            places=tuple(
                (at[i], columns[i][0][row], at[i + 1], columns[i + 1][0][row])
                for i in range(len(columns) - 1)
            ),
            is_best=trial is best,
            text=f"trial {trial.number}: {number(trial.value or 0.0)}",
        )
        for row, trial in enumerate(trials)
    )
    return axes, lines


def _axis(values: Sequence[object]) -> tuple[list[float], str, str]:
    """Return where values stand on an axis, in percent from above, and what its ends are."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        numbers = np.array(values, dtype=float)
        scale = scale_of(numbers)
        if numbers.min() < numbers.max():
            # The ends are labelled by what was tried, and 0 was not.
            scale = replace(scale, low=max(scale.low, float(numbers.min())))
        places = (100 - scale.place(numbers)).tolist()
        return places, plain_number(scale.low), plain_number(scale.high)
    texts = [_text(value) for value in values]
    kinds = sorted(set(texts))
    share = 100 / max(1, len(kinds) - 1)
    return [round(100 - share * kinds.index(text), 2) for text in texts], kinds[0], kinds[-1]


def _row(trial: Trial, names: Sequence[str]) -> tuple[str, ...]:
    return (
        str(trial.number),
        trial.status.value,
        "" if trial.value is None else number(trial.value),
        "" if trial.seconds is None else seconds_text(trial.seconds),
        *(_text(trial.settings[name]) if name in trial.settings else "" for name in names),
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return shortened(value_text(value), _NAME_CHARS)
