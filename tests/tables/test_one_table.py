"""Rows of several runs in one table, whose keys may have changed their type."""

from datetime import datetime

import pyarrow as pa
import pytest

from partwise.errors import KeyClassError
from partwise.tables.keys.one_table import one_table

SIGNED, UNSIGNED = pa.int64(), pa.uint64()
YEAR_1 = datetime(1, 1, 1)  # noqa: DTZ001


def keys(values: list, kind: pa.DataType, **others: list) -> pa.Table:
    return pa.table({"key.k": pa.array(values, kind), **others})


@pytest.mark.parametrize(
    ("first", "other", "kind"),
    [
        (keys([5], SIGNED), keys([2**64 - 1], UNSIGNED), UNSIGNED),
        (keys([5], UNSIGNED), keys([-1], SIGNED), SIGNED),
        (keys([2**63], UNSIGNED, x=[1]), keys([7], SIGNED), UNSIGNED),
        (keys(["a"], pa.string()), keys(["b"], pa.large_string()), pa.large_string()),
    ],
)
def test_all_values_get_one_type(first, other, kind) -> None:
    for tables in ([first, other], [other, first]):
        table = one_table(tables)
        assert table["key.k"].type == kind
        assert table["key.k"].to_pylist() == [t["key.k"][0].as_py() for t in tables]


@pytest.mark.parametrize(
    "tables",
    [
        [keys([-1], SIGNED), keys([2**64 - 1], UNSIGNED)],
        [keys([YEAR_1], pa.timestamp("us")), keys([1], pa.timestamp("ns"))],
    ],
)
def test_values_that_no_type_holds_are_refused_in_a_sentence(tables) -> None:
    with pytest.raises(KeyClassError, match=r"^The values of 'key\.k' are of types that have none"):
        one_table(tables)
