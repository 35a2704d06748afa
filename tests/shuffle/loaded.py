"""A source that is divided on a cluster, as a run does it, and what a run reads of it."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from partwise.runs.ledger import in_order_of_keys
from partwise.shuffle.load import load_shards
from partwise.shuffle.shard_cache import open_cache
from partwise.shuffle.shared_folder import SharedFolder, fetch_shard
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.shuffle.write import Division
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns, key_values

ROWS = 3000
N_SHARDS = 7


def table_of(rows: int, start: int = 0, keys: int = 50) -> pa.Table:
    random = np.random.default_rng(start)
    names = [f"store-{key}" for key in random.integers(0, keys, rows)]
    kinds = [f"kind-{kind}" for kind in random.integers(start // 1000, start // 1000 + 3, rows)]
    return pa.table(
        {
            "store": names,
            "row": range(start, start + rows),
            "kind": pa.array(kinds).dictionary_encode(),
        }
    )


class Loaded:
    """A source that was divided on a cluster, and what a run would read of it."""

    def __init__(self, data, by, client, tmp_path, store=None, **policy) -> None:
        number = len(list(tmp_path.glob("stage-*")))
        self._directory = tmp_path / f"stage-{number}"
        self._directory.mkdir()
        source = open_source(data)
        self.columns = key_columns(source.schema, by)
        here = Store.parse(tmp_path / "store") if store is None else store
        self.shared_folder = SharedFolder(
            self._directory, here, "run", f"{number}", shared=store is None
        )
        division = Division(
            selection=source.selection,
            key_columns=self.columns,
            n_shards=N_SHARDS,
            null_keys=policy.get("null_keys", "error"),
        )
        self.said: list[str] = []
        self._cache = open_cache(source.description(), division, self.shared_folder)
        self.cache = self._cache.__enter__()
        try:
            self.shard = load_shards(
                source, division, client, self.cache, self.shared_folder, self.said.append
            )
        except BaseException:
            self.close()
            raise

    def partitions(self) -> list:
        found = []
        for shard in self.shard.shards:
            folder = self._directory / f"shard-{shard.number}"
            folder.mkdir(exist_ok=True)
            where = self.shared_folder.where
            local = fetch_shard(shard, where, self.shared_folder.store, str(folder), str(folder))
            done = sort_shard(local, self.columns, folder / "sorted")
            keys = self.shard.keys_of(shard.number)
            assert done.keys.equals(keys.take(in_order_of_keys(keys)))
            found += rows_of(done)
        return found

    def close(self) -> None:
        self._cache.__exit__(None, None, None)
        self.shared_folder.close()


def rows_of(done) -> list:
    reader = ShardReader(done.path)
    bounds = zip(done.offsets[:-1], done.offsets[1:], strict=True)
    return [
        (key, reader.partition(start, stop).to_pylist(), reader.fingerprint(start, stop))
        for key, (start, stop) in zip(key_values(done.keys), bounds, strict=True)
    ]


def part_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))
