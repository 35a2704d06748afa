"""Columns of types that do not go together are told with the partitions that returned them."""

import csv
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from partwise.errors import ColumnError
from partwise.runs.ledger import write_table
from partwise.runs.output_types import unfit_types
from partwise.runs.run import Run
from partwise.runs.table_file import write_table_file

LEDGER = pa.table(
    {
        "key.shop": ["a", "b", "c", "d", "e"],
        "partition_id": ["a", "b", "c", "d", "e"],
        "rows_file": ["1", "1", "2", "1", "1"],
    }
)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (pa.int64(), pa.int8(), None),
        (pa.int64(), pa.float64(), None),
        (pa.null(), pa.string(), None),
        (pa.string(), pa.large_string(), None),
        (pa.int64(), pa.string(), "int64 in 4 partitions (a, b, d, ...) and string in 1 partition"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "timestamp[us] in 4 partitions"),
        (pa.bool_(), pa.float64(), "and double in 1 partition (c)"),
        (pa.list_(pa.int64()), pa.int64(), "and int64 in 1 partition (c)"),
    ],
)
def test_types_are_told_where_no_table_holds_them(first, second, told) -> None:
    schemas = {
        "1": pa.schema([("row", pa.int64()), ("x", first)]),
        "2": pa.schema([("x", second), ("own", pa.string())]),
    }
    tables = [schema.empty_table() for schema in schemas.values()]
    found = unfit_types(LEDGER, schemas)
    if told is None:
        pa.concat_tables(tables, promote_options="permissive")
        assert found is None
        return
    with pytest.raises((pa.ArrowTypeError, pa.ArrowInvalid)):
        pa.concat_tables(tables, promote_options="permissive")
    assert found is not None
    assert found.startswith("column 'x' is ")
    assert told in found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([2**53 + 1]), pa.array([0.5])),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1])),
        (pa.array([253_402_300_799], pa.timestamp("s")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([Decimal("1.25")]), pa.array([2**62])),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_value_that_the_common_type_does_not_hold_is_told(
    make_run, monkeypatch, tmp_path, first, second, suffix
) -> None:
    run = run_of(make_run, monkeypatch, first, second)
    words = "Partitions of the run 'run' returned columns of types that do not go together"
    with pytest.raises(ColumnError, match=words):
        run.predictions()
    path = tmp_path / f"rows.{suffix}"
    with pytest.raises(ColumnError, match=words):
        write_table_file(run, "predictions", path)
    assert not path.exists()


def test_lists_in_a_csv_file_are_json(make_run, monkeypatch, tmp_path) -> None:
    lists = [[1.5, math.nan], [math.inf, -math.inf, None]]
    run = run_of(make_run, monkeypatch, *(pa.array([each]) for each in lists))
    path = tmp_path / "rows.csv"
    assert write_table_file(run, "predictions", path) == 2
    with path.open() as file:
        found = sorted(row["value"] for row in csv.DictReader(file))
    assert found == ['["inf", "-inf", null]', "[1.5, null]"]


def run_of(make_run, monkeypatch, *values: pa.Array) -> Run:
    """A run of a partition for each value, in files of their own."""
    make_run.begin()
    for place, value in enumerate(values):
        rows = pa.table({"key": [str(place)], "value": value})
        with monkeypatch.context() as patch:
            patch.setattr("tests.run_maker.write_table", lambda _, rows=rows: write_table(rows))
            make_run.commit((str(place), "DONE", 1.0))
    return make_run.end(len(values))
