"""Predictions against the label that was kept: whose rows are whose, and what is not guessed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import IntegrityError
from partwise.reports import accuracy
from partwise.reports.accuracy import MOST_ROWS_READ, AccuracyReport, describe_accuracy

NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.integers(-9, 9)
PARTITIONS = st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4), min_size=1, max_size=6)


def run_of(partitions: list[list[tuple[Any, Any]]], files: list[int], **changes: Any) -> Any:
    """Something that has of a run what is asked of one: partitions in files, by their order."""
    frame = pd.DataFrame({"file": [f"outputs/{file}" for file in files], "rows": partitions})
    counts = frame["rows"].map(len)
    ledger = pa.table(
        {
            "rows_file": frame["file"],
            "rows_offset": counts.groupby(frame["file"]).cumsum() - counts,
            "rows_count": counts,
        }
    )

    def iter_predictions() -> Any:
        for _, group in frame.groupby("file", sort=True):
            rows = [row for each in group["rows"] for row in each]
            yield pa.table(
                {
                    "prediction": pa.array([predicted for predicted, _ in rows], pa.float64()),
                    "sales": pa.array([actual for _, actual in rows], pa.float64()),
                }
            )

    known = {"kind": "infer", "ledger": ledger, "iter_predictions": iter_predictions}
    return SimpleNamespace(key_columns=(), **known | changes)


def described(run: Any) -> AccuracyReport:
    found = describe_accuracy(run, "sales", str)
    assert found is not None
    return found


@given(PARTITIONS, st.data())
def test_the_error_of_each_partition_is_that_of_its_own_rows(partitions, data) -> None:
    """As pandas has it, over any files; rows without one of both count nowhere."""
    sizes = [len(partitions)] * 2
    files = data.draw(st.lists(st.integers(0, 2), min_size=sizes[0], max_size=sizes[1]))
    seen: dict[str, Any] = {}

    def distribution(name: str, rows: np.ndarray, values: np.ndarray, key_of: Any) -> Any:
        seen.update(dict(zip(rows.tolist(), values.tolist(), strict=True)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "describe_distribution", distribution)
        found = describe_accuracy(run_of(partitions, files), "sales", str)
    expected, rows = {}, 0
    for place, partition in enumerate(partitions):
        frame = pd.DataFrame(partition, columns=["prediction", "sales"]).astype(float)
        frame = frame[(frame.abs() < 1e150).all(axis=1)]
        rows += len(frame)
        with np.errstate(over="ignore"):
            if (size := frame["sales"].abs().sum()) > 0:
                expected[place] = (frame["prediction"] - frame["sales"]).abs().sum() / size
    assert (found.rows if found else 0) == rows
    assert seen.keys() == expected.keys()
    np.testing.assert_allclose([seen[each] for each in expected], list(expected.values()))


def test_what_is_told_of_all_rows_is_what_they_are() -> None:
    found = described(run_of([[(1.0, 2.0), (4.0, 2.0)], [(None, 3.0), (5.0, 4.0)]], [0, 0]))
    assert (found.label, found.rows, found.pending) == ("sales", 3, 1)
    assert dict(found.numbers) == {
        "mean absolute error": "1.333",
        "root mean squared error": "1.414",
        "bias": "0.6667",
        "relative error (wape)": "0.5",
    }
    # Darkest where most rows are; on the diagonal where both are equal.
    even = described(run_of([[(1.0, 1.0)] * 9 + [(9.0, 9.0)]], [0]))
    assert [(each.text, each.opacity == 1) for each in even.cells] == [("9", True), ("1", False)]
    assert all(each.left + each.top + 2.5 == pytest.approx(100) for each in even.cells)


@pytest.mark.parametrize(("kind", "label"), [("train", "sales"), ("infer", ""), ("infer", "price")])
def test_nothing_is_guessed(kind, label) -> None:
    assert describe_accuracy(run_of([[(1.0, 2.0)]], [0], kind=kind), label, str) is None


def test_labels_to_come_many_rows_and_lost_files_leave_it_out() -> None:
    def lost() -> Any:
        raise IntegrityError("gone")

    assert describe_accuracy(run_of([[(1.0, None)], []], [0, 1]), "sales", str) is None
    assert (
        describe_accuracy(run_of([[(1.0, 2.0)]], [0], iter_predictions=lost), "sales", str) is None
    )
    many = run_of([[(1.0, 2.0)]], [0])
    rows = pa.array([MOST_ROWS_READ + 1], pa.int64())
    many.ledger = many.ledger.set_column(2, "rows_count", rows)
    assert describe_accuracy(many, "sales", str) is None
