"""Candidates of one partition, all on the same rows: the work of a comparison by itself."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.engine.compare_work import CompareWork
from partwise.engine.outcome import Produced
from partwise.evaluation.scores import find_metric
from partwise.outcomes import PartitionStatus, Result
from partwise.tables.classes import class_array, with_classes

ROWS = 60
LABELS = np.arange(ROWS, dtype=float)
NAMES = ("sales@1", "night", "other")


def stored(level: int, predicts: Any, *, saw_rows: bool = False, categories: Any = None) -> Any:
    """A model in the place of a stored one: what it is read as predicts."""
    return SimpleNamespace(
        level=level,
        saw_rows=saw_rows,
        artifact=SimpleNamespace(serde="plain"),
        read=lambda serde: predicts,
        trained_categories=lambda: categories,
    )


def compared(*models: Any, labels: Any = LABELS, metric: str = "rmse") -> Produced:
    table = pa.table({"y": pa.array(labels), "x": pa.array(np.arange(len(labels), dtype=float))})
    work = CompareWork(
        candidates=NAMES,
        predict=lambda data, model, context: model(data.to_arrow()),
        serde=None,
        metric=find_metric(metric),
        label="y",
    )
    context: Any = SimpleNamespace(logger=logging.getLogger("test"), threads=1)
    return work(DataConnector(table), context, models, "")


def off_by(error: float, spread: float = 0.1):
    noise = np.random.default_rng(int(100 * error)).normal(0, spread, ROWS)
    return lambda table: table["x"].to_numpy() + error + noise[: table.num_rows]


def test_the_better_one_wins_by_a_margin_and_surely():
    found = compared(stored(0, off_by(2.0)), stored(1, off_by(1.0)))
    assert (found.status, found.candidate) == (PartitionStatus.DONE, "night")
    metrics = found.metrics
    assert metrics["rmse/sales@1"] == pytest.approx(2, rel=0.1)
    assert metrics["rmse/night"] == pytest.approx(1, rel=0.1)
    assert metrics["margin"] == pytest.approx(0.5, rel=0.1)
    assert metrics["confidence/night over sales@1"] > 0.999
    assert (metrics["counted_rows"], metrics["unlabelled_rows"]) == (ROWS, 0)
    assert "lost_rows/night" not in metrics


def test_rows_count_if_all_gave_a_number_and_have_a_label():
    """Else the one that declines the hard rows would win."""

    def declines(table):
        return np.where(table["x"].to_numpy() >= 50, np.nan, table["x"].to_numpy())

    labels = [None, *LABELS[1:]]
    found = compared(stored(0, off_by(1.0)), stored(1, declines), labels=labels)
    assert found.metrics["counted_rows"] == 49
    assert found.metrics["unlabelled_rows"] == 1
    assert found.metrics["lost_rows/night"] == 10
    assert found.metrics["rmse/night"] == 0
    assert found.candidate == "sales@1", "whoever declines rows never wins"


def test_one_that_predicts_nothing_takes_no_rows_from_others():
    def nothing(table):
        return np.full(table.num_rows, np.nan)

    found = compared(stored(0, nothing), stored(1, off_by(1.0)), stored(2, off_by(2.0)))
    assert found.metrics["counted_rows"] == ROWS
    assert "rmse/sales@1" not in found.metrics
    assert found.candidate == "night"


def test_one_that_raises_has_no_value_and_says_why():
    def raises(table):
        raise ValueError("no such column")

    found = compared(stored(0, off_by(1.0)), stored(1, raises))
    assert found.status is PartitionStatus.DONE
    assert found.reason == "night raised ValueError: no such column"
    assert found.metrics["failed/night"] == 1
    assert found.candidate == "sales@1"
    with pytest.raises(ValueError, match="no such column"):
        compared(stored(0, raises), stored(1, raises))


def test_predictions_stand_beside_their_rows_as_in_inference():
    """In any order, by their index; as a `Result`; with bounds beside them."""

    def by_x(table):
        frame = table.to_pandas().sort_values("x", ascending=False)
        return pd.Series(frame["x"] + 1.0, index=frame.index)

    def with_bounds(table):
        predictions = by_x(table)
        return pd.DataFrame({"low": predictions - 9, "prediction": predictions})

    models = [stored(0, by_x), stored(1, lambda table: Result(by_x(table))), stored(2, with_bounds)]
    found = compared(*models)
    assert [found.metrics[f"rmse/{name}"] for name in NAMES] == [1, 1, 1]


def test_a_tie_is_nobodys():
    found = compared(stored(0, off_by(1.0)), stored(1, off_by(1.0)))
    assert found.candidate == ""
    assert found.metrics["confidence/night over sales@1"] == 0.5
    assert "margin" not in found.metrics


def test_one_that_saw_the_rows_does_not_win():
    found = compared(stored(0, off_by(1.0)), stored(1, off_by(0.0), saw_rows=True))
    assert found.candidate == ""
    assert found.metrics["trained_on/night"] == 1
    third = stored(2, off_by(0.5))
    found = compared(stored(0, off_by(1.0)), stored(1, off_by(0.0), saw_rows=True), third)
    assert found.candidate == "other", "of those that did not see them"


def test_without_models_or_labels_it_is_skipped():
    found = compared()
    assert found.status is PartitionStatus.SKIPPED
    found = compared(stored(0, off_by(1.0)), labels=[None] * ROWS)
    assert (found.status, found.metrics) == (PartitionStatus.SKIPPED, {"unlabelled_rows": ROWS})
    assert found.reason == "No row has a value of the label 'y'."


def test_each_candidate_has_the_classes_of_its_own_training():
    """In another order, of which the places are the labels."""
    labels = pa.array(["no", "yes"] * 30)
    kept = {
        order: with_classes(None, "y", class_array("y", pa.string(), order))
        for order in (("no", "yes"), ("yes", "no"))
    }

    def says(first):
        return lambda table: np.column_stack([first, 1 - first])

    is_no = np.where(np.arange(ROWS) % 2 == 0, 0.9, 0.1)
    found = compared(
        stored(0, says(is_no), categories=kept["no", "yes"]),
        stored(1, says(1 - is_no), categories=kept["yes", "no"]),
        labels=labels,
        metric="logloss",
    )
    assert found.metrics["logloss/sales@1"] == pytest.approx(-np.log(0.9))
    assert found.metrics["logloss/night"] == pytest.approx(-np.log(0.9))


def test_a_metric_that_does_not_fit_is_an_error_of_its_candidate():
    found = compared(stored(0, off_by(1.0)), stored(1, lambda table: np.ones((table.num_rows, 3))))
    assert found.reason.startswith("night raised InputError: A regression model predicts")
    assert found.candidate == "sales@1"
