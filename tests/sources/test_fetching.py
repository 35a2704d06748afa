"""Small files of a bucket: one request to look at each, and two to read it, ahead of its turn."""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.sources import fetching
from partwise.sources.derived import in_blocks
from partwise.sources.fetching import fetched_ahead
from partwise.sources.files import discovery, parquet_files
from partwise.sources.files.file_set import Files
from partwise.sources.files.rows import FileFragment
from partwise.sources.opening import keyed_by, open_source
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.sources.test_schema_policies import put

FILES = 20


@pytest.fixture(scope="module")
def _proxy(s3_endpoint_url) -> Iterator[FaultProxy]:
    with fault_proxy(s3_endpoint_url) as proxy:
        yield proxy


@dataclass
class Bucket:
    """A folder of a bucket behind a proxy, and beside it."""

    proxy: FaultProxy
    direct: Any
    folder: str

    def fill(self, tmp_path: Path, format_: str) -> Files:
        """Write files with rows of their own number, of which three have 7 for key."""
        for number in range(FILES):
            path = tmp_path / f"{number:02}.{format_}"
            put(path, pa.table({"key": [7, number, 7, 7], "number": [number] * 4}))
            self.direct.put_file(str(path), f"{self.folder}/{path.name}")
        return Files(f"s3://{self.folder}", endpoint_url=self.proxy.url)

    def requests(self) -> Counter[str]:
        """Count the requests to each file since the last call, by their kinds."""
        seen = [line.split() for line in self.proxy.seen]
        self.proxy.seen.clear()
        named = [(verb, path.rpartition("/")[2]) for verb, path in seen]
        return Counter(f"{verb} {name}" for verb, name in named if name[2:3] == ".")


@pytest.fixture
def bucket(_proxy, s3_bucket, s3_endpoint_url) -> Bucket:
    import s3fs

    _proxy.forward_all()
    direct = s3fs.S3FileSystem(endpoint_url=s3_endpoint_url, use_listings_cache=False)
    return Bucket(_proxy, direct, f"{s3_bucket}/{uuid.uuid4().hex}")


def numbers(source) -> list[int]:
    read = fetched_ahead(source.fragments(["key"]))
    return [
        n for each in read for b in source.selection.batches(each) for n in b["number"].to_pylist()
    ]


@pytest.mark.parametrize("format_", ["parquet", "csv", "jsonl", "orc"])
def test_a_file_is_asked_for_a_few_times(bucket, tmp_path, format_):
    files = bucket.fill(tmp_path, format_)
    bucket.requests()
    source = keyed_by(open_source(files), ["key"])
    # Keys of CSV are looked at once more, for codes.
    looks = 2 if format_ == "csv" else 1
    assert bucket.requests() == {f"GET {n:02}.{format_}": looks for n in range(FILES)}
    assert numbers(source) == [n for n in range(FILES) for _ in range(4)]
    expected = {f"{verb} {n:02}.{format_}": 1 for verb in ("GET", "HEAD") for n in range(FILES)}
    assert bucket.requests() == expected


def test_a_filter_asks_for_nothing_more(bucket, tmp_path):
    files = bucket.fill(tmp_path, "parquet")
    source = open_source(files, filter=[("number", ">=", 15)])
    bucket.requests()
    assert numbers(source) == [n for n in range(15, FILES) for _ in range(4)]
    assert len(bucket.requests()) == 2 * 5


def test_a_large_file_is_read_in_ranges(bucket, tmp_path, monkeypatch):
    files = bucket.fill(tmp_path, "parquet")
    monkeypatch.setattr(discovery, "_FETCHED_BYTES", 10)
    source = open_source(files)
    assert numbers(source) == [n for n in range(FILES) for _ in range(4)]
    assert all(each.file.fetched().content is None for each in source.fragments())


def test_a_column_more_changes_nothing_of_that(bucket, tmp_path):
    source = in_blocks(open_source(bucket.fill(tmp_path, "parquet")))
    bucket.requests()
    assert numbers(source) == [n for n in range(FILES) for _ in range(4)]
    assert bucket.requests().total() == 2 * FILES
    assert all(each.fetched().fragment.file.content for each in source.fragments())


