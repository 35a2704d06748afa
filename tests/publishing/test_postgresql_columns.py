"""Which columns of rows have a place in a table of PostgreSQL, before one is made."""

import pyarrow as pa
import pytest

from partwise.errors import InputError, OutputError
from partwise.publishing.sql_columns import refuse_columns, sql_type
from partwise.publishing.sql_output import Table, check_table
from tests.borders.database_borders import append


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


@pytest.mark.parametrize("declared", ["", "text[]", "bigint[]", "timestamptz[]"])
def test_lists_without_a_value_are_appended_to_any_list(postgres_server, declared) -> None:
    """As a function returns them for a partition in which there is nothing to list."""
    name = f"no_values_{declared[:3]}"
    if declared:
        postgres_server.execute(
            f"CREATE TABLE {name} (run_id text, partition_id text, x {declared})"
        )
    table = Table(name, postgres_server.uri)
    rows = pa.table({"x": pa.array([[], None, [None]], pa.list_(pa.null()))})
    check_table(table, list(rows.schema))
    append(rows, table)
    assert postgres_server.rows(f"SELECT x FROM {name}") == [([],), (None,), ([None],)]


def test_a_name_that_postgresql_would_cut_off_is_refused() -> None:
    fits, long = pa.field("ä" * 31 + "x", pa.int64()), pa.field("ä" * 32, pa.int64())
    refuse_columns("t", None, [fits], "postgresql")
    refuse_columns("t", None, [long], "sqlite")
    with pytest.raises(InputError, match="keeps 63 of 64 bytes: rename it"):
        refuse_columns("t", None, [fits, long], "postgresql")
    # By a server that was built with longer names.
    refuse_columns("t", pa.schema([long]), [long], "postgresql")


def test_a_table_of_another_database_is_refused_and_not_made_in_this_one(postgres_server) -> None:
    ((own,),) = postgres_server.rows("SELECT CAST(current_database() AS text)")
    rows = pa.table({"x": [1]})
    append(rows, Table(f'"{own}".public.named_whole', postgres_server.uri))
    assert postgres_server.rows("SELECT x FROM named_whole") == [(1,)]

    other = Table("Other.public.elsewhere", postgres_server.uri)
    with pytest.raises(OutputError, match=f"of the database 'other', and the URI names '{own}'"):
        check_table(other, list(rows.schema))
    assert postgres_server.rows("SELECT to_regclass('elsewhere')::text") == [(None,)]
