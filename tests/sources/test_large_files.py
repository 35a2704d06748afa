"""Large Parquet files: of a bucket what is read of them is fetched at once, and a footer once."""

import gzip
import io
import itertools
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import SourceError
from partwise.sources.files import (
    csv_files,
    discovery,
    file_parts,
    formats,
    parquet_files,
    parquet_footers,
    parquet_spans,
)
from partwise.sources.files.discovery import FoundFile, find_files
from partwise.sources.files.file_parts import BlocksReader, FileParts, PartsReader
from partwise.sources.files.formats import read_head
from partwise.sources.files.parquet_files import parquet_batches, with_row_groups
from partwise.sources.files.parquet_footers import FOOTERS, Footers
from partwise.sources.files.remote_files import Access
from partwise.sources.opening import open_source
from tests.sources.test_named_files import OpenKeys

KINDS = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(max_size=30),
    "list": st.lists(st.integers(0, 9), max_size=3),
    "both": st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.booleans()}),
}
TYPES = {
    "whole": pa.int64(),
    "text": pa.string(),
    "list": pa.list_(pa.int64()),
    "both": pa.struct({"a": pa.int64(), "b": pa.bool_()}),
}


@pytest.fixture
def disk_for_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files of a bucket read from this machine's disk, by their own file system."""
    local = fsspec.filesystem("file")
    monkeypatch.setattr(FoundFile, "filesystem", lambda _self: local)
    monkeypatch.setattr(FoundFile, "bare_path", lambda self: self.path)


def far(path: Path) -> FoundFile:
    """A file as it is found in a bucket."""
    (found,) = find_files([str(path)])
    return discovery.replace(found, access=Access())


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_is_fetched_is_all_that_is_read(tmp_path_factory, data):
    """Else Arrow would ask for bytes that are not there, which is an error."""
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    n_rows = data.draw(st.integers(0, 40))
    table = pa.table(
        {
            name: pa.array(
                data.draw(st.lists(st.none() | KINDS[name], min_size=n_rows, max_size=n_rows)),
                TYPES[name],
            )
            for name in names
        }
    )
    path = tmp_path_factory.mktemp("far") / "x.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=data.draw(st.integers(1, 20)),
        compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])),
        use_dictionary=data.draw(st.booleans()),
        version=data.draw(st.sampled_from(["1.0", "2.6"])),
        data_page_size=data.draw(st.sampled_from([10, 2**20])),
        write_page_index=data.draw(st.booleans()),
    )
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    groups = pq.read_metadata(path).num_row_groups
    start = data.draw(st.integers(0, groups))
    pieces = range(start, data.draw(st.integers(start, groups)))
    with pytest.MonkeyPatch.context() as patch:
        disk_for_bucket.__wrapped__(patch)
        patch.setattr(discovery, "REQUESTED_BYTES", data.draw(st.integers(1, 500)))
        patch.setattr(parquet_spans, "_BRIDGED_BYTES", data.draw(st.integers(0, 200)))
        file = with_row_groups(far(path), chosen, pieces)
        assert isinstance(file.content, FileParts)
        schema = pa.schema([table.schema.field(name) for name in chosen])
        batches = list(parquet_batches(file, chosen, schema, pieces, 8))
    read = pa.Table.from_batches(batches, schema)
    parquet = pq.ParquetFile(path)
    expected = parquet.read_row_groups(list(pieces), columns=chosen).select(chosen)
    assert read.to_pylist() == expected.to_pylist()


@given(
    size=st.integers(0, 60),
    spans=st.lists(st.tuples(st.integers(0, 59), st.integers(1, 20)), max_size=5),
    reads=st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 30)), max_size=8),
)
def test_a_reader_of_parts_gives_their_bytes_or_an_error(size, spans, reads):
    content = random.Random(size).randbytes(size)
    parts = {start: content[start : start + count] for start, count in spans if start < size}
    there = {at for start, part in parts.items() for at in range(start, start + len(part))}
    # Of parts that overlap, the later one may not reach as far as the one before it.
    starts = sorted(parts)
    if any(a + len(parts[a]) > b for a, b in itertools.pairwise(starts)):
        return
    reader = PartsReader(FileParts(size_bytes=size, parts=parts))
    for at, count in reads:
        reader.seek(at)
        end = size if count < 0 else min(size, at + count)
        if there.issuperset(range(at, end)):
            assert bytes(reader.read(count)) == content[at:end]
            assert reader.tell() == max(at, end)
        else:
            with pytest.raises(OSError, match="were not there"):
                reader.read(count)


