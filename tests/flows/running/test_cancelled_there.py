"""What was sent to a work pool ends there in its own time, also where the caller is interrupted."""

import time
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from partwise.flows.orchestration.interruption import interruption
from partwise.flows.running.work_pool import _Sent


def test_the_end_in_a_work_pool_is_waited_for_longer_than_one_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, the caller gave up after six seconds and knew of no run."""
    monkeypatch.setattr(_Sent, "_await_end", lambda *_: time.sleep(1.0) or "ended")
    sent: Any = object.__new__(_Sent)
    sent.client, sent._logger, sent.run_id = Mock(), Mock(), "sent"
    with interruption() as pressed:
        pressed._allowed_s = 0.2
        pressed.begin()
        assert sent._cancel(uuid4()) == "ended"
