"""The trials of one partition: what each came to, and which is best."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal

from partwise.errors import TrialsFailedError
from partwise.outcomes import Skip
from partwise.trainers.candidate import PreparedRows, Score, Watch, score
from partwise.tuning.search import PrunedError, Search, Trial, settings_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partwise.trainers.choosing.choice import Question

CHECKPOINTS = 10
"""Of a fit, at which it may be given up: asking after each round would take longer than some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of a trial; a row of trials.json."""

    number: int
    settings: Mapping[str, Any]
    state: Literal["complete", "equal", "pruned", "failed", "skipped"]
    """Equal: to settings tried before, which were not fitted again."""
    value: float | None
    windows: Sequence[float | None] = ()
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a search a partition may do."""

    trials: int | None
    """None: as many as time allows."""
    seconds: float
    patience: int
    """Trials in a row that bring nothing, after which no other is begun."""


class Study:
    """The trials of one partition."""

    def __init__(self, rows: PreparedRows, question: Question, rounds: int) -> None:
        self.tried: list[Tried] = []
        self.best: tuple[Mapping[str, Any], Score] | None = None
        self.seconds = 0.0
        self._rows, self._question, self._rounds = rows, question, rounds
        self._loss = inf
        self._known: dict[str, Tried] = {}
        self._errors: list[Exception] = []

    def run(self, search: Search, limits: Limits) -> None:
        """Try settings until there are no others, or a limit is reached."""
        began, stale = time.monotonic(), 0
        with search.trials() as trials:
            while (
                (limits.trials is None or len(self.tried) < limits.trials)
                and stale < limits.patience
                # The first, the trainer's own settings, are tried also where no time is left.
                and (not self.tried or time.monotonic() - began < limits.seconds)
                and (trial := next(trials, None)) is not None
            ):
                before = self._loss
                self._try(trial)
                stale = 0 if self._loss < before else stale + 1
        self.seconds = time.monotonic() - began

    def _try(self, trial: Trial) -> None:
        began, number, settings = time.monotonic(), len(self.tried), trial.settings
        key = settings_key(settings)
        # Not fitted twice, but reported: for Optuna a trial runs until it is.
        if (known := self._known.get(key)) is not None:
            self.tried.append(
                Tried(number=number, settings=settings, state="equal", value=known.value)
            )
            self._tell(trial, known.value)
            return
        state: Literal["complete", "pruned", "failed", "skipped"] = "complete"
        value: float | None = None
        windows: tuple[float, ...] = ()
        reason = ""
        try:
            scored = self._score(trial)
        except PrunedError as error:
            state, reason = "pruned", str(error)
        # The child's memory is gone, and a trial that is counted as lost would hide that.
        except MemoryError:
            raise
        except Exception as error:
            state, reason = "failed", f"{type(error).__name__}: {error}"
            self._errors.append(error)
        else:
            if isinstance(scored, Skip):
                state, reason = "skipped", scored.reason
            elif not isfinite(scored.value):
                state = "failed"
                reason = scored.reason or f"the metric {self._question.metric.name} has no value"
            else:
                value, windows = scored.value, scored.windows
                self._keep_better(settings, scored)
        self._tell(trial, value, pruned=state == "pruned")
        tried = Tried(
            number=number,
            settings=settings,
            state=state,
            value=value,
            windows=tuple(each if isfinite(each) else None for each in windows),
            seconds=round(time.monotonic() - began, 6),
            reason=reason,
        )
        self._known[key] = tried
        self.tried.append(tried)

    def _tell(self, trial: Trial, value: float | None, *, pruned: bool = False) -> None:
        loss = None if value is None else self._question.metric.loss(value)
        trial.tell(loss, pruned=pruned)

    def _score(self, trial: Trial) -> Score | Skip:
        question, metric, rounds = self._question, self._question.metric, self._rounds

        def on_round(done: int, value: float) -> None:
            # The last round is reported as the end of the window.
            if done < rounds:
                trial.report(done, metric.loss(value))

        def on_window(place: int, mean: float) -> None:
            trial.report((place + 1) * rounds, metric.loss(mean))

        watch = Watch(every=max(1, rounds // CHECKPOINTS), report=on_round)
        return score(
            self._rows,
            question.splits,
            metric,
            settings=trial.settings,
            season=question.season,
            on_window=on_window if trial.is_pruned else None,
            watch=watch if trial.is_pruned else None,
        )

    def _keep_better(self, settings: Mapping[str, Any], scored: Score) -> None:
        loss = self._question.metric.loss(scored.value)
        if loss < self._loss:
            self._loss, self.best = loss, (settings, scored)

    def count(self, *states: str) -> int:
        """Return how many trials ended so."""
        return sum(tried.state in states for tried in self.tried)

    def nothing(self) -> Skip:
        """Say why no settings have a score.

        Returns:
            The Skip of the trainer's own settings, where all were skipped.

        Raises:
            TrialsFailedError: Some failed.
        """
        first = next((each for each in self.tried if each.state == "failed"), None)
        if first is None:
            return Skip(self.tried[0].reason)
        which = "with the trainer's own settings" if first.number == 0 else f"{first.settings}"
        error = TrialsFailedError(
            f"None of {len(self.tried)} trials has a score; the first that failed, {which}: "
            f"{first.reason}"
        )
        raise error from (self._errors[0] if self._errors else None)

    def table(self) -> bytes:
        """Return all trials as JSON."""
        metric = self._question.metric
        best = None if self.best is None else dict(self.best[0])
        content = {
            "metric": metric.name,
            "direction": "maximize" if metric.maximized else "minimize",
            "best": best,
            "trials": [asdict(tried) for tried in self.tried],
        }
        return json.dumps(content, default=repr).encode()
