"""The end of a flow run that is interrupted: within ten seconds, even where something hangs.

A store, a scheduler or Prefect's server may not answer while a cancelled run tidies up. What waits
for it on the main thread is then interrupted again, as an impatient person does it with Ctrl-C.
"""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partwise.runs.run import Run

END_S = 5.5
"""For so long a run that is interrupted may tidy up."""
PRESS_S = 0.25

_current: "Interruption | None" = None


class Terminated(KeyboardInterrupt):
    """SIGTERM came while a flow was called without Prefect, which has an exception of its own."""


class CancelRequested(KeyboardInterrupt):
    """Somebody asked for the end of the run, by its store."""


def interrupts() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which Ctrl-C and SIGTERM end a call, as far as they can occur."""
    prefect = sys.modules.get("prefect.exceptions")
    return (KeyboardInterrupt, *(() if prefect is None else (prefect.TerminationSignal,)))


class Interruption:
    """What follows on the first interrupt of a flow's call on the main thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._press_lock = threading.Lock()
        self._has_begun = False
        self._is_over = threading.Event()
        self._allowed_s = END_S
        self.has_pressed = False
        """Whether something hung, and was interrupted."""

    def begin(self) -> None:
        """Note that the call was interrupted; the first time counts."""
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
        threading.Thread(target=self._press, daemon=True, name="partwise-interruption").start()

    def allow(self, seconds: float) -> None:
        """Give the call more time than it has anyhow."""
        self._allowed_s += seconds

    def end(self) -> None:
        """Note that the call has come to its end: nothing interrupts it any more."""
        while not self._is_over.is_set():
            try:
                with self._press_lock:
                    self._is_over.set()
            except KeyboardInterrupt:
                # A press was on its way; it must not reach what our caller does next.
                if not self.has_pressed:
                    raise

    def _press(self) -> None:
        waited_s = 0.0
        # In small steps, since `allow` may give it more time meanwhile.
        while waited_s < self._allowed_s:
            if self._is_over.wait(PRESS_S):
                return
            waited_s += PRESS_S
        # Before the first press, since `end` tells ours from a person's by it.
        self.has_pressed = True
        while not self._is_over.wait(PRESS_S):
            # What closes a cluster waits for these.
            for process in multiprocessing.active_children():
                if process.name.startswith("Dask Worker"):
                    process.kill()
            with self._press_lock:
                if self._is_over.is_set():
                    return
                # A real signal: it also ends a wait for a lock or a socket.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Give what follows on an interrupt of this call, or of the one that it is part of."""
    global _current
    if _current is not None or threading.current_thread() is not threading.main_thread():
        # Signals are those of the main thread; elsewhere nobody presses.
        yield _current or Interruption()
        return
    made = _current = Interruption()
    try:
        yield made
    finally:
        # First, as the end may raise: the next call has to get one of its own.
        _current = None
        made.end()


def interruption_here() -> Interruption | None:
    """Return what follows on an interrupt of the call of this thread; None: none is pressed."""
    return _current if threading.current_thread() is threading.main_thread() else None


def allow(seconds: float) -> None:
    """Give the call at work, if it is interrupted, more time than it has anyhow."""
    if _current is not None:
        _current.allow(seconds)


@dataclass(slots=True)
class Work:
    """What is known of the work of a call."""

    at_claim: Callable[[], None] | None = None
    """Called when a run is claimed: what the call would be refused for, it has been by then."""
    has_begun: bool = False
    """Whether a run may have been begun: until then there is nothing to go on with."""
    run_id: str = ""
    """Of the call; of a pipeline that of the whole."""
    ended: "Run | None" = None
    """The last run that has ended: what is left of its call can be done without."""


_work: ContextVar[Work | None] = ContextVar("partwise_work", default=None)


@contextmanager
def watched_work() -> Iterator[Work]:
    """Give what is known of the work of this call, or of the one that it is part of."""
    outer = _work.get()
    work = outer or Work()
    token = _work.set(work)
    try:
        yield work
    finally:
        _work.reset(token)


def note_claim() -> None:
    """Note that the call at work has claimed a run."""
    if (work := _work.get()) is not None and work.at_claim is not None:
        work.at_claim()


def note_work() -> None:
    """Note that the call at work is about to begin a run, or a generation of one."""
    if (work := _work.get()) is not None:
        work.has_begun = True


def note_end(run: "Run") -> None:
    """Note that a run of the call at work has ended."""
    if (work := _work.get()) is not None:
        work.ended = run


@contextmanager
def noticed() -> Iterator[None]:
    """Notice Ctrl-C and SIGTERM, which then do what they would do without us.

    Not around the whole call: Prefect takes SIGTERM for itself after that has begun.
    """
    interruption = _current
    if interruption is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def handler(act: Callable[[int, FrameType | None], Any]) -> Any:
        def handle(number: int, frame: FrameType | None) -> None:
            interruption.begin()
            act(number, frame)

        return handle

    # One that is not a function (SIG_IGN, SIG_DFL) does not come here.
    taken = {number: handler(act) for number, act in earlier.items() if callable(act)}
    for number, handle in taken.items():
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handle in taken.items():
            # What somebody else has set meanwhile stays.
            if signal.getsignal(number) is handle:
                signal.signal(number, earlier[number])
