"""Rows of a run as a CSV file: each type has a form there."""

import csv
import datetime as dt
import errno
import fcntl
import os
import time
import uuid
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import InputError
from partwise.runs.table_file import write_table_file

ID = uuid.UUID(int=7)
COLUMNS = {
    "a span of no length": (pa.array([dt.timedelta(0), dt.timedelta(seconds=5)]), ["0", "5"]),
    "whole seconds": (pa.array([0, None], pa.duration("s")), ["0", ""]),
    "spans that Python has not": (
        pa.array([1_500_000_001, 2**61], pa.duration("ns")),
        ["1.500000001", "2305843009.213694"],
    ),
    "a long span": (pa.array([2**55, None], pa.duration("s")), ["3.602879701896397e+16", ""]),
    "texts": (pa.array(["a,b", None], pa.string()), ["a,b", ""]),
    "bytes": (pa.array([b"\x01\xff", None], pa.binary()), ["01ff", ""]),
    "ids": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16))),
        [str(ID), ""],
    ),
    "json": (
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": [1]}', None])),
        ['{"a": [1]}', ""],
    ),
    "flags": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
        ["true", ""],
    ),
}


@dataclass
class Predicted:
    """What `write_table_file` reads of a run: a file of predictions."""

    table: pa.Table

    def iter_predictions(self):
        yield self.table


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("in_file", [False, True])
def test_columns_have_a_form_in_csv(tmp_path, name, in_file):
    column, expected = COLUMNS[name]
    table = pa.table({"x": column, "row": [0, 1]})
    if in_file:
        pq.write_table(table, tmp_path / "x.parquet")
        table = pq.read_table(tmp_path / "x.parquet")
    path = tmp_path / "x.csv"
    assert write_table_file(Predicted(table), "predictions", path) == 2
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["x", "row"]
    assert rows == [[expected[0], "0"], [expected[1], "1"]]


def test_a_name_that_is_too_long_for_a_file_is_refused(tmp_path):
    table = pa.table({"x": [1]})
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        write_table_file(Predicted(table), "predictions", tmp_path / f"{300 * 'a'}.csv")


def test_what_a_killed_process_left_beside_the_file_goes_with_the_next_after_a_day(tmp_path):
    # A younger one may be of a machine of whose locks this one knows nothing.
    for name, age_s in (("dead", 90_000), ("elsewhere", 80_000)):
        (tmp_path / f".partwise-{name}").mkdir()
        (tmp_path / f".partwise-{name}" / "half.csv").touch()
        (lock := tmp_path / f".partwise-{name}.lock").touch()
        os.utime(lock, 2 * (time.time() - age_s,))
    write_table_file(Predicted(pa.table({"x": [1]})), "predictions", tmp_path / "x.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".partwise-elsewhere", ".partwise-elsewhere.lock", "x.csv"]


def test_a_file_is_written_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    write_table_file(Predicted(pa.table({"x": [1]})), "predictions", tmp_path / "x.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_a_link_to_where_no_folder_is_is_refused_and_makes_none(tmp_path):
    (tmp_path / "x.csv").symlink_to(tmp_path / "nowhere" / "x.csv")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write_table_file(
            Predicted(pa.table({"x": [1]})), "predictions", tmp_path / "x.csv", overwrite=True
        )
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
