"""Sharding as Dask tasks: the same shards as in one process, once for all runs on the same rows."""

import gzip
import itertools
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from partwise.blocks import LocalCluster
from partwise.cluster_calls import known_workers
from partwise.errors import ClusterError, NullKeyError, SourceError
from partwise.shuffle import load as loading
from partwise.shuffle import size_warnings
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.shard_cache import collect_shards
from partwise.shuffle.size_warnings import warnings_of
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.files import parts as parts_module
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns
from tests.lazily import Lazily
from tests.own_cluster import cut_off_others, wait_for
from tests.shuffle.loaded import N_SHARDS, ROWS, Loaded, part_files, rows_of, table_of
from tests.tcp_proxy import tcp_proxy

dd = Lazily("dask.dataframe")

log = logging.getLogger(__name__)


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def many_parts(monkeypatch) -> None:
    monkeypatch.setattr(loading, "SMALLEST_PART_BYTES", 1)


@pytest.fixture
def files(tmp_path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for start in range(0, ROWS, 500):
        path = folder / f"{start:05d}.parquet"
        pq.write_table(table_of(500, start), path, row_group_size=200)
    return folder


def in_one_process(data, by, tmp_path, **policy) -> list:
    source = open_source(data)
    columns = key_columns(source.schema, by)
    sharded = shard_rows(source, columns, N_SHARDS, tmp_path / "alone", **policy)
    shards = [sort_shard(shard, columns, tmp_path / "alone-sorted") for shard in sharded.shards]
    return [partition for done in shards for partition in rows_of(done)]


def test_workers_make_the_shards_that_one_process_makes(
    dask_client, tmp_path, scratch, files, many_parts
):
    loaded = Loaded(files, ["store"], dask_client, tmp_path)
    assert len(part_files(scratch)) == 6
    found = loaded.partitions()
    assert found == in_one_process(files, ["store"], tmp_path)
    assert sorted(row["row"] for _, rows, _ in found for row in rows) == list(range(ROWS))
    assert loaded.shard.rows == ROWS
    assert loaded.shard.partitions == len(found) == 50
    loaded.close()


def test_a_partition_has_the_categories_of_its_own_rows_whatever_the_parts(
    dask_client, tmp_path, scratch, files, many_parts
):
    loaded = Loaded(files, ["store"], dask_client, tmp_path)
    one = shard_rows(open_source(files), loaded.columns, N_SHARDS, tmp_path / "alone")
    for shard, alone in zip(loaded.shard.shards, one.shards, strict=True):
        for i, part in enumerate((shard, alone)):
            done = sort_shard(part, loaded.columns, tmp_path / f"s{i}")
            reader = ShardReader(done.path)
            for start, stop in itertools.pairwise(done.offsets.tolist()):
                kinds = reader.partition(start, stop)["kind"]
                assert kinds.chunk(0).dictionary.to_pylist() == sorted(set(kinds.to_pylist()))
    loaded.close()


def test_a_file_of_one_row_group_is_divided_by_a_worker_with_the_threads_of_all(
    dask_client, tmp_path, scratch, monkeypatch
):
    def here(*_):
        raise AssertionError("the driver reads rows that a worker can read")

    def watch() -> None:
        pa.calls, pa.own = [], pa.set_cpu_count
        pa.set_cpu_count = lambda count: pa.own(count) or pa.calls.append(count)

    def seen() -> tuple[list[int], int]:
        pa.set_cpu_count = pa.own
        return pa.calls, pa.cpu_count()

    path = tmp_path / "x.parquet"
    pq.write_table(table_of(ROWS), path)
    dask_client.run(lambda: pa.set_cpu_count(1))
    dask_client.run(watch)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "write_fragments", here)
        loaded = Loaded(path, ["store"], dask_client, tmp_path)
    assert sorted(dask_client.run(seen).values()) == [([], 1), ([2, 1], 1)]
    (_,) = part_files(scratch)
    assert loaded.partitions() == in_one_process(path, ["store"], tmp_path)
    loaded.close()


