"""A scheduler that is killed and started again at its address, with other workers, during a run."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client, Scheduler
from pydantic import SecretStr

from partwise.blocks import StoreBlock
from partwise.engine.options import ExecutionOptions
from partwise.errors import RunFailedError
from partwise.flows import map_partitions
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.own_cluster import START_S, OwnCluster, own_cluster, wait_for

PARTITIONS = 60
ROWS = pa.table({"key": list(range(PARTITIONS)), "y": [float(i) for i in range(PARTITIONS)]})
DOWN_S = 3.0

pytestmark = pytest.mark.slow  # a scheduler and four workers are started


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OwnCluster]:
    with own_cluster(tmp_path / "cluster", workers=2, nanny=False) as cluster:
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=START_S)
        yield cluster


def run_over_a_restart(cluster: OwnCluster, folder: Path, **options) -> Run:
    """Run, and kill the scheduler when a few partitions are done; return the run."""
    calls, back = folder / "calls", folder / "back"
    calls.mkdir()

    def function(data, context):
        (calls / str(context.key)).write_text("")
        time.sleep(0.2)
        if options and back.exists():
            raise ValueError("since the scheduler is back")
        return {"twice": 2 * data.to_numpy("y")}

    def restart() -> None:
        wait_for(lambda: len(list(calls.iterdir())) > 8, "no partition begins")
        cluster.kill_scheduler()
        for worker in cluster.commands:
            worker.wait()
        time.sleep(DOWN_S)
        back.write_text("")
        cluster.restart_scheduler()
        cluster.add(2, nanny=False)

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        return map_partitions(
            ROWS,
            "key",
            function,
            run_id="run",
            # Which workers know by the driver alone: a scheduler without them could do no shard.
            store=StoreBlock(
                url=str(folder / "store"), signing_keys=SecretStr("1:" + "0123456789abcdef" * 4)
            ),
            cluster=cluster.block,
            execution=ExecutionOptions(n_shards=6, first_segment_s=0.2, **options),
        )
    finally:
        restarting.join()


def check_tidy(cluster: OwnCluster) -> None:
    """Nothing of the run is left on the new workers, nor in the new scheduler."""
    wait_for(lambda: not list(cluster.folder.rglob("partwise-*")), "folders are left", 20)
    with Client(cluster.address, set_as_default=False) as client:

        def topics(dask_scheduler: Scheduler) -> list[str]:
            return [name for name in dask_scheduler._broker._topics if name.startswith("g0")]

        assert client.run_on_scheduler(topics) == []


def test_a_run_goes_on_over_a_restart(cluster, tmp_path, caplog) -> None:
    run = run_over_a_restart(cluster, tmp_path)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": PARTITIONS})
    assert set(run.partitions["attempts"].to_pylist()) == {1}
    assert "the Dask scheduler was started again" in caplog.text
    check_tidy(cluster)


def test_the_failure_budget_holds_after_a_restart(cluster, tmp_path) -> None:
    with pytest.raises(RunFailedError, match="failure budget") as caught:
        run_over_a_restart(cluster, tmp_path, max_failed=3)
    counts = caught.value.run.counts
    assert counts["FAILED"] > 3
    # The others were told to stop: news of failures came, and the word to stop went.
    assert counts["CANCELLED"] > 0
    check_tidy(cluster)
