"""Which columns of rows have a place in a table of PostgreSQL, before one is made."""

import pyarrow as pa
import pytest

from partwise.errors import InputError
from partwise.publishing.sql_columns import refuse_columns, sql_type


@pytest.mark.parametrize(
    ("element", "declared"),
    [(pa.int64(), "bigint[]"), (pa.uint32(), "bigint[]"), (pa.float64(), "double precision[]")],
)
def test_lists_of_numbers_are_arrays(element, declared) -> None:
    assert sql_type(pa.list_(element), "postgresql") == declared
    assert sql_type(pa.large_list(element), "postgresql") == declared


@pytest.mark.parametrize("element", [pa.uint64(), pa.decimal128(5, 2), pa.list_(pa.int64())])
def test_lists_that_are_no_arrays_of_ours_are_refused(element) -> None:
    with pytest.raises(InputError, match=r"Column 'x' of type .+ has no place"):
        sql_type(pa.list_(element), "postgresql", "x")


def test_a_name_that_postgresql_would_cut_off_is_refused() -> None:
    fits, long = pa.field("ä" * 31 + "x", pa.int64()), pa.field("ä" * 32, pa.int64())
    refuse_columns("t", None, [fits], "postgresql")
    refuse_columns("t", None, [long], "sqlite")
    with pytest.raises(InputError, match="keeps 63 of 64 bytes: rename it"):
        refuse_columns("t", None, [fits, long], "postgresql")
    # By a server that was built with longer names.
    refuse_columns("t", pa.schema([long]), [long], "postgresql")
