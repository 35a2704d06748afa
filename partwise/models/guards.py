"""Guards: which inputs an ONNX file refuses, because it would predict otherwise than its model.

Where a model raises, or gives NaN, its file may go on and give numbers: onnxruntime's LSTM clips
what is not finite, its Gather takes -1 for the last row. A guard is a condition on one input. The
file has nodes that fail where it is met, and names it in its metadata.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from partwise.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from partwise.models.signature import Feeds

GUARDS_KEY = "partwise.refuses"
NODE_PREFIX = "partwise_guard_"
"""Of the names of nodes that fail; onnxruntime names the node in its error."""

_MOST_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What an input must not hold."""

    input: str
    refuses: Literal["nan", "below", "above"]
    """NaN; numbers below the limit; numbers above it."""
    limit: float | int = 0

    def is_met(self, feeds: Feeds) -> bool:
        """Whether the input holds what the guard refuses."""
        values = np.asarray(feeds[self.input])
        match self.refuses:
            case "nan":
                return bool(np.isnan(values).any())
            case "below":
                return bool((values < self.limit).any())
            case "above":
                return bool((values > self.limit).any())

    def __str__(self) -> str:
        """Return it in words."""
        what = "NaN" if self.refuses == "nan" else f"values {self.refuses} {self.limit:g}"
        # All digits of a whole number, of which :g would leave six.
        if isinstance(self.limit, int) and self.refuses != "nan":
            what = f"values {self.refuses} {self.limit}"
        return f"{what} in {self.input!r}"


def guards_in_words(guards: Sequence[Guard]) -> str:
    """Return what guards refuse, for a message."""
    words = ", ".join(str(guard) for guard in guards[:_MOST_SHOWN])
    more = len(guards) - _MOST_SHOWN
    return words + (f" and {more} more" if more > 0 else "")


def to_metadata(guards: Iterable[Guard]) -> str:
    """Return guards as the metadata of a file have them: JSON."""
    return json.dumps([asdict(guard) for guard in guards])


def guards_of_metadata(metadata: Mapping[str, str]) -> tuple[Guard, ...]:
    """Return the guards that a file names; none in most."""
    text = metadata.get(GUARDS_KEY)
    if not text:
        return ()
    try:
        return tuple(Guard(**each) for each in json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise IntegrityError(
            f"The model's {GUARDS_KEY!r} has a form that this release does not know: {error}."
        ) from error
