"""What searching settings cost in a run, and what it brought."""

import numpy as np
import pyarrow as pa

from partwise.formatting import counted, duration
from partwise.runs.ledger import metric_values

UNTUNED = "untuned_"


def describe_tuning(ledger: pa.Table) -> str | None:
    """Return in a sentence or two what tuning brought; None: nothing was tuned."""
    found = dict(metric_values(ledger))
    name = next((name for name in found if name.startswith(UNTUNED)), None)
    metric = "" if name is None else name.removeprefix(UNTUNED)
    if name is None or f"holdout_{metric}" not in found or "trials" not in found:
        return None
    rows, untuned = found[name]
    scored, tuned = found[f"holdout_{metric}"]
    both, first, second = np.intersect1d(rows, scored, return_indices=True)
    before, after = untuned[first], tuned[second]
    better = before != after
    gains = np.abs(before - after)[before != 0] / np.abs(before[before != 0])
    trials = found["trials"][1]
    seconds = found["tuning_seconds"][1].sum() if "tuning_seconds" in found else 0.0
    sentence = (
        f"{counted(len(trials), 'partition')} tried {int(trials.sum()):,} settings in "
        f"{duration(seconds)} of their own time. {int(better.sum()):,} of {len(both):,} found "
        "better ones than the trainer's own"
    )
    if len(gains):
        sentence += f", and {metric} is {np.median(gains):.1%} better in the median of all"
    return f"{sentence}, by the score that was searched with."
