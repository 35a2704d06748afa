"""Studies that are cancelled, and whose workers die: on a cluster of their own."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client

from partwise import PickleSerde, Run, RunCancelledError, ScalingConfig, tune_model, uniform
from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.trials import read_trials
from tests.flows.study_functions import gang_parabola, journalled
from tests.own_cluster import cut_off_others
from tests.plain_cluster import plain_cluster

pytestmark = pytest.mark.slow
ROWS = pa.table({"x": [1.0, 2.0, 3.0, 4.0]})
WAYS = {
    "process": (journalled, ScalingConfig()),
    "gang": (gang_parabola, ScalingConfig(ranks=2, cpus=1)),
}


@pytest.fixture(scope="module")
def client(prefect_server: str) -> Iterator[Client]:
    with plain_cluster(2) as client:
        yield client


@pytest.fixture(params=WAYS)
def tune(request, client, tmp_path) -> Callable[..., Run]:
    function, scaling = WAYS[request.param]

    def call(name: str, **given) -> Run:
        return tune_model(
            ROWS, function, {"x": uniform(-1, 1), "folder": str(tmp_path)}, metric="loss",
            run_id=f"{name}-{request.param}", store=tmp_path, serde=PickleSerde(),
            cluster=RemoteCluster(address=client.scheduler.address, shares_filesystem=True),
            scaling=scaling, execution=ExecutionOptions(max_retries=2), **given,
        )  # fmt: skip

    return call


def once(folder: Path, ended: int, act: Callable[[], object]) -> threading.Thread:
    """Do something when so many trials have come to their end."""

    def wait() -> None:
        path, deadline = folder / "ended", time.monotonic() + 120
        while time.monotonic() < deadline:
            if path.exists() and len(path.read_text().split()) >= ended:
                act()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_cancelled_study_keeps_its_trials_and_a_resume_goes_on(tune, tmp_path) -> None:
    thread = once(tmp_path, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(RunCancelledError) as raised:
        tune("cancelled", trials=60)
    thread.join()
    run = Run.open(raised.value.run.run_id, tmp_path)
    assert run.status is RunStatus.CANCELLED
    done = {trial.settings["x"] for trial in read_trials(run.newest.ledger)}
    assert 2 <= len(done) < 60
    begun = (tmp_path / "begun").read_text().split()
    more = tune("cancelled", trials=len(done) + 2, on_existing_artifacts="resume")
    assert (more.status, more.kept, more.executed) == (RunStatus.SUCCESS, len(done), 2)
    assert done < {trial.settings["x"] for trial in read_trials(more.ledger)}
    assert len((tmp_path / "begun").read_text().split()) == len(begun) + 2


def test_a_study_survives_the_death_of_a_worker(tune, client, tmp_path) -> None:
    pids = client.run(os.getpid)
    thread = once(tmp_path, 2, lambda: os.kill(next(iter(pids.values())), signal.SIGKILL))
    run = tune("survives", trials=8)
    thread.join()
    client.wait_for_workers(2, timeout=60)
    assert run.status is RunStatus.SUCCESS
    trials = read_trials(run.ledger)
    assert [trial.status for trial in trials] == [PartitionStatus.DONE] * 8
    models = [run.model(number, serde=PickleSerde())["x"] for number in range(8)]
    assert models == [trial.settings["x"] for trial in trials]


def test_a_study_goes_on_when_its_driver_finds_the_scheduler_again(tune, client, tmp_path) -> None:
    threads = [once(tmp_path, ended, lambda: cut_off_others(client)) for ended in (1, 3, 5)]
    run = tune("cut", trials=8)
    for thread in threads:
        thread.join()
    trials = read_trials(run.ledger)
    assert [trial.status for trial in trials] == [PartitionStatus.DONE] * 8
