"""What the gang of a trial is asked for."""

from types import SimpleNamespace
from typing import Any

import pytest

from partwise.engine.options import ExecutionOptions
from partwise.processes.warm_server import Preloaded
from partwise.studies import gang_trials
from partwise.studies.gang_trials import GangTrials


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
