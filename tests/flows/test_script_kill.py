"""kill -9 of a driver, worker, rank or script: the run goes on from its checkpoint."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from partwise.blocks import RemoteCluster
from partwise.flows import run_script
from partwise.flows.cli.main import main
from partwise.outcomes import RunStatus
from partwise.processes.family import find_marked
from partwise.runs.checkpoints import CHECKPOINTS, complete_checkpoints
from partwise.runs.documents import run_path
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.own_cluster import wait_for
from tests.plain_cluster import plain_cluster

pytestmark = pytest.mark.slow  # an epoch takes a second, and a killed worker is started again

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scripts"
PARAMS = {"epochs": 6, "seconds": 1.0}
DRIVER = """
import sys
from partwise.blocks import RemoteCluster
from partwise.flows import run_script
address, store, source = sys.argv[1:]
run_script(
    "train_resumable.py",
    source_directory=source,
    arguments={"epochs": 6, "seconds": 1.0},
    ranks_per_node=2,
    run_id="driver",
    store=store,
    cluster=RemoteCluster(address=address, shares_filesystem=True),
)
"""


@pytest.fixture
def cluster(prefect_server):
    """Workers of this test alone, as one of them is killed."""
    with plain_cluster(2) as client:
        yield client


def await_checkpoint(store: Path, run_id: str) -> None:
    folder = run_path(run_id, CHECKPOINTS)
    wait_for(lambda: complete_checkpoints(Store.parse(store), folder), "no checkpoint", 300)


def script_pids(run_id: str) -> list[int]:
    """The processes of a script itself, by the variable that only it has."""
    return find_marked(f"PARTWISE_RUN_ID={run_id}".encode())


def await_no_process(run_id: str) -> None:
    wait_for(lambda: not script_pids(run_id), "a process goes on", 20)


@pytest.mark.parametrize("victim", ["script", "rank", "worker"])
def test_a_killed_process_is_one_attempt(cluster, tmp_path, victim):
    def kill() -> None:
        await_checkpoint(tmp_path, victim)
        if victim == "worker":
            pid = next(iter(cluster.run(os.getpid).values()))
        else:
            pid = script_pids(victim)[-1]
            if victim == "rank":
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    run = run_script(
        "train_resumable.py",
        source_directory=str(EXAMPLES),
        arguments=PARAMS,
        nodes=2,
        run_id=victim,
        store=tmp_path,
        max_retries=1,
        cluster=RemoteCluster(address=cluster.scheduler.address, shares_filesystem=True),
    )
    killer.join()
    assert run.status is RunStatus.SUCCESS
    assert run.partitions["attempts"].to_pylist() == [2, 2]
    assert run.partitions["epoch"].to_pylist() == [6, 6]
    # Both nodes went on from one checkpoint, and that is not the beginning.
    begun = run.partitions["begun"].to_pylist()
    assert begun[0] == begun[1] > 0
    assert re.search(r"going on behind epoch [1-5]", run.logs(1))
    await_no_process(victim)


def test_a_run_whose_driver_was_killed_goes_on_from_its_checkpoint(cluster, tmp_path, start_python):
    store, source = tmp_path / "store", tmp_path / "source"
    source.mkdir()
    text = (EXAMPLES / "train_resumable.py").read_text()
    (source / "train_resumable.py").write_text(text)
    address = cluster.scheduler.address
    driver = start_python(DRIVER, address, store, source)
    await_checkpoint(store, "driver")
    driver.kill()
    driver.wait()
    await_no_process("driver")
    # It goes on with the files that it was begun with, which are not there any more.
    (source / "train_resumable.py").write_text("raise SystemExit(9)")
    there = ["--store", str(store), "--address", address, "--shares-filesystem"]
    assert main(["runs", "resume", "driver", *there]) == 0
    run = Run.open("driver", store)
    assert run.partitions["epoch"].to_pylist() == [6, 6]
    assert run.partitions["begun"].to_pylist()[0] > 0
    # From itself a run can be repeated: from the beginning, and under another name.
    assert main(["runs", "repeat", "driver", "--run-id", "again", *there]) == 0
    again = Run.open("again", store)
    assert (again.status, again.partitions["begun"].to_pylist()) == (RunStatus.SUCCESS, [0, 0])
    assert again.artifact(0, "outputs/model.json") == run.artifact(0, "outputs/model.json")
