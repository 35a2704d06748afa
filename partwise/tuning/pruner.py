"""Pruners: which trials are given up before they have ended, of Optuna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from partwise.errors import InputError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

PrunerName = Literal["none", "median", "percentile", "halving", "hyperband"]


def make_pruner(name: PrunerName) -> BasePruner:
    """Return a pruner of Optuna.

    Args:
        name: "none"; "median", which gives up what is worse than the median of the others at the
            same step, and "percentile", than the best quarter; "halving", successive halving, and
            "hyperband", several of these.
    """
    from optuna import pruners

    match name:
        case "none":
            return pruners.NopPruner()
        case "median":
            return pruners.MedianPruner()
        case "percentile":
            return pruners.PercentilePruner(25.0)
        case "halving":
            return pruners.SuccessiveHalvingPruner()
        case "hyperband":
            return pruners.HyperbandPruner()
    raise InputError(f"There is no pruner {name!r}: give one of {', '.join(get_args(PrunerName))}.")
