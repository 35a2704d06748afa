"""Ask and tell: what a study tries next, by a sampler and a pruner of Optuna, in memory."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError
from partwise.outcomes import PartitionStatus
from partwise.runs.trials import Trial, TrialRecord
from partwise.tuning.pruner import PrunerName, make_pruner
from partwise.tuning.sampler import SamplerName, make_sampler
from partwise.tuning.search import settings_key
from partwise.tuning.space import Space, SpaceFunction, finite_values, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial as OptunaTrial
    from optuna.trial import TrialState

_WITH_RUNGS = ("halving", "hyperband")
"""Pruners that keep notes of each trial beside what it reported."""
STUDY_NAME = "partwise"
"""Of every study: hyperband divides trials by the name of the study and their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """What a study searches, and how."""

    space: Space | SpaceFunction
    sampler: SamplerName
    pruner: PrunerName
    seed: int
    metric: str
    """The name of what the study goes by, among the metrics of a trial."""
    maximized: bool

    @property
    def size(self) -> float:
        """How many different settings the sampler tries at most; infinite where that is open."""
        grid = self.grid
        return math.inf if grid is None else math.prod(map(len, grid.values()))

    @property
    def grid(self) -> dict[str, Sequence[Any]] | None:
        """The values of each parameter, where all of them are tried; None: they are not."""
        if self.sampler != "grid" or callable(self.space):
            return None
        return finite_values(self.space)

    def most(self, known: Sequence[Trial]) -> float:
        """Return how many trials there are at most: these, and those that a grid leaves."""
        return len(known) + self.size - len(_tried(known))


class Search:
    """The sampler of a study, and all that it was given.

    It is told of `known` trials. Those that run `again` have settings that a grid does not give to
    others.
    """

    def __init__(
        self, spec: SearchSpec, known: Sequence[Trial] = (), again: Sequence[Trial] = ()
    ) -> None:
        # Here, and not above: a driver that only plans a study, or reads one, does without.
        import optuna

        self._spec = spec
        self._live: dict[int, OptunaTrial] = {}
        self._untried = _untried(spec.grid or {}, _tried([*known, *again]))
        # With the seed of the first generation the sampler would draw what is known already.
        seed = spec.seed if not known else _derived(spec.seed, len(known))
        # All is given: Optuna's sampler of grids fails with one setting that it did not choose.
        sampler = spec.sampler if spec.grid is None else "random"
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._study = optuna.create_study(
                study_name=STUDY_NAME,
                direction="maximize" if spec.maximized else "minimize",
                sampler=make_sampler(sampler, seed, spec.space),
                pruner=make_pruner(spec.pruner),
            )
        finally:
            optuna.logging.set_verbosity(verbosity)
        for trial in known:
            if spec.pruner in _WITH_RUNGS and trial.record.reports:
                self._replay(trial)
            else:
                self._add(trial.record, *_end(trial.record, trial.status))

    def ask(self, number: int) -> TrialRecord:
        """Return what a trial is to try.

        Raises:
            InputError: The space cannot be searched, or JSON cannot hold what it gave.
        """
        from optuna.distributions import distribution_to_json

        if self._spec.grid is not None:
            self._study.enqueue_trial(next(self._untried))
        live = self._study.ask()
        try:
            settings = suggest(live, self._spec.space)
        except InputError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"The space cannot be searched: {reason}.") from error
        self._live[number] = live
        record = TrialRecord(
            settings=settings,
            metric=self._spec.metric,
            maximized=self._spec.maximized,
            params=dict(live.params),
            distributions={
                name: distribution_to_json(each) for name, each in live.distributions.items()
            },
        )
        try:
            record.to_json()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The settings of a trial are kept as JSON, which cannot hold these: {error}."
            ) from error
        return record

    def is_hopeless(self, number: int, step: int, value: float) -> bool:
        """Take note of what a trial reports, and return whether the pruner gives it up."""
        live = self._live.get(number)
        # Of another attempt, and of a trial that is run again, the pruner knows all it will.
        if live is None:
            return False
        # Without copies, which Optuna would make of all trials for each report.
        if step in self._study.get_trials(deepcopy=False)[live.number].intermediate_values:
            return False
        live.report(value, step)
        return bool(live.should_prune())

    def tell(self, number: int, record: TrialRecord, status: PartitionStatus) -> None:
        """Tell the sampler what became of a trial."""
        live = self._live.pop(number, None)
        if live is None:
            self._add(record, *_end(record, status))
            return
        state, value = _end(record, status)
        self._study.tell(live, value, state=state)

    def _replay(self, trial: Trial) -> None:
        """Add a trial as if it ran now: on the way its pruner notes how far it came."""
        from optuna.trial import Trial as OptunaTrial
        from optuna.trial import TrialState

        record = trial.record
        # What it reported follows, one by one: behind each the pruner is asked.
        self._add(replace(record, reports=()), TrialState.RUNNING, None)
        added = self._study.get_trials(deepcopy=False)[-1]
        live = OptunaTrial(self._study, added._trial_id)
        for step, reported in record.reports:
            live.report(reported, step)
            live.should_prune()
        state, value = _end(record, trial.status)
        self._study.tell(live, value, state=state)

    def _add(self, record: TrialRecord, state: TrialState, value: float | None) -> None:
        from optuna.distributions import json_to_distribution
        from optuna.trial import create_trial

        distributions: dict[str, BaseDistribution] = {
            name: json_to_distribution(text) for name, text in record.distributions.items()
        }
        self._study.add_trial(
            create_trial(
                state=state,
                value=value,
                params=dict(record.params),
                distributions=distributions,
                intermediate_values=dict(record.reports),
            )
        )


