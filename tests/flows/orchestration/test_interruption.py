"""The second interrupt, which a call that hangs gets: never later than its end."""

import signal
import threading

import pytest

from partwise.flows.orchestration import interruption as interruption_module
from partwise.flows.orchestration.interruption import interruption


@pytest.fixture
def late_press(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """A machine on which the press is sent when the call has ended, if it does not wait for it."""
    decided, ended = threading.Event(), threading.Event()
    send = signal.pthread_kill

    def send_late(thread: int, number: int) -> None:
        decided.set()
        ended.wait(0.2)
        send(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", send_late)
    monkeypatch.setattr(interruption_module, "END_S", 0.0)
    monkeypatch.setattr(interruption_module, "PRESS_S", 0.001)
    return decided, ended


def test_no_interrupt_comes_behind_the_end_of_a_call(late_press) -> None:
    decided, ended = late_press
    with interruption() as call:
        call.begin()
        assert decided.wait(10)
    ended.set()
    for thread in threading.enumerate():
        if thread.name == "partwise-interruption":
            thread.join(10)
    assert call.has_pressed


def test_a_call_that_hangs_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption_module, "END_S", 0.0)
    monkeypatch.setattr(interruption_module, "PRESS_S", 0.01)
    hangs = True
    with interruption() as call:
        try:
            call.begin()
            threading.Event().wait(60)
        except KeyboardInterrupt:
            hangs = False
            call.end()
    assert call.has_pressed
    assert not hangs
