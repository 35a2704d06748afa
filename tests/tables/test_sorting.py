"""Columns that are put in order, of types that Arrow does not sort by itself."""

from datetime import date, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.errors import ColumnError
from partwise.tables.sorting import groupable, sortable

DICTIONARY = pa.array(["b", "a", None, "c"]).dictionary_encode()
ORDERED = pa.DictionaryArray.from_arrays([1, 0, None, 2], ["low", "high", "top"], ordered=True)
COLUMNS = {
    "int": pa.array([10, 9, None, 11]),
    "bool": pa.array([True, False, None, True]),
    "half": pa.array(np.array([2, 1, np.nan, 3], np.float16)),
    "double": pa.array([2.0, 1.0, np.nan, 3.0]),
    **{f"decimal{bits}": pa.array([Decimal(2), Decimal(1), None, Decimal(3)], kind)
       for bits, kind in ((32, pa.decimal32(3)), (64, pa.decimal64(3)), (128, pa.decimal128(3)))},
    "text": pa.array(["b", "a", None, "c"]),
    "view": pa.array(["b", "a", None, "c"], pa.string_view()),
    "date": pa.array([date(2026, 1, 2), date(2026, 1, 1), None, date(2026, 1, 3)]),
    "time": pa.array([time(2), time(1), None, time(3)]),
    "duration": pa.array([timedelta(2), timedelta(1), None, timedelta(3)]),
    "categories": DICTIONARY,
    "ordered": ORDERED,
    "runs": pc.run_end_encode(pa.array([2, 1, None, 3])),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_what_has_an_order_is_put_in_it_with_what_is_missing_at_the_end(name):
    array = COLUMNS[name]
    for column in (pa.chunked_array([array]), pa.chunked_array([array[:2], array[2:]])):
        found = sortable(column, "latest_by")
        assert pc.sort_indices(found).to_pylist() == [1, 0, 3, 2]
        assert found.null_count == 1
    assert len(sortable(pa.chunked_array([], array.type), "latest_by")) == 0


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.month_day_nano_interval()]
)
def test_what_has_no_order_is_refused(kind):
    with pytest.raises(ColumnError, match=r"^latest_by is .*, whose values have no order"):
        sortable(pa.chunked_array([pa.nulls(1, kind)]), "latest_by")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([bytes(16), bytes(16), b"b" * 16], pa.uuid()),
        pa.array([0.0, -0.0, 1.0]),
        pa.array(np.array([0.0, -0.0, 1.0], np.float16)),
        pa.array(["a", "a", "b"], pa.string_view()),
        pa.array(["a", "a", "b"]).dictionary_encode(),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_are_one_are_equal_where_rows_are_put_in_groups(values):
    found = groupable(pa.chunked_array([values]))
    assert pc.run_end_encode(found).run_ends.to_pylist() == [2, 3]
    assert groupable(pa.chunked_array([], values.type)).type == found.type
