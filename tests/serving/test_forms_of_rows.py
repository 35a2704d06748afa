"""Rows of any values, in each form that a predictor takes: a model sees the same in all of them.

The model gives back its one feature, so that a prediction is what it saw.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.models.plain_models import Design, LinearModel
from partwise.serving.columns import columns_of_rows
from partwise.serving.served_model import ServedModel
from partwise.tables.calendar import with_zones
from partwise.tables.categories import categories_of_rows

WORDS = ["low", "mid", "high", "", "ä"]
FIRST, LAST = (dt.datetime(year, 1, 1) for year in (1970, 2100))  # noqa: DTZ001 (without a zone)
TIMES = st.datetimes(FIRST, LAST)
WHOLE = TIMES.map(lambda time: time.replace(microsecond=0))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], str]] = {
    "int8": (pa.int8(), st.integers(-128, 127), "x"),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), "x"),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), "x"),
    "float16": (pa.float16(), st.floats(width=16, allow_nan=False), "x"),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False), "x"),
    "float64": (pa.float64(), st.floats(allow_nan=False), "x"),
    "bool": (pa.bool_(), st.booleans(), "x"),
    "decimal": (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3), "x"),
    "categories": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(WORDS), "x"),
    "text": (pa.string(), st.sampled_from([*WORDS, "unknown"]), "x"),
    "large text": (pa.large_string(), st.sampled_from(WORDS), "x"),
    "date": (pa.date32(), TIMES.map(dt.datetime.date), "x@epoch_days"),
    "seconds": (pa.timestamp("s"), WHOLE, "x@epoch_days"),
    "microseconds": (pa.timestamp("us"), TIMES, "x@epoch_days"),
    "nanoseconds": (pa.timestamp("ns"), TIMES, "x@epoch_days"),
    "zoned": (
        pa.timestamp("us", "Europe/Berlin"),
        TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
        "x@hour",
    ),
    "time of day": (pa.time64("us"), st.times(), "x@minute"),
}
"""By the type of a column: what values it may have, and the feature that is made of them."""

MISSING = -12345.25
"""What a model sees where a value is missing."""
REFUSED = {("array", "zoned")}
"""Forms that cannot say what the type has: numpy's times have no zone."""


def forms_of(table: pa.Table) -> Iterator[tuple[str, Any]]:
    column, frame = table.column("x"), table.to_pandas()
    frame.index = frame.index + 7  # as of a frame that was filtered
    yield "batch", table.combine_chunks().to_batches()[0]
    yield "frame", frame
    yield "polars", pl.from_arrow(table)
    yield "objects", table.to_pylist()
    yield "lists", table.to_pydict()
    yield "arrow", {"x": column.combine_chunks()}
    yield "series", {"x": frame["x"]}
    yield "polars series", {"x": pl.from_arrow(table)["x"]}
    # Arrow itself (26.0) gives numpy another value for a null among categories.
    if not pa.types.is_dictionary(column.type):
        yield "array", {"x": column.to_numpy()}


def model_of(kind: pa.DataType, feature: str) -> ServedModel:
    is_text = pa.types.is_dictionary(kind) or pa.types.is_string(kind)
    is_text = is_text or pa.types.is_large_string(kind)
    zero, one = np.zeros(1), np.ones(1)
    design = Design(
        names=(feature,),
        categories={"x": WORDS} if is_text else {},
        fills=(MISSING,),
        one_hot=False,
    )
    model = LinearModel(
        design=design, centres=zero, scales=one, weights=one[:, None], intercepts=zero,
        link="identity",
    )  # fmt: skip
    words = pa.table({"x": pa.array(WORDS).dictionary_encode()})
    trained = categories_of_rows(words, ()) if is_text else None
    if pa.types.is_temporal(kind):
        trained = with_zones(None, {"x": getattr(kind, "tz", None) or ""})
    return ServedModel(model, trained, 0)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_model_sees_the_same_in_every_form(name, data):
    kind, values, feature = KINDS[name]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=4))
    if all(value is None for value in rows):
        rows[0] = data.draw(values)
    array = pa.array(rows, kind.value_type if pa.types.is_dictionary(kind) else kind)
    table = pa.table({"x": array.dictionary_encode() if pa.types.is_dictionary(kind) else array})
    served = model_of(kind, feature)
    wanted = served.predict(*columns_of_rows(table))["prediction"]
    # Infinite numbers, and texts that it has not learned, are missing for a model.
    if not name.startswith(("float", "text")):
        assert (wanted == MISSING).tolist() == [value is None for value in rows]
    for form, given_rows in forms_of(table):
        if (form, name) in REFUSED:
            with pytest.raises(ColumnError, match="had the time zone"):
                served.predict(*columns_of_rows(given_rows))
            continue
        found = served.predict(*columns_of_rows(given_rows))["prediction"]
        np.testing.assert_array_equal(found, wanted, err_msg=form)


class Labels:
    """A model of somebody's own, which knows the words that are short."""

    feature_names_in_ = ("x",)

    def predict(self, frame: pd.DataFrame) -> pd.Series:
        return frame["x"].where(frame["x"].str.len() < 4).astype("category")


def test_a_category_that_a_model_does_not_predict_is_none():
    served = ServedModel(Labels(), None, 0)
    found = served.predict({"x": ["low", "middle", "mid"]}, 3)
    assert found["prediction"].tolist() == ["low", None, "mid"]


class PolarsLabels:
    """A model of somebody's own that predicts a frame of polars."""

    feature_names_in_ = ("x",)

    def predict(self, frame: pd.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"size": pl.Series(frame["x"], dtype=pl.Categorical)})


def test_categories_of_polars_are_predicted_as_their_texts():
    found = ServedModel(PolarsLabels(), None, 0).predict({"x": ["low", "mid", None]}, 3)
    assert found["size"].tolist() == ["low", "mid", None]
