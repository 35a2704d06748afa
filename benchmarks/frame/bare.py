"""What a bare loop over keys needs: rows that lie together, and a fork for each core."""

import multiprocessing
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def spans_of(key: Any) -> tuple[Any, Sequence[tuple[int, int]]]:
    """Return the order that sorts rows by their key, and where each key's rows lie in it."""
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=key.min() - 1))
    return order, list(pairwise([*first.tolist(), len(key)]))


def in_forks(count: int, work: Callable[[int], Sequence[float]]) -> Any:
    """Call a function in each fork with the fork's number, and return all that they return."""
    fork = multiprocessing.get_context("fork")
    answers: Any = fork.SimpleQueue()

    def answer(place: int) -> None:
        found = None
        try:
            found = work(place)
        finally:
            # Nothing, where it failed: else the other side would wait for it.
            answers.put(found)

    forks = [fork.Process(target=answer, args=(place,)) for place in range(count)]
    for each in forks:
        each.start()
    found = [answers.get() for _ in forks]
    for each in forks:
        each.join()
    return np.concatenate(found)
