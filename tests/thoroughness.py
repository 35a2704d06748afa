"""How often what proves by repetition is repeated: a sample, or all of it where there is time."""

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest

THOROUGH = bool(os.environ.get("PARTWISE_THOROUGH"))
"""Set by `make test-slow THOROUGH=1`: all that a random or counted test knows to try."""


def quick_and_slow(quick: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a test as its parameters, those that are not `quick` marked `slow`."""
    slow = pytest.mark.slow
    return [case if case in quick else pytest.param(case, marks=slow) for case in cases]
