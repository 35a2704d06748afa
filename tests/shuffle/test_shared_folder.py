"""Files that the driver makes for workers."""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import IntegrityError
from partwise.shuffle import shared_folder
from partwise.shuffle.load import PartWork, write_part
from partwise.shuffle.part_file import read_index
from partwise.shuffle.plan import IndexedPart, merge_parts
from partwise.shuffle.shared_folder import SharedFolder, fetch, fetch_shard
from partwise.shuffle.sorted_shards import sort_shard
from partwise.shuffle.write import Division
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns
from tests.shuffle.loaded import rows_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.parse(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def test_a_shared_disk_is_used_as_it_is(store, folder) -> None:
    shared = SharedFolder(folder, store, "run", "token", shared=True)
    staged = shared.write("work.pkl", b"work")
    assert Path(fetch(staged, store, "nowhere")).read_bytes() == b"work"
    assert store.list("") == []
    shared.close()
    assert not folder.exists()


def test_else_files_go_by_way_of_the_store_and_are_read_once(store, folder, tmp_path) -> None:
    shared = SharedFolder(folder, store, "run", "token", shared=False)
    staged = shared.write("work.pkl", b"work")
    assert store.list("") == ["runs/run/scratch/token/work.pkl"]
    path = Path(fetch(staged, store, str(tmp_path)))
    assert path.read_bytes() == b"work"
    shared.close()
    assert store.list("") == []
    assert fetch(staged, store, str(tmp_path)) == str(path)


def test_a_store_that_refuses_to_tidy_up_spoils_no_run(store, folder, tmp_path) -> None:
    shared = SharedFolder(folder, store, "run", "token", shared=False)
    shared.write("work.pkl", b"work")
    scratch = Path(store.url, "runs/run/scratch")
    scratch.rename(tmp_path / "elsewhere")
    scratch.symlink_to(tmp_path / "elsewhere")
    shared.close()
    assert not folder.exists()


def test_what_somebody_put_in_its_place_is_never_used(store, folder, tmp_path) -> None:
    shared = SharedFolder(folder, store, "run", "token", shared=False)
    staged = shared.write("work.pkl", b"work")
    for theirs in (b"", b"Work", b"work "):
        store.write(staged.path, theirs)
        with pytest.raises(IntegrityError, match="not what this run's driver wrote"):
            fetch(staged, store, str(tmp_path))
        assert not (tmp_path / "work.pkl").exists()
    # Without a checksum nothing is taken either.
    with pytest.raises(IntegrityError):
        fetch(replace(staged, sha256=""), store, str(tmp_path))


@pytest.mark.parametrize("requested", [64, 1000, 8 << 20])
def test_a_shard_is_fetched_in_pieces_of_several_parts(tmp_path, monkeypatch, requested):
    monkeypatch.setattr(shared_folder, "REQUESTED_BYTES", requested)
    store = Store.parse(tmp_path / "store")
    for number in range(3):
        rows = pa.table({"key": [row % 7 for row in range(200)], "x": range(number, 200 + number)})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    source = open_source([str(tmp_path / f"{number}.parquet") for number in range(3)])
    columns = key_columns(source.schema, ["key"])
    division = Division(
        selection=source.selection, key_columns=columns, n_shards=3, null_keys="error"
    )
    parts = []
    for number, fragment in enumerate(source.fragments(["key"])):
        work = PartWork(
            number=number,
            division=division,
            positions=(number,),
            first_row=None,
            where="store",
            store=store,
            folder="parts",
            threads=1,
        )
        written = write_part(work, [fragment])
        read = partial(store.read_range, written.path)
        index = read_index(read, store.size(written.path), written.path, written.sha256)
        parts.append(IndexedPart(path=written.path, index=index, read=read))
    sharded = merge_parts(source, parts, [], division, 0, str(tmp_path / "dictionaries"))
    content = (tmp_path / "dictionaries").read_bytes()
    store.create("dictionaries", content)
    found = []
    for shard in sharded.shards:
        there = replace(
            shard,
            dictionaries="dictionaries",
            dictionaries_sha256=hashlib.sha256(content).hexdigest(),
        )
        fetched = fetch_shard(there, "store", store, str(tmp_path), str(tmp_path))
        found += rows_of(sort_shard(fetched, columns, tmp_path / "sorted"))
    assert sorted(row["x"] for _, rows, _ in found for row in rows) == sorted(
        [*range(200), *range(1, 201), *range(2, 202)]
    )
    for key, rows, _ in found:
        # In the order of the source.
        assert [row["x"] for row in rows] == [
            number + row for number in range(3) for row in range(200) if row % 7 == key
        ]