@pytest.mark.parametrize("is_light", [True, False], ids=["group by group", "batch by batch"])
def test_of_a_large_file_no_byte_is_read_twice(bucket, tmp_path, monkeypatch, is_light):
    """Nor any of columns that nobody asks for, but few between those that somebody does."""
    monkeypatch.setattr(discovery, "_FETCHED_BYTES", 10)
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 4096)
    monkeypatch.setattr(parquet_files, "_BUFFER_BYTES", 2**16)
    monkeypatch.setattr(parquet_files, "_LARGEST_BUFFER_BYTES", 2**16)
    monkeypatch.setattr(parquet_files, "_BRIDGED_BYTES", 1000)
    monkeypatch.setattr(parquet_files, "_GROUP_BYTES", 2**26 if is_light else 0)
    random = np.random.default_rng(0)
    table = pa.table({f"x{number}": random.random(30_000) for number in range(20)})
    pq.write_table(table, tmp_path / "00.parquet", row_group_size=15_000, use_dictionary=False)
    bucket.direct.put_file(str(tmp_path / "00.parquet"), f"{bucket.folder}/00.parquet")
    files = Files(f"s3://{bucket.folder}", endpoint_url=bucket.proxy.url)
    size = (tmp_path / "00.parquet").stat().st_size
    for columns, share in ((None, 1.0), (["x3", "x11"], 0.1)):
        source = open_source(files, columns=columns)
        before = bucket.proxy.carried
        batches = [b for each in source.fragments() for b in source.selection.batches(each)]
        # Of the file's end 64 KiB are read.
        assert bucket.proxy.carried - before < 1.1 * share * size + 2**17
        assert len(batches) > 2
        read = pa.Table.from_batches(batches)
        assert read.equals(table.select(columns or table.column_names))


@pytest.mark.parametrize("change", ["written again", "deleted"])
def test_a_file_that_changed_is_refused_at_its_turn(bucket, tmp_path, change):
    source = open_source(bucket.fill(tmp_path, "parquet"))
    fragments = source.fragments()
    name = f"{bucket.folder}/05.parquet"
    if change == "deleted":
        bucket.direct.rm_file(name)
    else:
        put(tmp_path / "05.parquet", pa.table({"key": [7, 5, 7, 7], "number": [6] * 4}))
        bucket.direct.put_file(str(tmp_path / "05.parquet"), name)
    read = fetched_ahead(fragments)
    first = [next(read).file.path[-10:] for _ in range(5)]
    assert first == [f"{n:02}.parquet" for n in range(5)]
    with pytest.raises(SourceError, match=r"05\.parquet.* (changed while it was|cannot be read)"):
        next(read)


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 2**20, 8 * 2**20, 8 * 2**20 + 1]), max_size=60),
    stop=st.integers(0, 60),
)
def test_few_files_and_bytes_are_ahead_of_what_is_read(sizes, stop):
    """In order, whatever is small; and what is not asked for is left where it is."""
    fetched: list[int] = []
    lock = threading.Lock()

    class Far(FileFragment):
        def fetched(self) -> FileFragment:
            with lock:
                fetched.append(self.rows)
            return self

    def fragment(number: int, size: int) -> FileFragment:
        file = discovery.FoundFile(
            path=f"s3://b/{number}.csv",
            format="csv",
            base="b",
            size_bytes=size,
            version="",
            access=discovery.Access(),
        )
        schema = pa.schema([])
        return Far(
            file=file,
            pieces=None,
            names=(),
            file_schema=schema,
            schema=schema,
            constants={},
            stated={},
            known={},
            rows=number,
            size_bytes=size,
            row_bytes=1,
            options=None,
        )

    fragments = [fragment(number, size) for number, size in enumerate(sizes)]
    ahead = fetched_ahead(fragments)
    for number, each in enumerate(ahead):
        assert each is fragments[number]
        with lock:
            begun = max(fetched, default=number)
        between = sizes[number + 1 : begun + 1]
        assert len(between) <= fetching._FILES + 1
        assert sum(size for size in between[:-1] if size <= 8 * 2**20) <= fetching._BYTES
        if number == stop:
            ahead.close()
            break
    count = len(fetched)
    far = [n for n, size in enumerate(sizes) if size <= 8 * 2**20]
    assert sorted(fetched) == far[:count]
    if stop >= len(sizes):
        assert sorted(fetched) == far
