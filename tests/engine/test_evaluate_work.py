"""Predictions of one partition joined with labels: held against a plain join of dicts."""

import math
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.connector.data_connector import DataConnector
from partwise.engine.evaluate_work import EvaluateWork
from partwise.engine.outcome import Produced
from partwise.errors import InputError
from partwise.evaluation.scores import find_metric
from partwise.tables.keys.partition_keys import key_columns

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("day", pa.int64()),
        ("y", pa.float64()),
        ("entered", pa.int64()),
        ("prediction", pa.float64()),
        ("model_level", pa.int32()),
        ("is_prediction", pa.int64()),
    ]
)
NUMBERS = st.none() | st.sampled_from([math.nan, math.inf]) | st.integers(-9, 9).map(float)
LABELS = st.lists(st.tuples(st.integers(0, 7), NUMBERS, st.integers(0, 99)), max_size=16)
PREDICTIONS = st.dictionaries(st.integers(0, 7), NUMBERS, max_size=8)


def table(labels: Any, predictions: dict[int, float | None], level: int = 0) -> pa.Table:
    rows = [("k", day, y, entered, None, None, 0) for day, y, entered in labels]
    rows += [("k", day, None, None, value, level, 1) for day, value in predictions.items()]
    columns = list(zip(*rows, strict=True)) or [[] for _ in SCHEMA]
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def evaluated(rows: pa.Table, *models: Any, latest_by: str = "", on: Any = ("day",)) -> Produced:
    work = EvaluateWork(
        source_column="is_prediction",
        key_columns=("key",),
        on=key_columns(rows.schema, on) if on else (),
        label="y",
        latest_by=latest_by,
        predictions=("prediction",),
        level_column="model_level",
        metric=find_metric("mae"),
    )
    context: Any = SimpleNamespace()
    return work(DataConnector(rows), context, models, "")


def model(level: int, value: float | None = 1.0, rows: int | None = 20) -> Any:
    return SimpleNamespace(
        level=level, value_then=value, rows_then=rows, trained_categories=lambda: None
    )


@given(LABELS, PREDICTIONS)
def test_it_is_a_join_of_what_is_there_with_the_latest_label(labels, predictions) -> None:
    there: dict[int, tuple[int, int, float]] = {}
    usable = 0
    for place, (day, y, entered) in enumerate(labels):
        if y is None or not math.isfinite(y):
            continue
        usable += 1
        if day not in there or (entered, place) > there[day][:2]:
            there[day] = (entered, place, y)
    finite = {day for day, v in predictions.items() if v is not None and math.isfinite(v)}
    joined = {day for day in predictions if day in there}
    want = {
        "predicted_rows": len(predictions),
        "labelled_rows": len(joined & finite),
        "pending_rows": len(predictions) - len(joined),
        "lost_rows": len(joined - finite),
        "unpredicted_rows": len(there) - len(joined),
        "corrected_labels": usable - len(there),
    }
    found = evaluated(table(labels, predictions), latest_by="entered")
    assert {name: found.metrics.get(name, 0) for name in want} == want
    assert want["predicted_rows"] == sum(
        want[name] for name in ("labelled_rows", "pending_rows", "lost_rows")
    )
    errors = [abs((predictions[day] or 0.0) - there[day][2]) for day in joined & finite]
    assert ("mae" in found.metrics) == bool(errors)
    if errors:
        assert found.metrics["mae"] == pytest.approx(sum(errors) / len(errors))
    assert found.rows is not None
    rows = {row["day"]: row["y"] for row in found.rows.to_pylist()}
    assert rows == {day: there[day][2] for day in joined}


@given(LABELS, PREDICTIONS)
def test_without_an_order_two_labels_of_a_row_are_refused(labels, predictions) -> None:
    days = [day for day, y, _ in labels if y is not None and math.isfinite(y)]
    rows = table(labels, predictions)
    if len(days) == len(set(days)):
        assert evaluated(rows).metrics.get("corrected_labels", 0) == 0
    else:
        with pytest.raises(InputError, match=f"^{len(days) - len(set(days))} label"):
            evaluated(rows)


def test_without_on_a_key_has_one_row() -> None:
    assert evaluated(table([(3, 2.0, 0)], {5: 1.0}), on=()).metrics["mae"] == 1
    with pytest.raises(InputError, match="1 prediction more"):
        evaluated(table([(3, 2.0, 0)], {5: 1.0, 6: 1.0}), on=())


def test_it_is_compared_with_the_level_that_answered() -> None:
    rows = table([(1, 2.0, 0), (2, 2.0, 0)], {1: 1.0, 2: 4.0}, level=1)
    found = evaluated(rows, model(0, 7.0), model(1, 0.5, 30)).metrics
    assert (found["value_then"], found["rows_then"], found["model_level"]) == (0.5, 30, 1)
    # A fallback, such as a constant, stands behind all models; so it does without its model's row.
    assert "value_then" not in evaluated(rows, model(0, 7.0)).metrics
    unknown = evaluated(rows, model(1, None, None)).metrics
    assert "value_then" not in unknown
    assert "confidence" not in unknown


@pytest.mark.parametrize(
    ("entered", "latest"),
    [
        (pa.array([5.0, math.nan, 4.0, None]), 1.0),
        (pa.array([math.nan, None, math.nan, None]), 3.0),
        (pa.array(["v2", "v1", "v1", None]).dictionary_encode(), 1.0),
    ],
)
def test_the_latest_label_has_the_largest_value_which_nan_is_not(entered, latest):
    rows = table([(1, y, 0) for y in (1.0, 2.0, 3.0)], {1: 0.0})
    rows = rows.set_column(rows.column_names.index("entered"), "entered", entered)
    found = evaluated(rows, latest_by="entered")
    assert found.rows["y"].to_pylist() == [latest]
