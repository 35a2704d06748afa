"""Partitions that take a hundred times as long as others, or never end."""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.chaos.conftest import Experiment
from tests.engine.shards import ShardOfRun

pytestmark = pytest.mark.slow

PARTITIONS = 200
NAP_S = 0.01
SLOW_S = 100 * NAP_S
TIMEOUT_S = 5 * SLOW_S


def test_stragglers_end_with_the_limit(experiment: Experiment, tmp_path: Path) -> None:
    chance = experiment.chance
    tried, wrong, tails = 0, [], []
    deadline = time.monotonic() + experiment.seconds
    while tried == 0 or time.monotonic() < deadline:
        folder = tmp_path / f"round-{tried}"
        folder.mkdir()
        slow = chance.sample(range(PARTITIONS), 4)
        late, never = set(slow[:3]), set(slow[3:])

        def function(
            data: Any, context: Any, late: set[int] = late, never: set[int] = never
        ) -> dict[str, list[Any]]:
            while context.key in never:
                time.sleep(60)
            time.sleep(SLOW_S if context.key in late else NAP_S)
            return {"seen": [context.key]}

        shard = ShardOfRun(folder)
        keys = np.arange(PARTITIONS)
        table = pa.table({"key": keys, "value": keys.astype(float)})
        began = time.monotonic()
        try:
            _, run = shard.run(function, table, max_retries=1, timeout_s=TIMEOUT_S)
        finally:
            shard.host.close()
        tails.append(time.monotonic() - began)
        rows = run.ledger.select(["key.key", "status", "error_type", "attempts"]).to_pylist()
        for row in rows:
            key = row["key.key"]
            expected = ("FAILED", 1) if key in never else ("DONE", 1)
            if (row["status"], row["attempts"]) != expected:
                wrong.append(f"{key}: {row}")
        winners = sorted(run.predictions()["seen"].to_pylist())
        if len(rows) != PARTITIONS or winners != sorted(set(range(PARTITIONS)) - never):
            wrong.append(f"{len(rows)} partitions, {len(winners)} with rows")
        tried += len(slow)
    experiment.tell(
        "G11",
        tried=tried,
        lost=len(wrong),
        what=f"among {PARTITIONS} each time, limit {TIMEOUT_S:g} s: done once or FAILED; a shard "
        f"took {statistics.median(tails):.0f} s" + "".join(f"; {each}" for each in wrong[:3]),
    )
