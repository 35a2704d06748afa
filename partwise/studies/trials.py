"""What runs the trials of a study: the driver of the study knows no more of it than this."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from partwise.outcomes import Stop
from partwise.studies.assignment import Question, TrialAssignment, TrialReceipt

if TYPE_CHECKING:
    from concurrent.futures import Future as LocalFuture

    from distributed import Future

Ask = Callable[[Question], object]
"""Takes what a trial at work asks; from any thread, and without waiting."""


class Trials(Protocol):
    """Runs trials side by side, each until its row is committed."""

    def open(self, ask: Ask) -> None:
        """Begin; what trials at work ask is handed on."""

    def submit(
        self, assignment: TrialAssignment, start: int
    ) -> "Future[TrialReceipt | None] | LocalFuture[TrialReceipt | None]":
        """Begin a trial, for the first time or again; its future is None where it was stopped."""

    def answer(self, question: Question, *, gives_up: bool) -> None:
        """Tell a trial whether it is given up."""

    def stop(self, stop: Stop) -> None:
        """Have all trials end; called from any thread, perhaps again and again."""

    def close(self) -> None:
        """Leave nothing behind."""
