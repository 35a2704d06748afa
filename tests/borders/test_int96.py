"""Parquet's INT96: times of all years, as fine as they were written, in values and in filters."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import SourceError
from partwise.sources.files.file_set import Files

FOREVER = np.datetime64("9999-12-31T23:59:59.999999", "us")
EARLY = np.datetime64("1500-01-01", "us")
TIMES = [FOREVER, EARLY, None, np.datetime64("2026-01-01T01:02:03.000004", "us")]


def write(path, table, **options):
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **options)
    return str(path)


def test_int96_keeps_years_that_nanoseconds_lack_in_values_and_filters(tmp_path):
    times = pa.array(TIMES, pa.timestamp("us"))
    path = write(tmp_path / "a.parquet", pa.table({"ts": times, "n": [0, 1, 2, 3]}))
    assert DataConnector.from_sources(path).to_arrow()["ts"].combine_chunks() == times
    later = DataConnector.from_sources(path, filter=[("ts", ">", "2500-01-01")])
    assert later.to_arrow()["n"].to_pylist() == [0]


def test_int96_within_lists_structs_and_maps_is_as_it_was_written(tmp_path):
    late = dt.datetime(9999, 1, 1)  # noqa: DTZ001
    kind = pa.timestamp("us")
    table = pa.table(
        {
            "list": pa.array([[late, None], None, []], pa.list_(kind)),
            "map": pa.array([[("a", late)], None, []], pa.map_(pa.string(), kind)),
            "struct": pa.array([{"x": late}, None, {"x": None}], pa.struct([("x", kind)])),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    assert DataConnector.from_sources(path).to_arrow().to_pylist() == table.to_pylist()


def test_int96_of_many_row_groups_and_batches_is_checked_row_by_row(tmp_path):
    counts = np.random.default_rng(7).integers(-(2**55), 2**57, 300_000)
    text = pa.array([f"{i % 1000:05}" for i in range(len(counts))])
    table = pa.table({"text": text, "ts": pa.array(counts, pa.timestamp("us"))})
    path = write(tmp_path / "a.parquet", table, row_group_size=70_001)
    assert DataConnector.from_sources(path).to_arrow().equals(table)


@pytest.mark.parametrize("name", ["ts", "t.s"])
def test_int96_finer_than_microseconds_is_refused_or_declared(tmp_path, name):
    counts = pa.array([1000, 2**62 - 1, None], pa.timestamp("ns"))
    path = write(tmp_path / "a.parquet", pa.table({name: counts}))
    message = (
        rf"column '{name}' holds a time 903 ns after 2116-02-20 "
        rf".*types=\{{'{name}': 'timestamp\[ns\]'\}}"
    )
    with pytest.raises(SourceError, match=message):
        DataConnector.from_sources(path)
    files = Files(path, types={name: "timestamp[ns]"})
    assert DataConnector.from_sources(files).to_arrow()[name].combine_chunks() == counts


def test_int96_beyond_declared_nanoseconds_is_refused(tmp_path):
    path = write(tmp_path / "a.parquet", pa.table({"ts": pa.array(TIMES, pa.timestamp("us"))}))
    files = Files(path, types={"ts": "timestamp[ns]"})
    with pytest.raises(SourceError, match=r"holds 9999-12-31 .* is beyond the nanoseconds"):
        DataConnector.from_sources(files)