def first_settings(spec: SearchSpec) -> dict[str, Any]:
    """Ask for one trial, and return its settings: what cannot be searched is refused so.

    Raises:
        InputError: The space gives no settings, the sampler cannot search it, or there is no such
            sampler or pruner.
    """
    return dict(Search(spec).ask(0).settings)


def importances(trials: Sequence[Trial]) -> dict[str, float]:
    """Return how much each parameter decides about the best tenth of the trials, the most first.

    By PED-ANOVA of Optuna: Watanabe, Bansal and Hutter, PED-ANOVA (IJCAI 2023). They sum to 1.
    Empty where too few trials have ended, or nothing was drawn.
    """
    done = [trial for trial in trials if trial.status is PartitionStatus.DONE]
    names = {name for trial in done for name in trial.record.params}
    if len(done) < 10 or len(names) < 1:
        return {}
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    first = done[0].record
    search = Search(
        SearchSpec(
            space={},
            sampler="random",
            pruner="none",
            seed=0,
            metric=first.metric,
            maximized=first.maximized,
        ),
        done,
    )
    found = get_param_importances(search._study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(value) for name, value in found.items()}


def _tried(trials: Sequence[Trial]) -> set[str]:
    """Return what trials have drawn, each once."""
    return {settings_key(trial.record.params) for trial in trials}


def _untried(grid: Mapping[str, Sequence[Any]], tried: set[str]) -> Iterator[dict[str, Any]]:
    """Give the settings of a grid that were not tried, one by one: there may be very many."""
    for chosen in itertools.product(*grid.values()):
        settings = dict(zip(grid, chosen, strict=True))
        if settings_key(settings) not in tried:
            yield settings


def _end(record: TrialRecord, status: PartitionStatus) -> tuple[TrialState, float | None]:
    """Return how a trial ended for Optuna, and its value where that counts."""
    from optuna.trial import TrialState

    if status is PartitionStatus.DONE and record.value is not None:
        return TrialState.COMPLETE, record.value
    return TrialState.PRUNED if record.pruned else TrialState.FAIL, None


def _derived(seed: int, known: int) -> int:
    digest = hashlib.sha256(b"%d:%d" % (seed, known)).digest()
    return int.from_bytes(digest[:4], "little") >> 1
