"""Small files of a bucket: one request to look at each, and two to read it, ahead of its turn."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.sources import fetching
from partwise.sources.derived import in_blocks
from partwise.sources.fetching import fetched_ahead
from partwise.sources.files import discovery, parquet_files, parquet_spans
from partwise.sources.files.file_parts import FileParts
from partwise.sources.files.file_set import Files
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
    read = [each.fetch_file().content for each in source.fragments()]
    assert all(isinstance(content, FileParts) for content in read)


def test_a_column_more_changes_nothing_of_that(bucket, tmp_path):
    source = in_blocks(open_source(bucket.fill(tmp_path, "parquet")))
    bucket.requests()
    assert numbers(source) == [n for n in range(FILES) for _ in range(4)]
    assert bucket.requests().total() == 2 * FILES
    assert all(each.fetch_file().content for each in source.fragments())


@pytest.mark.parametrize("is_held", [True, False], ids=["at once", "batch by batch"])
def test_of_a_large_file_no_byte_is_read_twice(bucket, tmp_path, monkeypatch, is_held):
    """Nor any of columns that nobody asks for, but few between those that somebody does."""
    monkeypatch.setattr(discovery, "_FETCHED_BYTES", 10)
    monkeypatch.setattr(discovery, "REQUESTED_BYTES", 100_000)
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 4096)
    monkeypatch.setattr(parquet_files, "_BUFFER_BYTES", 2**16)
    monkeypatch.setattr(parquet_files, "_LARGEST_BUFFER_BYTES", 2**16)
    monkeypatch.setattr(parquet_spans, "_BRIDGED_BYTES", 1000)
    monkeypatch.setattr(parquet_files, "MOST_HELD_BYTES", 2**26 if is_held else 0)
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


def test_a_file_of_many_keys_is_read_once_for_all_of_them(bucket, tmp_path):
    table = pa.table({"key": np.arange(60) // 2, "x": range(60)})
    pq.write_table(table, tmp_path / "00.parquet", row_group_size=2)
    bucket.direct.put_file(str(tmp_path / "00.parquet"), f"{bucket.folder}/00.parquet")
    source = open_source(Files(f"s3://{bucket.folder}", endpoint_url=bucket.proxy.url))
    fragments = source.fragments(["key"])
    assert len(fragments) == 30
    bucket.requests()
    read = [b for each in fetched_ahead(fragments) for b in source.selection.batches(each)]
    assert pa.Table.from_batches(read).to_pylist() == table.to_pylist()
    assert bucket.requests() == {"GET 00.parquet": 1, "HEAD 00.parquet": 1}


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("change", ["written again", "deleted"])
def test_a_file_that_changed_is_refused_at_its_turn(
    bucket, tmp_path, monkeypatch, change, is_small
):
    if not is_small:
        monkeypatch.setattr(discovery, "_FETCHED_BYTES", 10)
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


MOST_BYTES = 8 * 2**20
"""Of a small file."""
NEAR_BYTES = MOST_BYTES + 1
"""Of one that is not in a bucket."""
HUGE_BYTES = fetching._BYTES + 1
"""Of one of which no other is to be in memory beside."""


@dataclass(frozen=True)
class FakeFile:
    """A file, and whether it was fetched."""

    number: int
    size_bytes: int
    is_fetched: bool = False


@dataclass(frozen=True)
class Fake:
    """A fragment of a file, which notes when it is fetched."""

    number: int
    file: FakeFile
    log: list[int] = field(compare=False)

    @property
    def far_file(self) -> FakeFile | None:
        return self.file if self.file.size_bytes != NEAR_BYTES else None

    def fetch_file(self) -> FakeFile:
        self.log.append(self.file.number)
        return replace(self.file, is_fetched=True)

    def with_file(self, file: FakeFile) -> "Fake":
        return replace(self, file=file)


class AtOnce:
    """In place of threads: what is begun has ended, so that all that is ahead can be counted."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> "AtOnce":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Any) -> Future:
        future: Future = Future()
        future.set_result(call())
        return future

    def shutdown(self, **_: object) -> None:
        pass


@settings(deadline=None, max_examples=60)
@example(sizes=[1], files=[(number, 1) for number in range(31)], stop=200)
@example(sizes=[MOST_BYTES], files=[(number, 1) for number in range(31)], stop=200)
@example(sizes=[HUGE_BYTES], files=[(number, 1) for number in range(31)], stop=200)
@example(sizes=[MOST_BYTES], files=[(number % 7, 3) for number in range(31)], stop=200)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 2**20, MOST_BYTES, NEAR_BYTES, HUGE_BYTES]), min_size=1),
    files=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 25)), max_size=30),
    stop=st.integers(0, 200),
)
def test_few_fragments_and_bytes_are_ahead_of_what_is_read(sizes, files, stop):
    """In order, each with its own file; a row of fragments of one file is fetched once."""
    log: list[int] = []
    numbers = [number for number, count in files for _ in range(count)]
    fragments = [
        Fake(place, FakeFile(number, sizes[number % len(sizes)]), log)
        for place, number in enumerate(numbers)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "ThreadPoolExecutor", AtOnce)
        ahead = fetched_ahead(fragments)
        first = next(ahead, None)
    handed_out = ahead if first is None else itertools.chain([first], ahead)
    for place, each in enumerate(handed_out):
        is_far = fragments[place].far_file is not None
        assert each == replace(fragments[place], file=replace(each.file, is_fetched=is_far))
        assert each.file.number == numbers[place]
        begun = Counter(log)
        done = Counter(number for number, _ in itertools.groupby(numbers[: place + 1]))
        waiting = [number for number in begun if begun[number] > done[number]]
        assert len(waiting) <= fetching._FRAGMENTS + 1
        held = [sizes[number % len(sizes)] for number in waiting]
        if HUGE_BYTES in held:
            assert len(held) == 1
        else:
            assert sum(held) <= fetching._BYTES + MOST_BYTES
        if place == stop:
            ahead.close()
            break
    groups = Counter(number for number, _ in itertools.groupby(numbers))
    far = {number for number in groups if sizes[number % len(sizes)] != NEAR_BYTES}
    assert set(log) <= far
    assert all(count <= groups[number] for number, count in Counter(log).items())
    if stop >= len(numbers):
        assert set(log) == far
