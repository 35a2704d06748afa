"""Predictions over time: which keys are drawn, and where their lines and areas are."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.reports import series
from partwise.reports.series import MOST_POINTS, MOST_ROWS_READ, SeriesReport, describe_series

DAYS = [date(2026, 1, 1) + timedelta(days=number) for number in range(5)]
ROWS = pa.table(
    {
        "store": [7] * 5,
        "date": DAYS,
        "sales": pa.array([0, 10, None, 10, 5], pa.int64()),
        "prediction": [0.0, 5.0, 10.0, 5.0, 0.0],
    }
)


def run_of(rows: dict[str, pa.Table], rows_in_file: int = 5, kind: str = "infer") -> Any:
    """Something that has of a run what is asked of one."""

    def iter_predictions(*, partition_id: str) -> Iterator[pa.Table]:
        if partition_id != "none":
            yield rows[partition_id]

    ledger = pa.table(
        {
            "partition_id": list(rows),
            "rows_file": ["outputs/a"] * len(rows),
            "rows_in_file": pa.array([rows_in_file] * len(rows), pa.int64()),
        }
    )
    return SimpleNamespace(
        kind=kind,
        ledger=ledger,
        store=None,
        document=SimpleNamespace(training_run_id=None, models=()),
        key_columns=(SimpleNamespace(name="store"),),
        iter_predictions=iter_predictions,
    )


def drawn(rows: pa.Table) -> SeriesReport:
    found = describe_series(run_of({"a": rows}), "sales", str)
    assert found is not None
    return found


def test_lines_end_where_a_label_is_missing_and_are_where_the_values_are() -> None:
    found = drawn(ROWS.take([4, 2, 0, 1, 3]))
    assert (found.time, found.label, found.has_bands) == ("date", "sales", False)
    (picture,) = found.pictures
    assert picture.predicted == "0,100 25,50 50,0 75,50 100,100"
    assert picture.actual == ("0,100 25,0", "75,0 100,50")
    assert [tick.text for tick in picture.across][::3] == ["2026-01-01", "2026-01-05"]
    assert [(tick.text, tick.at) for tick in picture.upwards][::2] == [("0", 0.0), ("10", 100.0)]


def test_bounds_are_areas_the_widest_first_also_where_they_cross() -> None:
    bounds = {"prediction_lower_95": -4.0, "prediction_lower_80": -2.0}
    bounds |= {"prediction_upper_80": 2.0, "prediction_upper_95": 4.0}
    rows = ROWS
    for name, width in bounds.items():
        rows = rows.append_column(name, pa.array(ROWS["prediction"].to_numpy() + width))
    (picture,) = drawn(rows).pictures
    wide, narrow = (
        np.array([[float(x) for x in point.split(",")] for point in area.split()])
        for area in picture.bands
    )
    assert np.ptp(wide[[0, -1], 1]) == pytest.approx(2 * np.ptp(narrow[[0, -1], 1]), abs=0.1)
    # Lower bounds from the left, upper ones back from the right.
    assert wide[0, 0] == wide[-1, 0] == 0.0
    quantiles = rows.select(["store", "date", "prediction", "prediction_lower_80"])
    assert drawn(
        quantiles.rename_columns([*quantiles.column_names[:3], "prediction_q90"])
    ).has_bands


def test_the_best_the_median_and_the_worst_by_training_are_drawn(monkeypatch) -> None:
    scores = {0: 3.0, 1: 1.0, 2: np.nan, 3: 2.0, 4: 9.0}
    monkeypatch.setattr(series, "_scores", lambda run: ("holdout_mae", scores))
    found = describe_series(run_of(dict.fromkeys("abcdef", ROWS)), "sales", "abcdef".__getitem__)
    assert found is not None
    assert [(each.title, each.key, each.score) for each in found.pictures] == [
        ("Best", "b", "holdout_mae 1"),
        ("Median", "a", "holdout_mae 3"),
        ("Worst", "e", "holdout_mae 9"),
    ]


@pytest.mark.parametrize(
    "time",
    [
        pa.array([datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(5)]),
        pa.array([1, 2, 3, 4, 1767225600000000007], pa.timestamp("ns")),
        pa.array([None, *DAYS[1:]]),
        pa.array([0, 1, 2, 3, 253_402_300_799_999_999], pa.timestamp("us")),
        pa.array([0, 1, 2, 3, 3_000_000], pa.date32()),
    ],
)
def test_times_of_any_unit_are_drawn(time: pa.Array) -> None:
    rows = ROWS.set_column(1, "date", time)
    (picture,) = drawn(rows).pictures
    assert len(picture.predicted.split()) == len(time) - time.null_count


NOT_DRAWN = {
    "no time": ROWS.drop_columns(["date"]),
    "two times": ROWS.append_column("other", ROWS["date"]),
    "no prediction": ROWS.drop_columns(["prediction"]),
    "classes": ROWS.set_column(3, "prediction", pa.array(list("abcde"))),
    "one time": ROWS.set_column(1, "date", pa.array(DAYS[:1] * 5)),
    "no number": ROWS.set_column(3, "prediction", pa.array([np.nan] * 5)).drop_columns(["sales"]),
}


@pytest.mark.parametrize("rows", NOT_DRAWN.values(), ids=NOT_DRAWN)
def test_what_cannot_be_drawn_is_left_out(rows: pa.Table) -> None:
    assert describe_series(run_of({"a": rows}), "sales", str) is None


def test_a_partition_without_rows_is_passed_over(monkeypatch) -> None:
    assert describe_series(run_of({"none": ROWS}), "sales", str) is None
    monkeypatch.setattr(series, "_scores", lambda run: ("mae", {0: 2.0, 1: 1.0, 2: 3.0}))
    found = describe_series(run_of({"none": ROWS, "a": ROWS, "b": ROWS}), "sales", str)
    assert found is not None
    assert [each.title for each in found.pictures] == ["Best", "Worst"]


def test_large_files_and_other_runs_are_not_read() -> None:
    assert (
        describe_series(run_of({"a": ROWS}, rows_in_file=MOST_ROWS_READ + 1), "sales", str) is None
    )
    assert describe_series(run_of({"a": ROWS}, kind="map"), "sales", str) is None
    many = pa.concat_tables([ROWS] * 200)
    (picture,) = drawn(many).pictures
    assert len(picture.predicted.split()) == MOST_POINTS