@given(
    size=st.integers(0, 200),
    start=st.integers(0, 40),
    reads=st.lists(st.tuples(st.integers(0, 210), st.integers(-1, 60)), max_size=8),
)
def test_a_reader_of_blocks_gives_what_a_file_gives(size, start, reads):
    content = random.Random(size).randbytes(size)
    fetched: list[tuple[int, int]] = []

    def fetch(begin: int, end: int) -> bytes:
        fetched.append((begin, end))
        return content[begin:end]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_parts, "REQUESTED_BYTES", 10)
        reader = BlocksReader(size, fetch, content[:start])
        plain = io.BytesIO(content)
        for at, count in reads:
            assert reader.seek(at) == plain.seek(at)
            assert bytes(reader.read(count)) == plain.read(count)
            assert reader.tell() == plain.tell()
            assert len(reader._blocks) <= file_parts._KEPT
        reader.close()
    assert all(begin % 10 == 0 and end == min(begin + 10, size) for begin, end in fetched)


def test_blocks_are_fetched_ahead_where_one_follows_the_other(monkeypatch):
    monkeypatch.setattr(file_parts, "REQUESTED_BYTES", 10)
    fetched: list[int] = []

    def asked(reads: list[int], start: bytes = b"") -> list[int]:
        fetched.clear()
        with closing(
            BlocksReader(200, lambda begin, _: fetched.append(begin) or b"x" * 10, start)
        ) as reader:
            for at in reads:
                reader.seek(at)
                reader.read(5)
            if reader._pool:
                reader._pool.shutdown()
        return sorted(fetched)

    assert asked([0, 5]) == [0]
    assert asked([0, 190, 50, 100]) == [0, 50, 100, 190]
    assert asked([0, 10, 15]) == [0, 10, 20, 30, 40, 50]
    assert asked([0, 10, 20, 30]) == [0, 10, 20, 30, 40, 50, 60, 70]
    # Who looks at a start that was fetched reads a little more at most.
    assert asked([0, 15, 20, 30], b"x" * 20) == [20, 30]
    # Back and forth, as in a stripe of ORC: each once.
    assert asked([190, 0, 10, 0, 10, 0, 20]) == [0, 10, 20, 30, 40, 50, 60, 190]


@pytest.mark.parametrize("format_", ["csv", "csv.gz", "jsonl"])
@pytest.mark.usefixtures("disk_for_bucket")
def test_to_look_at_a_large_text_fetches_little_of_it(tmp_path, monkeypatch, format_):
    """Arrow reads on in the background, up to 32 blocks: 450 MB of a file of 119, in 9 s."""
    monkeypatch.setattr(discovery, "_FETCHED_BYTES", 10)
    for module in (discovery, file_parts):
        monkeypatch.setattr(module, "REQUESTED_BYTES", 20_000)
    for name in ("_BLOCK_BYTES", "_START_BYTES", "_QUOTED_BYTES"):
        monkeypatch.setattr(csv_files, name, 20_000)
    monkeypatch.setattr(formats, "_TEXT_BLOCK_BYTES", 20_000)
    line = '{"key": %d, "x": 1}\n' if format_ == "jsonl" else "%d,1\n"
    text = ("" if format_ == "jsonl" else "key,x\n") + "".join(
        line % random.Random(0).randrange(10**9) for _ in range(200_000)
    )
    path = tmp_path / f"x.{format_}"
    opened = gzip.open if format_.endswith("gz") else open
    with opened(path, "wt") as file:
        file.write(text)
    done, begun = threading.Event(), []
    fetch = FoundFile._fetch

    def slow(self, start: int, end: int) -> bytes:
        begun.append(start)
        # What is read on in the background is slow: a look that waits for all of it takes a minute.
        if start >= 60_000:
            done.wait(0.5)
        return fetch(self, start, end)

    monkeypatch.setattr(FoundFile, "_fetch", slow)
    head = read_head(far(path))
    done.set()
    assert head.schema.names == ["key", "x"]
    assert len(begun) <= 30


