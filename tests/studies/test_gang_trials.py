"""What the gang of a trial is asked for."""

from types import SimpleNamespace
from typing import Any

import pytest

from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ClusterWorker
from partwise.gangs.placement import Placement
from partwise.gangs.spec import Node, RankEnd
from partwise.outcomes import CANCELLED
from partwise.processes.warm_server import Preloaded
from partwise.studies import gang_trials
from partwise.studies.gang_trials import GangTrials
from tests.one_model import rank_end


def test_limits_and_seed_of_a_trial_are_those_of_its_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_trials, "with_settings", lambda function, settings: function)
    options = ExecutionOptions(timeout_s=7.0, max_retries=2, silence_s=3.0)
    trials: Any = object.__new__(GangTrials)
    trials._execution = SimpleNamespace(
        generation=1,
        run_id="study",
        store=None,
        seed=2**40 + 5,
        options=options,
        preloaded=Preloaded(modules=("lightgbm",)),
    )
    trials._plan = SimpleNamespace(function=print, serde=None)
    trials._sources = {}
    trials._folder = SimpleNamespace(write=lambda name, content: None)
    record = SimpleNamespace(settings={"x": 1}, metric="loss")
    assignment: Any = SimpleNamespace(record=record, asks=False, number=1)
    placement: Any = SimpleNamespace(nodes=(), threads=1, gpus=0)
    spec = trials._specify(assignment, placement)
    # A seed that numpy takes, as a gang outside a study has it.
    assert spec.seed == 5
    given = spec.options
    assert (given.timeout_s, given.max_retries, given.silence_s) == (7.0, 2, 3.0)
    assert spec.modules == ("lightgbm",)


def test_a_trial_that_waits_for_workers_as_the_study_is_stopped_counts_as_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not as one whose workers are gone for good."""
    monkeypatch.setattr(gang_trials, "cluster_workers", lambda client: [])
    placement: Any = SimpleNamespace(nodes=(Node(worker="tcp://gone", first_rank=0, ranks=1),))
    trials: Any = GangTrials(*[None] * 3, [placement], *[None] * 4)
    monkeypatch.setattr(trials, "_specify", lambda assignment, placement: None)
    trials.stop(CANCELLED)
    future = trials.submit(SimpleNamespace(number=1), 1)
    assert future.result(timeout=30) is None
    trials.close()


def test_the_gang_of_a_trial_begins_again_on_workers_that_no_other_trial_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it waited there until the other trial had ended, beside a worker that is free."""
    there = [
        ClusterWorker(address=name, host="host", threads=1) for name in ("own", "other's", "free")
    ]
    begun_again_on: list[str] = []

    class Driver:
        def __init__(self, *_: Any) -> None:
            begun_again_on.extend(worker.address for worker in _[-1]())

        def run(self) -> list[RankEnd]:
            return [rank_end(0)]

    monkeypatch.setattr(gang_trials, "cluster_workers", lambda client: there)
    monkeypatch.setattr(gang_trials, "GangDriver", Driver)
    placement = Placement(nodes=(Node(worker="own", first_rank=0, ranks=1),), threads=1, gpus=0)
    trials: Any = GangTrials(*[None] * 3, [placement], *[None] * 4)
    for method in ("_specify", "_settle", "_commit"):
        monkeypatch.setattr(trials, method, lambda *_: None)
    trials._busy = {"other's"}
    assert trials.submit(SimpleNamespace(number=1), 1).result(timeout=30) is None
    trials.close()
    assert begun_again_on == ["own", "free"]
