"""What a call leaves behind on a scheduler that lives for months: nothing that grows with calls."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise import DistributedLightGBM, ScalingConfig
from partwise.flows import map_partitions, train_distributed, tune_model
from partwise.trainers import LightGBMTrainer
from tests.thoroughness import quick_and_slow

pytestmark = pytest.mark.usefixtures("single_shard")


def nothing(data: Any, context: Any) -> None:
    """Stand for work."""


def kept(dask_scheduler: Any = None) -> dict[str, list[str]]:
    """Return what schedulers keep by names, of topics and tasks."""
    # Each client has a topic of its own, which a scheduler keeps; it is empty.
    topics = dask_scheduler._broker._topics
    return {
        "topics": sorted(name for name in topics if not name.startswith("Client-")),
        "prefixes": sorted(dask_scheduler.task_prefixes),
        "tasks": sorted(map(str, dask_scheduler.tasks)),
    }


@pytest.mark.parametrize("kind", quick_and_slow({"map"}, ["map", "study", "gang"]))
def test_a_further_call_leaves_nothing_more(kind: str, cluster, tmp_path) -> None:
    keys = np.repeat(np.arange(2), 60)
    x = np.random.default_rng(0).normal(size=len(keys))
    rows = pa.table({"key": keys, "x": x, "y": 2 * x})
    given = {"store": tmp_path, "cluster": cluster}

    def call() -> None:
        if kind == "map":
            map_partitions(rows, "key", nothing, **given)
        elif kind == "study":
            leaves = {"num_leaves": {"kind": "randint", "low": 2, "high": 5}}
            tune_model(rows, LightGBMTrainer(label="y"), leaves, trials=1, **given)
        else:
            trainer = DistributedLightGBM(label="y", rounds=2)
            train_distributed(rows, trainer, scaling=ScalingConfig(ranks=1), **given)

    names = []
    with cluster.client() as client:
        for _ in range(3):
            call()
            names.append(client.run_on_scheduler(kept))
    # The second one finds the shards of the first, and asks whether they are whole.
    assert names[2] == names[1]
