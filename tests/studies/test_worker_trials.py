"""On which workers a trial is begun again."""

from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, get_worker

from partwise.engine.options import ExecutionOptions
from partwise.errors import StoreError
from partwise.studies import worker, worker_trials

TRIED: list[str] = []


def held_slot(execution: Any, is_stopped: Any) -> None:
    """Fail, as where a worker is cut off from the store that it reads first."""
    TRIED.append(get_worker().address)
    raise StoreError("The store is out of this worker's reach.")


def test_a_trial_is_begun_again_where_it_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "held_slot", held_slot)
    execution = SimpleNamespace(token="token", options=ExecutionOptions())
    assignment: Any = SimpleNamespace(number=7, execution=execution, rows="rows", asks=False)
    asked: list[object] = []
    here: dict[str, Any] = {"n_workers": 4, "threads_per_worker": 1, "processes": False}
    with Client(dashboard_address=":0", **here) as client:
        trials = worker_trials.WorkerTrials(client, "token")
        trials.open(asked.append)
        for start in range(1, 6):
            with pytest.raises(StoreError):
                trials.submit(assignment, start).result(timeout=60)
        trials.close()
    assert len(set(TRIED[:4])) == 4, TRIED
    # It has failed on each: a further start may be anywhere.
    assert len(TRIED) == 5
    assert asked == []


def test_questions_are_heard_though_the_first_wish_for_them_was_lost() -> None:
    """As it is where it is sent just before a connection is closed, and the task after that."""
    stream: list[str] = []
    client: Any = SimpleNamespace(
        subscribe_topic=lambda topic, hear: stream.append(topic),
        submit=lambda *_, **more: stream.append(more["key"]),
    )
    assignment: Any = SimpleNamespace(number=7)
    trials = worker_trials.WorkerTrials(client, "token")
    trials.open(print)
    trials.submit(assignment, 1)
    assert stream[-2:] == ["trial-00007-token-1", "token"]
