"""Portfolios: the few settings of many that together leave the least regret."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The settings of a portfolio."""

    places: tuple[int, ...]
    """Those of the settings, the trainer's own first, then in the order of what they bring."""
    regrets: tuple[float, ...]
    """The mean regret with the first of them, with the first two, and so on."""


def regrets(losses: np.ndarray) -> np.ndarray:
    """Return how much worse settings are than the best ones of each partition.

    Losses have the shape (partitions, settings), NaN without a score. Regrets are from 0, as good
    as the best, to 1, as bad as the median of the settings or worse: clipped, so that no partition
    on which much goes wrong outweighs others. Partitions of which nothing can be said are left out.
    """
    worst = np.where(np.isfinite(losses), losses, np.inf)
    worst = worst[np.isfinite(worst).any(axis=1)]
    if not len(worst):
        return np.zeros((0, losses.shape[1]))
    best = worst.min(axis=1, keepdims=True)
    # Of an even number the upper one: the mean of a number and infinity says nothing.
    spread = np.sort(worst, axis=1)[:, [worst.shape[1] // 2]] - best
    # Where most settings are as good as the best there is no scale but the distance itself.
    scale = np.where(np.isfinite(spread) & (spread > 0), spread, np.maximum(np.abs(best), 1e-12))
    clipped: np.ndarray = np.clip((worst - best) / scale, 0, 1)
    return clipped


def pick(losses: np.ndarray, size: int) -> Picked:
    """Pick settings one after another, each the one that lowers the mean regret most.

    The first settings are the trainer's own, which are always picked. There are fewer than `size`
    where no others bring anything.
    """
    matrix = regrets(losses)
    if not len(matrix):
        return Picked(places=(0,), regrets=(0.0,))
    places, reached = [0], matrix[:, 0]
    found = [float(reached.mean())]
    while len(places) < size:
        means = np.minimum(matrix, reached[:, None]).mean(axis=0)
        # Of equals the first, so that the same scores make the same portfolio.
        place = int(means.argmin())
        if not means[place] < found[-1]:
            break
        places.append(place)
        reached = np.minimum(reached, matrix[:, place])
        found.append(float(means[place]))
    return Picked(places=tuple(places), regrets=tuple(found))