@pytest.mark.usefixtures("disk_for_bucket")
def test_row_groups_that_are_too_large_are_not_held(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": range(1000)}), tmp_path / "x.parquet", row_group_size=500)
    file = far(tmp_path / "x.parquet")
    assert with_row_groups(file, ["x"], range(1)).content is not None
    monkeypatch.setattr(parquet_files, "MOST_HELD_BYTES", 100)
    assert with_row_groups(file, ["x"], range(1)) is file


@pytest.mark.usefixtures("disk_for_bucket")
def test_where_encrypted_columns_lie_nobody_asks(tmp_path):
    """Their metadata ends the process that looks at it."""
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"own": ["x"]}, plaintext_footer=True
    )
    properties = pe.CryptoFactory(OpenKeys).file_encryption_properties(
        pe.KmsConnectionConfig(), config
    )
    table = pa.table({"k": range(9), "x": ["a"] * 9})
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    file = far(path)
    assert with_row_groups(file, ["x"], range(1)) is file
    held = with_row_groups(file, ["k"], range(1))
    (batch,) = parquet_batches(held, ["k"], table.schema, range(1), 8)
    assert batch["k"].to_pylist() == list(range(9))


def test_a_footer_is_read_once_for_row_groups_of_one_key(tmp_path, monkeypatch):
    """Of 10,000 row groups each fragment took half a second to begin."""
    table = pa.table({"key": [n // 3 for n in range(90)], "x": range(90)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    opened: Counter[bool] = Counter()

    def counted(*arguments, metadata=None, **options):
        opened[metadata is None] += 1
        return pq.ParquetFile(*arguments, metadata=metadata, **options)

    source = open_source(str(tmp_path / "x.parquet"))
    fragments = source.fragments(["key"])
    monkeypatch.setattr(parquet_files, "pq", SimpleNamespace(**vars(pq) | {"ParquetFile": counted}))
    read = [batch for each in fragments for batch in source.selection.batches(each)]
    assert pa.Table.from_batches(read).to_pylist() == table.to_pylist()
    assert opened == {True: 1, False: 29}


def test_a_file_that_is_written_again_has_its_own_footer(tmp_path):
    """The footer that is known is of the version before."""
    for rows in (range(90), range(7, 50), range(3)):
        pq.write_table(pa.table({"x": rows}), tmp_path / "x.parquet", row_group_size=10)
        source = open_source(str(tmp_path / "x.parquet"))
        fragments = source.fragments()
        read = [b for each in fragments for b in source.selection.batches(each)]
        assert pa.Table.from_batches(read)["x"].to_pylist() == list(rows)
    pq.write_table(pa.table({"x": range(90)}), tmp_path / "x.parquet", row_group_size=10)
    with pytest.raises(SourceError, match="changed while it was in use"):
        list(source.selection.batches(fragments[0]))


@dataclass(frozen=True)
class Metadata:
    """A footer of some size."""

    serialized_size: int


def numbered(number: int) -> FoundFile:
    return FoundFile(
        path=f"/{number}", format="parquet", base="/", size_bytes=9, version=str(number)
    )


def test_those_who_wait_for_a_footer_read_none():
    footers = Footers()
    log: list[int] = []
    began = threading.Barrier(8)

    def ask(place: int) -> Metadata:
        def read() -> Metadata:
            log.append(place % 2)
            time.sleep(0.01)
            return Metadata(place % 2)

        began.wait(5)
        return footers.of(numbered(place % 2), read)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert found == [Metadata(place % 2) for place in range(8)]
    assert sorted(log) == [0, 1]


@given(asked=st.lists(st.integers(0, 5), max_size=40), size=st.integers(0, 12 * 2**20))
def test_few_bytes_of_footers_are_kept(asked, size):
    """And the last one always is, however large it is."""
    footers, kept = Footers(), []
    for number in asked:
        read = []
        footers.of(numbered(number), lambda read=read: read.append(1) or Metadata(size))
        assert bool(read) is (number not in kept)
        kept = [other for other in kept if other != number] + [number]
        while len(kept) > 1 and len(kept) * size > parquet_footers._KEPT_BYTES:
            kept = kept[1:]
    assert {number for number in range(6) if footers.get(numbered(number))} == set(kept)


def test_one_that_cannot_be_read_is_asked_for_again(tmp_path):
    """A connection that is lost for a moment is not kept."""
    pq.write_table(pa.table({"x": range(9)}), tmp_path / "x.parquet")
    (file,) = find_files([str(tmp_path / "x.parquet")])

    def fail() -> pq.FileMetaData:
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        FOOTERS.of(file, fail)
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert FOOTERS.of(file, lambda: metadata) is metadata
