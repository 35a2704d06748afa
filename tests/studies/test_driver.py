"""The driver of a study without a cluster: which trials it begins, and why no more."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.client import FutureCancelledError

from partwise.errors import ClusterError, ScratchError
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.trials import Trial, TrialRecord
from partwise.studies.assignment import TrialAssignment, TrialReceipt
from partwise.studies.driver import Stopping, StudyDriver, StudyEnd, StudySpec
from partwise.studies.search import Search, SearchSpec
from partwise.tuning.sampler import SamplerName
from partwise.tuning.space import grid

SPACE = {"x": grid([3, 2, 1, 0]), "fixed": 7}


class TrialsHere:
    """Trials that end as soon as they are begun."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.ended: list[Trial] = []
        self._failing = failing

    def open(self, ask: Any) -> None: ...

    def close(self) -> None: ...

    def stop(self, stop: Stop) -> None: ...

    def submit(self, assignment: TrialAssignment, start: int) -> Future[TrialReceipt | None]:
        number = assignment.number
        status = PartitionStatus.FAILED if number in self._failing else PartitionStatus.DONE
        value = float(assignment.record.settings["x"])
        record = replace(assignment.record, value=value if status is PartitionStatus.DONE else None)
        # As the ledger has it.
        record = TrialRecord.from_json(record.to_json())
        self.ended.append(
            Trial(number=number, status=status, record=record, seconds=1.0, reason="")
        )
        future: Future[TrialReceipt | None] = Future()
        future.set_result(
            TrialReceipt(
                number=number, status=status, record=record, seconds=1.0, rows=3, reason=""
            )
        )
        return future

    @property
    def tried(self) -> list[int]:
        return [trial.settings["x"] for trial in self.ended]


def study(
    here: TrialsHere,
    sampler: SamplerName,
    trials: int,
    kept: Sequence[Trial] = (),
    again: Sequence[Trial] = (),
) -> StudyEnd:
    with driver_of(here, sampler, trials, kept, again) as driver:
        return driver.run()


def driver_of(
    here: TrialsHere,
    sampler: SamplerName,
    trials: int,
    kept: Sequence[Trial] = (),
    again: Sequence[Trial] = (),
) -> StudyDriver:
    options = SimpleNamespace(max_shard_starts=1, failure_budget=lambda trials: None)
    execution: Any = SimpleNamespace(options=options, generation=1)
    search = SearchSpec(
        space=SPACE, sampler=sampler, pruner="none", seed=3, metric="loss", maximized=False
    )
    spec = StudySpec(
        execution=execution,
        rows=None,
        fingerprint="f",
        search=search,
        stopping=Stopping(trials=trials),
        slots=1,
        kept=tuple(kept),
        again=tuple(again),
    )
    nobody: Any = SimpleNamespace(status="running", look=lambda: None)
    log: Any = SimpleNamespace(info=lambda *words: None, warning=lambda *words: None)
    return StudyDriver(nobody, spec, here, nobody, log)


class TrialsCutOff(TrialsHere):
    """Trials that are lost four times with the connection to the scheduler."""

    def submit(self, assignment: TrialAssignment, start: int) -> Future[TrialReceipt | None]:
        if start > 4:
            return super().submit(assignment, start)
        future: Future[TrialReceipt | None] = Future()
        future.set_exception(FutureCancelledError("trial", "scheduler-connection-lost"))
        return future


def test_a_trial_that_is_lost_with_the_scheduler_is_begun_again() -> None:
    here = TrialsCutOff()
    end = study(here, "random", 1)
    assert ([trial.number for trial in here.ended], end.lost) == ([0], {})


def test_a_grid_behind_another_sampler_tries_what_is_left() -> None:
    before = TrialsHere()
    study(before, "random", 6)
    # Drawn with doubles, which are no settings of the grid more.
    assert 0 < len(set(before.tried)) < 6
    after = TrialsHere()
    end = study(after, "grid", 50, kept=before.ended)
    assert sorted({*before.tried, *after.tried}) == [0, 1, 2, 3]
    assert not {*before.tried} & {*after.tried}
    assert len(after.tried) == len({*after.tried})
    assert end.reason == "all 4 settings of the grid were tried"


def test_a_grid_of_which_settings_are_left_does_not_say_that_all_were_tried() -> None:
    before, after = TrialsHere(), TrialsHere()
    study(before, "grid", 1)
    end = study(after, "grid", 3, kept=before.ended)
    assert (before.tried, after.tried, end.reason) == ([3], [2, 1], "")


@pytest.mark.parametrize("trials", [4, 50])
def test_a_grid_gives_the_settings_of_a_failed_trial_to_it_alone(trials) -> None:
    before, after = TrialsHere(failing=[1]), TrialsHere()
    study(before, "grid", 2)
    kept, again = before.ended
    study(after, "grid", trials, kept=[kept], again=[again])
    assert [trial.number for trial in after.ended] == [1, 2, 3]
    assert after.tried == [2, 1, 0]


@pytest.mark.parametrize(("method", "tried"), [("ask", 2), ("tell", 3)])
def test_a_study_whose_sampler_fails_ends_with_what_it_has(monkeypatch, method, tried) -> None:
    original, here = getattr(Search, method), TrialsHere()

    def failing(search: Search, number: int, *others: Any) -> Any:
        if number == 2:
            raise KeyError("x")
        return original(search, number, *others)

    monkeypatch.setattr(Search, method, failing)
    with driver_of(here, "random", 5) as driver:
        driver.run()
    assert len(here.ended) == tried
    assert driver.stopped == Stop(RunStatus.FAILURE, "it could not go on: KeyError: 'x'")
    assert isinstance(driver.cause, KeyError)


def test_a_study_of_which_no_trial_can_be_submitted_ends(monkeypatch) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(TrialsHere, "submit", full)
    with driver_of(TrialsHere(), "random", 5) as driver:
        driver.run()
    assert driver.stopped == Stop(
        RunStatus.FAILURE, "it could not go on: RuntimeError: can't start new thread"
    )


def test_a_study_whose_cluster_is_gone_has_no_end(monkeypatch) -> None:
    def gone(search: Search, number: int) -> None:
        raise ClusterError("It is gone.")

    monkeypatch.setattr(Search, "ask", gone)
    with driver_of(TrialsHere(), "random", 5) as driver, pytest.raises(ClusterError):
        driver.run()


def test_a_disk_that_is_full_stops_the_study() -> None:
    """As it says: other trials of that machine would fail as well, and none is to blame."""

    class Full(TrialsHere):
        def submit(self, assignment: TrialAssignment, start: int) -> Future[TrialReceipt | None]:
            if assignment.number < 2:
                return super().submit(assignment, start)
            future: Future[TrialReceipt | None] = Future()
            future.set_exception(ScratchError("The run stopped: no space."))
            return future

    here = Full()
    with driver_of(here, "random", 5) as driver:
        end = driver.run()
    assert len(here.ended) == 2
    assert driver.stopped == Stop(RunStatus.FAILURE, "The run stopped: no space.")
    assert (end.interrupted, end.lost) == ((2,), {})
