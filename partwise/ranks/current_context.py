"""The context of this process, where it is a rank, or the script that a rank runs."""

from partwise.ranks.context import RankContext
from partwise.ranks.script_context import script_context

_current: RankContext | None = None


def get_context() -> RankContext:
    """Return the context of the rank that this process is, or of the script that a rank runs.

    Raises:
        RuntimeError: This process is not a rank of a gang.

    Example:
        >>> get_context().rank  # doctest: +SKIP
        0
    """
    if _current is None:
        # Made once: it has the metrics reported so far, and when the last checkpoint was kept.
        set_context(script_context())
    if _current is None:
        raise RuntimeError(
            "get_context() works only in a function or script that runs as a rank of a gang."
        )
    return _current


def set_context(context: RankContext | None) -> None:
    """Set what `get_context` returns in this process."""
    global _current
    _current = context
