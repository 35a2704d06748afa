"""What the report of an export says of its proofs, added up over the files that passed."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from partwise.reports.proof import describe_proof

TREES = {"export_rows": 700.0, "export_leaves": 30.0, "export_leaves_reached": 29.0}
TREES |= {"export_leaves_out_of_reach": 1.0, "export_ways": 8.0, "export_ways_taken": 6.0}
WEIGHTS = {"export_weights": 7.0, "export_weights_proved": 5.0}
OF_TREES = "58 of 58 leaves, 12 of 16 ways through trees"


def run_of(*rows: tuple[str, dict[str, float]], kind: str = "export") -> Any:
    kinds = pa.map_(pa.string(), pa.float64())
    metrics = pa.array([list(each.items()) for _, each in rows], kinds)
    ledger = pa.table({"status": [status for status, _ in rows], "metrics": metrics})
    return SimpleNamespace(kind=kind, ledger=ledger)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            run_of(("DONE", TREES), ("DONE", TREES), ("FAILED", TREES)),
            f"2 of 3 files equal their models, proved on 1,400 rows, {OF_TREES}.",
        ),
        (
            run_of(
                ("DONE", {"export_weights": 7.0, "export_weights_proved": 5.0}), kind="validate"
            ),
            "1 of 1 file equals its model, proved on 5 of 7 weights.",
        ),
        (run_of(("FAILED", {}), ("SKIPPED", {})), "0 of 2 files equal their models."),
        (run_of(("DONE", TREES), kind="train"), ""),
    ],
    ids=["trees", "weights", "none passed", "training"],
)
def test_one_sentence_says_what_was_proved(run: Any, said: str) -> None:
    assert describe_proof(run) == said
