"""Trials of one model side by side: beside Optuna with joblib, and Ray Tune."""

import math

from benchmarks.frame.row import Contestant, Goal, Place, Row
from benchmarks.study import SLOTS

ALL = "partwise and others"


def row(place: Place) -> Row:
    """Run benchmarks/study.py, which takes one after the other."""
    trials = place.size(64, 6)
    words: list[object] = ["--trials", trials, "--others", "--json"]
    if place.peers and not place.quick:
        words += ["--ray", place.peers]
    ideal = math.ceil(trials / SLOTS)
    return Row(
        title="Trials of one model",
        work=f"{trials} trials that sleep for a second, in {SLOTS} slots.",
        contestants=[Contestant(ALL, place.ours("benchmarks.study", *words), "a run")],
        goals=[
            Goal(
                f"s of the call, {ideal} of them asleep",
                1.1 * ideal + 5,
                lambda found: found[ALL]["partwise s"],
            )
        ],
        shown="",
        turns=1,
        limit_s=place.size(600, 60),
    )
