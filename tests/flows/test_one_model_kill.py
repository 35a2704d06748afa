"""Inference with one model, killed again and again: each row is there exactly once at the end."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import RunNotFoundError
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.lazily import Lazily
from tests.one_model import make_model_run

xgboost = Lazily("xgboost")

ROWS = 40_000
KILLS = 5

SCRIPT = """
import sys, time


def predict(data, model, context):
    import xgboost  # only here: six drivers are started

    time.sleep(0.02)
    matrix = xgboost.DMatrix(data.to_numpy(["x"]), feature_names=["x"])
    return model.predict(matrix)


if __name__ == "__main__":
    from partwise.blocks import RemoteCluster
    from partwise.engine.options import ExecutionOptions
    from partwise.flows import run_inference

    rows, store, address = sys.argv[1:]
    run_inference(
        rows,
        training_run_id="trained",
        predict=predict,
        run_id="used",
        store=store,
        keep_columns=["row"],
        on_existing_artifacts="resume",
        execution=ExecutionOptions(first_segment_s=0.05, n_shards=8),
        cluster=RemoteCluster(address=address, shares_filesystem=True),
    )
"""


@pytest.mark.slow
def test_every_row_exactly_once_whatever_is_killed(tmp_path: Path, cluster) -> None:
    chance = random.Random(4)
    x = np.random.default_rng(4).normal(size=ROWS).astype(np.float32)
    table = pa.table({"x": x, "row": np.arange(ROWS)})
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, start in enumerate(range(0, ROWS, 1000)):
        pq.write_table(table.slice(start, 1000), folder / f"{number:03d}.parquet")
    matrix = xgboost.DMatrix(x[:, None], 2 * x, feature_names=["x"])
    booster = xgboost.train({}, matrix, 5)
    store = Store.parse(tmp_path / "store")
    make_model_run(store, "trained", booster, tmp_path)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(folder), store.url, cluster.address]
    killed = 0
    while True:
        process = subprocess.Popen(words, cwd=tmp_path, env=dict(os.environ))
        if killed == KILLS:
            assert process.wait(120) == 0
            break
        began = _generations(store)
        while _generations(store) == began and process.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.wait()
        killed += 1
    run = Run.open("used", store)
    assert run.status is RunStatus.SUCCESS
    found = run.predictions()
    assert sorted(found["row"].to_pylist()) == list(range(ROWS))
    np.testing.assert_array_equal(
        found.sort_by("row")["prediction"].to_numpy(), booster.predict(matrix)
    )
    # The folder itself, too, as other tools read it.
    files = pq.read_table(Path(store.url, "runs", "used", "predictions"))
    assert sorted(files["row"].to_pylist()) == list(range(ROWS))


def _generations(store: Store) -> int:
    try:
        return Run.open("used", store).generation
    except RunNotFoundError:
        return 0
