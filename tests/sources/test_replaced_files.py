"""A file replaced by another of its size and mtime, as cp -p, rsync -a and tar leave one."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import SourceError
from partwise.sources.files import discovery
from partwise.sources.opening import open_source

MOMENT_NS = 1_700_000_000_000_000_000


def write(path: Path, value: int) -> Path:
    """Write a file of one size, whatever the value, and of one mtime."""
    table = pa.table({"key": np.arange(100) % 4, "x": np.full(100, value)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    os.utime(path, ns=(MOMENT_NS, MOMENT_NS))
    return path


def in_place(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(MOMENT_NS, MOMENT_NS))


def by_rename(path: Path, other: Path) -> None:
    os.replace(other, path)


def by_cp(path: Path, other: Path) -> None:
    subprocess.run(["cp", "-p", str(other), str(path)], check=True)


def by_tar(path: Path, other: Path) -> None:
    packed = path.with_suffix(".tar")
    folder = path.parent / "packed"
    folder.mkdir()
    shutil.move(other, folder / path.name)
    subprocess.run(["tar", "-C", str(folder), "-cf", str(packed), path.name], check=True)
    subprocess.run(["tar", "-C", str(path.parent), "-xf", str(packed)], check=True)


WAYS = pytest.mark.parametrize("replace", [in_place, by_rename, by_cp, by_tar])


@WAYS
def test_another_content_has_another_fingerprint(replace, tmp_path):
    path, other = write(tmp_path / "x.parquet", 1), write(tmp_path / "y", 2)
    before, first = path.stat(), open_source(path).description()
    again = open_source(path)
    assert again.description() == first
    replace(path, other)
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert open_source(path).description().fingerprint != first.fingerprint
    with pytest.raises(SourceError, match=r"x\.parquet' changed while it was in use"):
        list(again.batches())


def test_many_versions_within_a_tick_of_the_clock_are_told_apart(tmp_path):
    """A time stamp that has not moved on yet is one that the next version will have too."""
    path = tmp_path / "x.parquet"
    found = set()
    for value in range(30):
        write(path, value)
        found.add(open_source(path).description().fingerprint)
    assert len(found) == 30


def test_a_clock_of_whole_seconds_is_waited_for(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", 1)
    real, waits = os.stat, []

    def coarse(*args, **options):
        stat = real(*args, **options)
        fields = {n: getattr(stat, n) for n in ("st_size", "st_mtime_ns", "st_ino", "st_mode")}
        second = stat.st_ctime_ns // 10**9 * 10**9
        return type("Stat", (), {**fields, "st_ctime_ns": second})()

    with monkeypatch.context() as patch:
        patch.setattr(discovery.os, "stat", coarse)
        patch.setattr(discovery.time, "sleep", waits.append)
        (found,) = discovery.find_files([str(path)])
    assert found.identity is not None
    assert len(waits) == 1
    assert 0.5 < waits[0] <= 2


def test_of_a_clock_that_is_ahead_nothing_is_known(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", 1)
    monkeypatch.setattr(discovery.time, "time_ns", lambda: MOMENT_NS)
    first, second = open_source(path).description(), open_source(path).description()
    assert not first.recurs
    assert first.fingerprint != second.fingerprint
    assert len(list(open_source(path).batches())) == 1


def test_on_s3_the_etag_tells(s3_store_url):
    import fsspec

    filesystem = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    url = f"{s3_store_url}/x.csv"
    found = {}
    for content in (b"key,x\na,1\n", b"key,x\na,2\n", b"key,x\na,1\n"):
        filesystem.pipe_file(url, content)
        about = open_source(url).description()
        assert about.recurs
        found.setdefault(about.fingerprint, set()).add(content)
    assert [len(contents) for contents in found.values()] == [1, 1]


def test_an_etag_may_be_listed_without_its_quotes(s3_store_url):
    import fsspec

    filesystem = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    for name in ("x", "y"):
        filesystem.pipe_file(f"{s3_store_url}/{name}.csv", f"key\n{name}\n".encode())
    one, other = discovery.find_files([s3_store_url])
    assert one.version[0] == one.version[-1] == '"'
    dataclasses.replace(one, version=one.version.strip('"')).check_unchanged()
    with pytest.raises(SourceError, match="changed while it was in use"):
        dataclasses.replace(one, version=other.version.strip('"')).check_unchanged()


def test_of_a_store_without_etags_nothing_is_known():
    class Plain:
        def info(self, path):
            return {"size": 3, "LastModified": "2026-11-22", "name": path}

    stamp = discovery._stamp(Plain(), "b/x", "s3://b/x")
    assert (stamp.version, stamp.identity) == ("2026-11-22", None)


def write_batches(path: Path, new_writer, rows: int) -> None:
    table = pa.table({"x": np.arange(rows), "text": [f"{row:0200}" for row in range(rows)]})
    with pa.OSFile(str(path), "wb") as file, new_writer(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


@pytest.mark.parametrize("new_writer", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("rows", [0, 1500, 3000, 5000])
def test_an_arrow_file_that_is_written_anew_while_it_is_read_ends_in_an_error(
    tmp_path, new_writer, rows
):
    """It was mapped, and the process ended with SIGBUS where the file was cut short."""
    path = tmp_path / "x.arrow"
    write_batches(path, new_writer, 3000)
    batches = open_source(path).batches()
    assert next(batches).num_rows == 1000
    write_batches(path, new_writer, rows)
    refused = r"x\.arrow' (changed while it was in use|cannot be read as ipc)"
    with pytest.raises(SourceError, match=refused):
        list(batches)