@pytest.mark.slow
def test_shards_go_through_a_bucket_where_workers_do_not_see_the_disk(
    dask_client, tmp_path, scratch, files, many_parts, s3_store_url
):
    import fsspec

    for path in files.iterdir():
        with fsspec.open(f"{s3_store_url}/rows/{path.name}", "wb") as file:
            file.write(path.read_bytes())
    store = Store.parse(f"{s3_store_url}/store")
    url = os.environ["AWS_ENDPOINT_URL_S3"]
    dask_client.run(lambda: os.environ.update(AWS_ENDPOINT_URL_S3=url))
    loaded = Loaded(f"{s3_store_url}/rows", ["store"], dask_client, tmp_path, store)
    assert not part_files(scratch)
    assert loaded.partitions() == in_one_process(files, ["store"], tmp_path)
    loaded.close()
    kept = store.list("shards/")
    assert len([name for name in kept if name.endswith(".part")]) == 6
    assert store.list("runs/") == []
    again = Loaded(f"{s3_store_url}/rows", ["store"], dask_client, tmp_path, store)
    assert again.said == ["The rows are those of an earlier run: its shards are used again."]
    assert again.partitions() == loaded.partitions()
    again.close()
    assert store.list("shards/") == kept
    assert collect_shards(store, timedelta(days=1), dry_run=False) == []
    found = collect_shards(store, -timedelta(days=1), dry_run=True)
    assert [path for path, _ in found] == store.list("shards/") == kept
    assert all(size > 0 for _, size in found)
    assert collect_shards(store, -timedelta(days=1), dry_run=False) == found
    assert store.list("shards/") == []


def write_hive(folder: Path) -> Path:
    table = table_of(ROWS, keys=20).drop_columns(["kind"])
    for index, name in enumerate(sorted(set(table["store"].to_pylist()))):
        own = table.filter(pa.compute.equal(table["store"], name)).drop_columns(["store"])
        for part, start in enumerate(range(0, own.num_rows, 60)):
            path = folder / f"store={name}" / f"{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(own.slice(start, 60), path)
        assert index < 20
    return folder


def test_rows_of_directories_by_key_are_not_moved(dask_client, tmp_path, scratch):
    folder = write_hive(tmp_path / "hive")
    loaded = Loaded(folder, ["store"], dask_client, tmp_path)
    assert part_files(tmp_path) == []
    assert loaded.shard.rows == ROWS
    found = {key: [row["row"] for row in rows] for key, rows, _ in loaded.partitions()}
    table = table_of(ROWS, keys=20)
    assert sorted(found) == sorted(set(table["store"].to_pylist()))
    for key, rows in found.items():
        own = table.filter(pa.compute.equal(table["store"], key))
        assert rows == own["row"].to_pylist()
    loaded.close()


def test_a_filter_or_a_second_key_has_the_rows_of_directories_read(dask_client, tmp_path, scratch):
    folder = write_hive(tmp_path / "hive")
    loaded = Loaded(folder, ["store", "row"], dask_client, tmp_path)
    assert part_files(tmp_path)
    assert loaded.shard.partitions == ROWS
    loaded.close()


