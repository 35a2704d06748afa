"""Errors of gangs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from partwise.errors import PartwiseError
from partwise.outcomes import Stop

if TYPE_CHECKING:
    from partwise.gangs.spec import RankEnd


class GangFailedError(PartwiseError):
    """A gang came to no good end; nothing of it counts.

    Its `__cause__` is what the user's function raised on the rank that is to blame, unchanged,
    where it was an exception and can be pickled.

    Args:
        message: What happened, on which rank.
        ends: How each rank ended, in the last attempt; their only artifacts are logs.
        rank: The one that is to blame; None: none is, as when the gang was stopped.
        stopped: Why it was stopped from outside; None: it was not.
    """

    def __init__(
        self,
        message: str,
        ends: Sequence["RankEnd"],
        rank: int | None = None,
        stopped: Stop | None = None,
    ) -> None:
        super().__init__(message, ends, rank, stopped)
        self.message = message
        self.ends = tuple(ends)
        self.rank = rank
        self.stopped = stopped

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        # Prefect logs it: the ends of all ranks, with their tracebacks, would fill the screen.
        return f"GangFailedError({self.message!r})"
