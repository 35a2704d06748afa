"""How much the proofs of an export have seen, in one sentence."""

import numpy as np

from partwise.formatting import counted
from partwise.outcomes import PartitionStatus
from partwise.runs.ledger import metric_values
from partwise.runs.run import Run

PROVED_KINDS = ("export", "validate")
DRAWN_METRICS = (
    *("export_max_abs_diff", "export_max_rel_diff", "export_bytes"),
    *("export_metric_loss", "export_label_agreement"),
)
"""The others are counts, which one sentence adds up; they stand in the table."""


def describe_proof(run: Run) -> str:
    """Return how many files equal their models, and what that was seen on; empty: no export."""
    if run.kind not in PROVED_KINDS:
        return ""
    ledger = run.ledger
    done = [status == PartitionStatus.DONE for status in ledger["status"].to_pylist()]
    is_done = np.array(done, bool)
    sums = {
        name: int(values[is_done[rows] & np.isfinite(values)].sum())
        for name, (rows, values) in metric_values(ledger)
        if name.startswith("export_")
    }
    seen = [counted(sums["export_rows"], "row")] if "export_rows" in sums else []
    for what, all_of, reached in (
        ("leaves", "export_leaves", "export_leaves_reached"),
        ("ways through trees", "export_ways", "export_ways_taken"),
        ("weights", "export_weights", "export_weights_proved"),
    ):
        if total := sums.get(all_of, 0) - sums.get(f"{all_of}_out_of_reach", 0):
            seen.append(f"{sums.get(reached, 0):,} of {total:,} {what}")
    equal = (
        f"{sum(done):,} of {counted(len(done), 'file')} {'equals' if len(done) == 1 else 'equal'}"
    )
    models = "its model" if len(done) == 1 else "their models"
    return f"{equal} {models}" + (f", proved on {', '.join(seen)}." if seen else ".")