def test_row_groups_of_one_key_are_not_moved_and_others_are(dask_client, tmp_path, scratch):
    """A file sorted by key: groups within a key stay where they are, those at its ends do not."""
    keys = np.repeat([5, 1, 3], [400, 250, 350])
    table = pa.table({"key": keys, "row": range(1000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    loaded = Loaded(tmp_path / "x.parquet", ["key"], dask_client, tmp_path)
    stored = sum(int(len(rows.spans) > 0) for s in loaded.shard.shards for rows in s.written)
    keyed = [rows.fragment.rows for shard in loaded.shard.shards for rows in shard.keyed]
    assert sum(keyed) == 900
    assert stored == 2
    found = {key: [row["row"] for row in rows] for key, rows, _ in loaded.partitions()}
    assert found == {5: list(range(400)), 1: list(range(400, 650)), 3: list(range(650, 1000))}
    loaded.close()


@pytest.mark.parametrize("policy", ["drop", "keep"])
def test_null_directories_are_dropped_or_kept(dask_client, tmp_path, scratch, policy):
    for name in ("a", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "hive" / f"k={name}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "hive" / f"k={name}" / "x.parquet")
    with pytest.raises(NullKeyError, match=r"'k' is null in file .*DEFAULT.*null_keys='drop'"):
        Loaded(tmp_path / "hive", ["k"], dask_client, tmp_path)
    loaded = Loaded(tmp_path / "hive", ["k"], dask_client, tmp_path, null_keys=policy)
    keys = [key for key, *_ in loaded.partitions()]
    assert set(keys) == ({"a"} if policy == "drop" else {"a", None})
    assert (loaded.shard.rows, loaded.shard.dropped_rows) == (
        (2, 2) if policy == "drop" else (4, 0)
    )
    loaded.close()


def test_statistics_that_lie_are_found_out(dask_client, tmp_path, scratch, monkeypatch):
    pq.write_table(pa.table({"key": [1, 2]}), tmp_path / "x.parquet")
    monkeypatch.setattr(parts_module, "_single_values", lambda *_: {"key": pa.scalar(1)})
    loaded = Loaded(tmp_path / "x.parquet", ["key"], dask_client, tmp_path)
    with pytest.raises(SourceError, match=r"'key' has other values than 1 in file .*x\.parquet"):
        sort_shard(loaded.shard.shards[0], loaded.columns, tmp_path)
    loaded.close()


def test_a_second_run_uses_the_shards_of_the_first(
    dask_client, tmp_path, scratch, files, many_parts, monkeypatch
):
    first = Loaded(files, ["store"], dask_client, tmp_path)
    found = first.partitions()
    first.close()
    kept = part_files(scratch)

    def refuse(*_):
        raise AssertionError("rows are read")

    with monkeypatch.context() as patch:
        patch.setattr(loading, "write_part", refuse)
        second = Loaded(files, ["store"], dask_client, tmp_path)
        assert second.partitions() == found
        assert "used again" in second.said[0]
        second.close()
    os.utime(next(files.iterdir()))
    for by in (["store"], ["store", "row"]):
        other = Loaded(files, by, dask_client, tmp_path)
        assert other.said == []
        other.close()
    assert set(kept) < set(part_files(scratch))
    assert len(part_files(scratch)) == 18


def test_rows_of_a_file_of_before_are_not_used_for_the_one_that_replaced_it(
    dask_client, tmp_path, scratch
):
    """As `cp -p` and `rsync -a` leave it: of the same size and mtime, in the same place."""
    path = tmp_path / "rows.parquet"
    found = []
    for value in (1, 2):
        table = pa.table({"store": np.arange(40) % 4, "x": np.full(40, value)})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        os.utime(path, ns=(10**18, 10**18))
        loaded = Loaded(path, ["store"], dask_client, tmp_path)
        assert loaded.said == []
        found.append({row["x"] for _, rows, _ in loaded.partitions() for row in rows})
        loaded.close()
    assert found == [{1}, {2}]


def test_what_is_kept_has_a_limit_and_what_is_in_use_stays(
    dask_client, tmp_path, scratch, files, monkeypatch
):
    size = open_source(files).description().size_bytes
    monkeypatch.setenv("PARTWISE_SCRATCH_BYTES", str(int(2.9 * size)))
    entries = []
    open_ones = []
    for by in (["store"], ["row"], ["kind"]):
        loaded = Loaded(files, by, dask_client, tmp_path)
        entries.append(scratch / loaded.cache.entry if loaded.cache.entry else None)
        if by == ["store"]:
            open_ones.append(loaded)
        else:
            loaded.close()
        time.sleep(0.01)
    assert entries[0].exists(), "the oldest is in use"
    assert not entries[1].exists()
    open_ones[0].close()
    monkeypatch.setenv("PARTWISE_SCRATCH_BYTES", "0")
    loaded = Loaded(files, ["kind", "store"], dask_client, tmp_path)
    assert loaded.cache.entry is None
    assert loaded.partitions()
    loaded.close()
    monkeypatch.setenv("PARTWISE_SCRATCH_BYTES", "1 GB")
    with pytest.raises(ValueError, match=r"PARTWISE_SCRATCH_BYTES is '1 GB'"):
        Loaded(files, ["kind", "store"], dask_client, tmp_path)


def test_rows_that_a_killed_run_left_are_no_shards(dask_client, tmp_path, scratch, files):
    first = Loaded(files, ["store"], dask_client, tmp_path)
    entry = scratch / first.cache.entry
    (entry / "complete.json").unlink()
    again = Loaded(files, ["store"], dask_client, tmp_path)
    assert again.said == []
    assert again.partitions() == first.partitions()
    for loaded in (again, first):
        loaded.close()
    assert len(part_files(scratch)) == 1


def test_errors_of_workers_are_those_of_one_process(
    dask_client, tmp_path, scratch, files, many_parts
):
    bad = files / "01000.parquet"
    table = pq.read_table(bad)
    nulls = pa.array([None if i == 7 else v for i, v in enumerate(table["store"].to_pylist())])
    pq.write_table(table.set_column(0, "store", nulls), bad)
    with pytest.raises(NullKeyError, match=r"'store' is null in row 1007 of the source"):
        Loaded(files, ["store"], dask_client, tmp_path)
    content = bytearray(bad.read_bytes())
    content[200:1200] = os.urandom(1000)
    source = open_source(files)
    assert source.description().rows == ROWS
    bad.write_bytes(content)
    with pytest.raises(SourceError, match=r"01000\.parquet"):
        Loaded(files, ["row"], dask_client, tmp_path)
    assert part_files(scratch) == []


def test_a_giant_is_named_beforehand(dask_client, tmp_path, scratch, s3_store_url):
    keys = pa.array([1] * 900 + list(range(2, 102)))
    table = pa.table({"key": keys, "x": range(1000)})
    for store in (None, Store.parse(f"{s3_store_url}/store")):
        loaded = Loaded(table, ["key"], dask_client, tmp_path, store)
        said = list(warnings_of(loaded.shard, slots=2, memory_bytes=2**40))
        assert len(said) == 1
        assert said[0].startswith("The partition 1 has 900 of the 1,000 rows (90%): ")
        (said,) = warnings_of(loaded.shard, slots=0, memory_bytes=100)
        assert "read it with data.batches(size)" in said
        loaded.close()
    even = Loaded(pa.table({"key": range(100)}), ["key"], dask_client, tmp_path)
    assert list(warnings_of(even.shard, slots=2, memory_bytes=2**40)) == []
    even.close()


def test_a_column_of_ids_is_pointed_out(dask_client, tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(size_warnings, "MANY_PARTITIONS", 50)
    for column, expected in (("row", 1), ("store", 0)):
        loaded = Loaded(table_of(300), [column], dask_client, tmp_path)
        said = list(warnings_of(loaded.shard, slots=2, memory_bytes=2**40))
        assert len(said) == expected
        assert all("300 partitions of 300 rows, 1.0 rows each" in sentence for sentence in said)
        loaded.close()


@pytest.mark.parametrize("where", ["rows", "tail", "end", "all", "gone"])
def test_shards_that_were_damaged_are_made_again(dask_client, tmp_path, scratch, files, where):
    first = Loaded(files, ["store"], dask_client, tmp_path)
    found = first.partitions()
    first.close()
    (path,) = part_files(scratch)
    content = bytearray(path.read_bytes())
    if where == "all":
        content = bytearray()
    elif where == "end":
        del content[-10:]
    else:
        at = 5000 if where == "rows" else len(content) - 200
        content[at : at + 8] = os.urandom(8)
    path.write_bytes(content)
    if where == "gone":
        path.unlink()
    again = Loaded(files, ["store"], dask_client, tmp_path)
    assert again.said == [
        "The shards of an earlier run on these rows are damaged: the rows are read again."
    ]
    assert again.partitions() == found
    again.close()
    third = Loaded(files, ["store"], dask_client, tmp_path)
    assert "used again" in third.said[0]
    assert third.partitions() == found
    third.close()


def test_text_that_turns_out_large_is_not_kept(dask_client, tmp_path, scratch, monkeypatch):
    path = tmp_path / "x.csv.gz"
    lines = (b"%d,%s\n" % (i, b"x" * 500) for i in range(2000))
    path.write_bytes(gzip.compress(b"key,text\n" + b"".join(lines)))
    monkeypatch.setenv("PARTWISE_SCRATCH_BYTES", "200000")
    loaded = Loaded(path, ["key"], dask_client, tmp_path)
    assert len(loaded.partitions()) == 2000
    loaded.close()
    assert [path for path in scratch.rglob("*") if path.is_file()] == []


def test_a_frame_of_another_cluster_is_refused_in_one_sentence(dask_client, tmp_path, scratch):
    frame = dd.from_pandas(table_of(100).to_pandas(), npartitions=2)
    with LocalCluster(workers=1).client() as other:
        persisted = other.persist(frame)
        with pytest.raises(ClusterError, match=r"persisted can be read on its own cluster only"):
            Loaded(persisted, ["store"], dask_client, tmp_path)


def waits(folder: str):
    Path(folder, "begun").touch()
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.02)
    return table_of(100).to_pandas()


def test_rows_are_divided_though_the_scheduler_is_lost_and_found_again(
    dask_client, tmp_path, scratch
):
    frame = dd.from_map(waits, [str(tmp_path)], meta=table_of(1).to_pandas())
    with (
        Client(dask_client.scheduler.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        dividing = executor.submit(Loaded, frame, ["store"], client, tmp_path)
        wait_for((tmp_path / "begun").exists, "nothing is read")
        cut_off_others(dask_client)
        (tmp_path / "go").touch()
        loaded = dividing.result()
    rows = [row["row"] for _, rows, _ in loaded.partitions() for row in rows]
    assert sorted(rows) == list(range(100))
    loaded.close()


def test_parts_of_an_earlier_run_are_used_though_the_scheduler_is_lost_and_found_again(
    dask_client, tmp_path, scratch, files, monkeypatch
):
    folder, is_part_whole = str(tmp_path), loading.is_part_whole

    def looks_late(path: str) -> bool:
        waits(folder)
        return is_part_whole(path)

    Loaded(files, ["store"], dask_client, tmp_path).close()
    parts = part_files(scratch)
    monkeypatch.setattr(loading, "is_part_whole", looks_late)
    with (
        Client(dask_client.scheduler.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        dividing = executor.submit(Loaded, files, ["store"], client, tmp_path)
        wait_for((tmp_path / "begun").exists, "nothing is looked at")
        cut_off_others(dask_client)
        (tmp_path / "go").touch()
        dividing.result().close()
    assert part_files(scratch) == parts


def test_a_client_that_gives_up_its_scheduler_ends_the_division_in_a_sentence(
    dask_client, tmp_path, scratch
):
    frame = dd.from_map(waits, [str(tmp_path)], meta=table_of(1).to_pandas())
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        Client(proxy.address, set_as_default=False, timeout=0.5) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        dividing = executor.submit(Loaded, frame, ["store"], client, tmp_path)
        wait_for((tmp_path / "begun").exists, "nothing is read")
        proxy.close()
        with pytest.raises(ClusterError, match=r"scheduler was lost \(closed\) while the rows"):
            dividing.result()
    (tmp_path / "go").touch()


def dies(number: int):
    os._exit(1)


def test_what_kills_a_worker_while_it_is_read_is_named(dask_client, tmp_path, scratch):
    def allow(failures: int) -> int:
        def set_allowed(dask_scheduler) -> int:
            before = dask_scheduler.allowed_failures
            dask_scheduler.allowed_failures = failures
            return before

        return dask_client.run_on_scheduler(set_allowed)

    frame = dd.from_map(dies, range(1), meta=table_of(1).to_pandas())
    workers = len(known_workers(dask_client))
    # It says the same after the ten more deaths that a cluster of ours allows.
    before = allow(0)
    try:
        with pytest.raises(ClusterError, match="that read a partition of the Dask frame: Killed"):
            Loaded(frame, ["store"], dask_client, tmp_path)
    finally:
        allow(before)
        dask_client.wait_for_workers(workers)


def test_the_rows_before_a_part_are_counted_once(monkeypatch):
    """Of each part all those before it were asked: of a frame of 10,000 partitions for 4 s."""
    asked = []

    class Part(SimpleNamespace):
        @property
        def rows(self) -> int | None:
            asked.append(self.count)
            return self.count

    monkeypatch.setattr(loading, "known_workers", lambda _: {})
    division: Any = SimpleNamespace(selection=SimpleNamespace(passes_all=True))
    cache: Any = SimpleNamespace(where="disk", store=None, folder="parts")
    counts = [2, 0, 3, None, 5]
    groups: Any = [[(place, Part(count=count))] for place, count in enumerate(counts)]

    def first_rows(keyed: list[Any]) -> list[int | None]:
        writing = loading._Writing(division, Any, cache, (), keyed, print, list)
        return [work.first_row for work in writing._works(groups)]

    assert first_rows([]) == [0, 2, 2, 5, None]
    assert asked == counts
    assert first_rows([object()]) == [None] * 5, "of what is read elsewhere nobody knows"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"parts": []}'])
def test_a_damaged_list_of_shards_is_made_again(dask_client, tmp_path, scratch, files, content):
    first = Loaded(files, ["store"], dask_client, tmp_path)
    found = first.partitions()
    first.close()
    (complete,) = scratch.glob("shards/*/complete.json")
    complete.write_bytes(content)
    again = Loaded(files, ["store"], dask_client, tmp_path)
    assert again.partitions() == found
    again.close()
    third = Loaded(files, ["store"], dask_client, tmp_path)
    assert ["used again" in said for said in third.said] == [True]
    assert third.partitions() == found
    third.close()


def test_a_client_that_connects_again_as_it_is_looked_at_goes_on(
    dask_client, tmp_path, scratch, monkeypatch
):
    """Its tasks are told of the connection some milliseconds after it is."""
    seen, look = [], loading.Ends.next

    def unlucky(ends, limit_s):
        while not seen:
            if client.status == "connecting":
                seen.append(client.status)
                return []
            if ended := look(ends, 0.001):
                # The tasks were told first, this time.
                seen.append("ended")
                return ended
        return look(ends, limit_s)

    monkeypatch.setattr(loading.Ends, "next", unlucky)
    frame = dd.from_map(waits, [str(tmp_path)], meta=table_of(1).to_pandas())
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        Client(proxy.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        dividing = executor.submit(Loaded, frame, ["store"], client, tmp_path)
        wait_for((tmp_path / "begun").exists, "nothing is read")
        proxy.close()
        wait_for(lambda: seen or dividing.done(), "nobody looks")
        proxy.listen()
        (tmp_path / "go").touch()
        dividing.result().close()
