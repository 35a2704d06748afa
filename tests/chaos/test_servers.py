"""The servers beside a run: a Dask scheduler or a Prefect server that is killed in its midst."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from partwise.outcomes import RunStatus
from tests import prefect_database
from tests.chaos.conftest import Experiment
from tests.chaos.training import Training, wait_for
from tests.ports import free_port

pytestmark = pytest.mark.slow

PARTITIONS = 100


@contextmanager
def server(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def begun(training: Training) -> bool:
    return len(training.calls) >= PARTITIONS // 4


def test_a_killed_scheduler_ends_the_run_and_a_resume_completes_it(
    experiment: Experiment, tmp_path: Path, prefect_server: str
) -> None:
    training = Training(tmp_path / "run", "chaos-scheduler", PARTITIONS)
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    mute = ("--no-dashboard",)
    with server("distributed.cli.dask_scheduler", "--host", address, *mute) as scheduler:
        assert wait_for(lambda: listens(port))
        worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", *mute)
        # A worker's children are the script's: what they write down is told by the environment.
        told = {"CHAOS_CALLS": str(training.folder / "calls"), "CHAOS_NAP_S": "0.05"}
        with server(*worker, "--no-nanny", **told), server(*worker, "--no-nanny", **told):
            process = training.start(address=address)
            assert wait_for(lambda: begun(training)), process.communicate()
            scheduler.kill()
            killed = time.monotonic()
            output, _ = process.communicate(timeout=180)
            seconds = time.monotonic() - killed
    lost = int(process.returncode == 0) + int("ClusterError" not in output) + int(seconds > 60)
    kept, before = training.committed(), training.calls
    training.finish(nap_s=0)
    lost += len(kept & set(training.calls - before))
    training.digest()
    experiment.tell(
        "G3",
        tried=1,
        lost=lost,
        what=f"scheduler: ClusterError after {seconds:.0f} s, the resume kept {len(kept)}",
    )


def test_a_run_outlives_its_prefect_server(experiment: Experiment, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = ("prefect", "server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(port))
    training = Training(tmp_path / "run", "chaos-prefect", PARTITIONS)
    home = str(tmp_path / "prefect")
    prefect_database.copy_to(tmp_path / "prefect")
    with server(*command, PREFECT_HOME=home) as prefect:
        assert wait_for(lambda: answers(f"{url}/health"), 120)
        mine = {"PREFECT_API_URL": url, "PREFECT_HOME": home, "PREFECT_CLIENT_MAX_RETRIES": "0"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in mine.items():
                patch.setenv(name, value)
            process = training.start(nap_s=0.05)
        assert wait_for(lambda: begun(training), 120), process.communicate()
        prefect.kill()
        killed = time.monotonic()
        process.communicate(timeout=300)
        seconds = time.monotonic() - killed
    lost = int(training.run.status is not RunStatus.SUCCESS)
    training.digest()
    experiment.tell(
        "G3",
        tried=1,
        lost=lost,
        what=f"Prefect server: the run went on and was whole after {seconds:.0f} s",
    )
