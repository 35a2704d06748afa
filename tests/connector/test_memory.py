"""Rows larger than the memory that reads them: measured in a process of its own."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, COLUMNS = 2_000_000, 24
LIMITS_MB = {"spooling": 300, "batches": 50, "tensors": 100, "shuffled": 100}

MEASURE = """
import json, sys, threading
import torch
from partwise.connector.data_connector import DataConnector

def anonymous_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024

peak, done = [0.0], threading.Event()
def sample():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous_mb())

def measured(function):
    before = peak[0] = anonymous_mb()
    result = function()
    found[function.__name__] = max(peak[0], anonymous_mb()) - before
    return result

def spooling():
    return DataConnector.from_sources(sys.argv[1])

def batches():
    return sum(batch.num_rows for batch in data.batches(65_536))

def tensors():
    return sum(len(batch["x0"]) for batch in data.to_torch_dataset(batch_size=8192))

def shuffled():
    dataset = data.to_torch_dataset(batch_size=8192, shuffle=True)
    return sum(int(batch["x0"].sum()) for batch in dataset)

found = {}
threading.Thread(target=sample, daemon=True).start()
data = measured(spooling)
rows = [measured(batches), measured(tensors)]
total = measured(shuffled)
done.set()
print(json.dumps([rows, total, found]))
"""


@pytest.mark.slow  # more rows than memory; tests/shuffle/test_memory.py is quick
def test_rows_larger_than_memory_are_read_and_shuffled(tmp_path):
    numbers = pa.array(np.arange(float(ROWS)))
    table = pa.table({f"x{i}": numbers for i in range(COLUMNS)})
    # 384 MB of rows.
    pq.write_table(table, tmp_path / "x.parquet", compression="none", use_dictionary=False)
    del table
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "x.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows, total, peaks = json.loads(done.stdout)
    assert rows == [ROWS, ROWS]
    assert total == ROWS * (ROWS - 1) // 2
    assert {name for name, size in peaks.items() if size > LIMITS_MB[name]} == set(), peaks
