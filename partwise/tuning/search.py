"""A search: settings to try one after another, and which trials to give up."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.tuning.pruner import PrunerName, make_pruner
from partwise.tuning.sampler import SamplerName, make_sampler
from partwise.tuning.space import (
    Choice,
    RandInt,
    Space,
    SpaceFunction,
    finite_values,
    suggest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import optuna


class PrunedError(Exception):
    """A trial is given up: others were better at its step."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """Settings that are tried."""

    settings: Mapping[str, Any]
    of_study: optuna.Trial | None = None
    """What a study knows of it; None: no study is asked."""
    is_pruned: bool = False
    """Whether it may be given up."""

    def report(self, step: int, loss: float) -> None:
        """Tell how the trial goes on.

        Raises:
            PrunedError: It is to be given up.
        """
        if self.of_study is None or loss != loss or loss == float("inf"):
            return
        self.of_study.report(loss, step)
        if self.of_study.should_prune():
            raise PrunedError(f"given up at step {step}")

    def tell(self, loss: float | None, *, pruned: bool = False) -> None:
        """Tell what it came to; a loss of None or NaN: it failed."""
        if self.of_study is None:
            return
        from optuna.trial import TrialState

        study = self.of_study.study
        if pruned:
            study.tell(self.of_study, state=TrialState.PRUNED)
        elif loss is None or loss != loss or loss == float("inf"):
            study.tell(self.of_study, state=TrialState.FAIL)
        else:
            study.tell(self.of_study, loss)


class Search:
    """Settings to try: those given first, then all of a grid, or what a sampler chooses.

    Those `given` are tried first, each once. An empty `space`: there are no others.
    """

    def __init__(
        self,
        given: Iterable[Mapping[str, Any]],
        space: Space | SpaceFunction,
        *,
        sampler: SamplerName = "tpe",
        pruner: PrunerName = "none",
        seed: int = 0,
    ) -> None:
        if sampler == "grid" and isinstance(space, dict):
            given, space, sampler = itertools.chain(given, grid_settings(space)), {}, "random"
        self._given = given
        self._space = space
        self._draws = not isinstance(space, dict) or bool(space)
        self._prunes = pruner != "none"
        self._study: optuna.Study | None = None
        self._sampler, self._pruner, self._seed = sampler, pruner, seed

    @contextmanager
    def trials(self) -> Iterator[Iterator[Trial]]:
        """Give the trials, each of which is given what it came to before the next is asked for."""
        if not self._draws and not self._prunes:
            # Nobody needs to be asked, so that Optuna is not even imported.
            yield self._trials()
            return
        import optuna

        before = optuna.logging.get_verbosity()
        # It would log each trial.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                sampler=make_sampler(self._sampler, self._seed, self._space),
                pruner=make_pruner(self._pruner),
                # Hyperband draws by it, and a name that Optuna makes up is another each time.
                study_name="partition",
            )
            yield self._trials()
        finally:
            optuna.logging.set_verbosity(before)

    def _trials(self) -> Iterator[Trial]:
        for settings in self._given:
            of_study = None
            if self._study is not None:
                # A trial of no parameters: what was given may lie outside the space.
                self._study.enqueue_trial({})
                of_study = self._study.ask()
            yield Trial(settings=settings, of_study=of_study, is_pruned=self._prunes)
        while self._draws and self._study is not None:
            of_study = self._study.ask()
            settings = suggest(of_study, self._space)
            yield Trial(settings=settings, of_study=of_study, is_pruned=self._prunes)


def grid_settings(space: Space) -> Iterator[dict[str, Any]]:
    """Give all settings of a space with an end, constants included, in order: there may be many."""
    finite_values(space)
    values: list[Sequence[Any]] = []
    for value in space.values():
        if isinstance(value, RandInt):
            values.append(range(value.low, value.high))
        else:
            values.append(value.values if isinstance(value, Choice) else [value])
    return (dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*values))


def draw_settings(
    space: Space | SpaceFunction, count: int, seed: int, sampler: SamplerName = "random"
) -> list[dict[str, Any]]:
    """Return so many different settings of a space, or all there are; by the seed alone."""
    if sampler == "grid" and isinstance(space, dict):
        return list(itertools.islice(grid_settings(space), count))
    drawn: dict[str, dict[str, Any]] = {}
    with Search([], space, sampler=sampler, seed=seed).trials() as trials:
        # A small space is found to be exhausted by drawing nothing new for long.
        for trial in itertools.islice(trials, 20 * count):
            drawn.setdefault(settings_key(trial.settings), dict(trial.settings))
            # For Optuna a trial runs until it has a value; nothing is scored here.
            trial.tell(0.0)
            if len(drawn) == count:
                break
    return list(drawn.values())


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return text that is equal for equal settings, in any order."""
    return json.dumps(settings, sort_keys=True, default=repr)
