"""Sharding holds a few batches, not the table: measured in a process of its own."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MEASURE = """
import json, sys, threading
from partwise.tables.keys.partition_keys import key_columns
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import sort_shard
from partwise.sources.opening import open_source

def anonymous_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

peak, done = [0.0], threading.Event()
def sample():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous_mb())

path, directory, n_shards = sys.argv[1:]
before = anonymous_mb()
threading.Thread(target=sample, daemon=True).start()
source = open_source(path)
columns = key_columns(source.schema, ["key"])
sharded = shard_rows(source, columns, int(n_shards), directory)
written, peak[0] = peak[0], 0.0
shard = sort_shard(max(sharded.shards, key=lambda shard: shard.rows), columns, directory)
done.set()
print(json.dumps([sharded.rows, written - before, peak[0] - before]))
"""


def measure(path, directory, n_shards: int) -> tuple[int, float, float]:
    command = [sys.executable, "-c", MEASURE, str(path), str(directory), str(n_shards)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, stored, sorted_ = json.loads(done.stdout)
    return rows, stored, sorted_


def test_memory_does_not_grow_with_the_source(tmp_path):
    rows, random = 4_000_000, np.random.default_rng(0)
    values = pa.array(random.random(rows))
    table = pa.table(
        {"key": random.integers(0, 1000, rows), **{f"x{i}": values for i in range(11)}}
    )
    # 384 MB in one row group: the worst case for a reader.
    pq.write_table(
        table, tmp_path / "x.parquet", row_group_size=rows, compression="none", use_dictionary=False
    )
    del table, values
    found, stored, sorted_ = measure(tmp_path / "x.parquet", tmp_path / "sharded", 1)
    assert found == rows
    assert stored < 200
    assert sorted_ < 300
