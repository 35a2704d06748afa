"""Numbers of nodes, processes and tries that calls of other systems give."""

import operator
from typing import Any

from partwise.errors import InputError


def count_of(name: str, value: Any, least: int = 1) -> int:
    """Return a number of things.

    Args:
        name: What the caller knows it by.
        value: What was given.
        least: The smallest that it can be.

    Raises:
        InputError: It is none, or too small.
    """
    try:
        count = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = least - 1
    if count < least:
        raise InputError(f"{name}={value!r} is no whole number from {least} on: give one.")
    return count
