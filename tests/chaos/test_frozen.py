"""Processes that are killed and stopped at random, and runs that are cancelled beside them."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from partwise.outcomes import RunStatus
from tests import prefect_database
from tests.chaos.conftest import Experiment
from tests.chaos.test_servers import answers, server
from tests.chaos.training import Training, expected_digest, wait_for
from tests.own_cluster import OwnCluster, is_child, own_cluster, send
from tests.ports import free_port
from tests.thoroughness import THOROUGH

pytestmark = pytest.mark.slow

PARTITIONS = 200
WORKERS = 3
STOPPED_S = 6.0
"""A nanny that is stopped for longer is replaced, as an administrator would do it."""
CANCEL_S = 10.0
DIRECT = "without Prefect"


def disturbed_training(
    folder: Path, chance: random.Random, seconds: float
) -> tuple[Counter[str], str]:
    """Train models while workers, nannies and children are killed, stopped and continued at random.

    Args:
        folder: An empty one.
        chance: Draws who is hit, by what, and when.
        seconds: Runs begin until they are over; one at least.

    Returns:
        How often each thing was done, and how many runs had other models than a plain loop makes
        ("different"); and the hash of these. That each partition is there once, and DONE, is
        asserted.
    """
    expected, counts = expected_digest(PARTITIONS), Counter[str]()
    deadline = time.monotonic() + seconds
    while not counts["runs"] or time.monotonic() < deadline:
        number = counts["runs"]
        training = Training(folder / f"run-{number}", f"chaos-frozen-{number}", PARTITIONS)
        told = {"CHAOS_CALLS": str(training.folder / "calls"), "CHAOS_NAP_S": "0.1"}
        with own_cluster(training.folder / "cluster", WORKERS, **told) as cluster:
            process = training.start(
                address=cluster.address, CHAOS_SILENCE_S="2", CHAOS_RETRIES="50"
            )
            assert wait_for(lambda t=training: len(t.calls) > 5), process.communicate()
            counts += _disturb(cluster, chance, lambda p=process: p.poll() is not None)
            output, _ = process.communicate()
            assert process.returncode == 0, output
        counts["runs"] += 1
        counts["different"] += training.digest() != expected
    return counts, expected


def _disturb(
    cluster: OwnCluster, chance: random.Random, is_over: Callable[[], bool]
) -> Counter[str]:
    counts = Counter[str]()
    stopped: dict[psutil.Process, float] = {}
    while not is_over():
        time.sleep(chance.uniform(0.5, 3.0))
        cluster.replace_dead(WORKERS)
        what, act = chance.choice(["worker", "nanny", "child"]), chance.choice(["kill", "stop"])
        known = {"worker": cluster.workers, "nanny": cluster.nannies, "child": cluster.children}
        found = sorted(known[what](), key=lambda process: process.pid)
        # New workers take seconds to start; with none at work the run would never end.
        if found and len(cluster.children()) > 1:
            victim = chance.choice(found)
            if act == "stop":
                stopped[victim] = time.monotonic() + chance.uniform(0.5, 2 * STOPPED_S)
            number = signal.SIGSTOP if act == "stop" else signal.SIGKILL
            counts[f"{what} {act}"] += send(victim, number)
        for process, until in list(stopped.items()):
            # Without a time limit a child may take as long as it likes: it is always continued.
            patience_s = 1.0 if process in known["child"]() else 0.0
            if time.monotonic() > until - patience_s * STOPPED_S:
                counts["continued"] += send(process, signal.SIGCONT)
                stopped.pop(process)
    return counts


def test_processes_killed_and_stopped_at_random_lose_no_model(
    experiment: Experiment, tmp_path: Path, prefect_server: str
) -> None:
    counts, _ = disturbed_training(tmp_path, experiment.chance, experiment.seconds)
    kills = sum(n for name, n in counts.items() if name.endswith("kill"))
    stops = sum(n for name, n in counts.items() if name.endswith("stop"))
    experiment.tell(
        "G1",
        tried=kills + stops,
        lost=counts["different"],
        what=f"{kills} kills, {stops} stops, {counts['continued']} continued, {counts['runs']} "
        f"runs of {PARTITIONS} models, each partition once, all as in a plain loop",
    )


HANGING_STORE = """
import os, time
_fsync = os.fsync
def fsync(descriptor):
    while os.path.exists(os.environ["CHAOS_HANGS"]):
        time.sleep(0.05)
    return _fsync(descriptor)
os.fsync = fsync
"""


@dataclass
class Stage:
    """A run at work, and what may be stopped beside it."""

    training: Training
    process: subprocess.Popen[str]
    cluster: OwnCluster | None = None
    prefect: subprocess.Popen[bytes] | None = None
    stopped: list[int] = field(default_factory=list)

    def stop(self, what: str) -> None:
        """Have something hang."""
        match what:
            case "store":
                (self.training.folder / "hangs").touch()
            case "scheduler" if self.cluster is not None:
                self.stopped.append(self.cluster.scheduler.pid)
            case "server" if self.prefect is not None:
                self.stopped.append(self.prefect.pid)
            case "worker" | "fork-server":
                # A worker has the words of the process that it was forked from.
                known = [p for p in self.training.processes() if _forks_workers(p)]
                workers = [p.pid for p in known if p.parent() in known]
                servers = [p.pid for p in known if p.pid not in workers]
                self.stopped.append(workers[0] if what == "worker" else servers[0])
            case "child":
                self.stopped.append(next(p.pid for p in self.training.processes() if is_child(p)))
        for pid in self.stopped:
            os.kill(pid, signal.SIGSTOP)


def _forks_workers(process: psutil.Process) -> bool:
    return "multiprocessing.forkserver" in " ".join(process.cmdline())


@pytest.fixture
def stage(request, tmp_path: Path, prefect_server: str, monkeypatch) -> Iterator[Stage]:
    what, _, way = request.param.partition(" ")
    training = Training(tmp_path / "run", f"chaos-cancel-{what}", PARTITIONS)
    prefect = cluster = None
    address, more = "", {}
    told = {"CHAOS_CALLS": str(training.folder / "calls"), "CHAOS_NAP_S": "0.1"}
    with ExitStack() as stack:
        match what:
            case "server":
                port = free_port()
                url = f"http://127.0.0.1:{port}/api"
                words = ("prefect", "server", "start", "--no-ui", "--port", str(port))
                home = str(tmp_path / "prefect")
                prefect_database.copy_to(tmp_path / "prefect")
                prefect = stack.enter_context(server(*words, PREFECT_HOME=home))
                assert wait_for(lambda: answers(f"{url}/health"), 120)
                more = {"PREFECT_API_URL": url, "PREFECT_HOME": home}
            case "scheduler":
                cluster = stack.enter_context(own_cluster(tmp_path / "cluster", 2, **told))
                address = cluster.address
            case "store":
                (training.folder / "sitecustomize.py").write_text(HANGING_STORE)
                more = {"CHAOS_HANGS": str(training.folder / "hangs")}
                more |= {"PYTHONPATH": f"{training.folder}:{os.environ.get('PYTHONPATH', '')}"}
        if way == DIRECT:
            more["PREFECT_API_URL"] = ""
        process = training.start(address=address, nap_s=0.1, **more)
        assert wait_for(lambda: len(training.calls) >= 20), process.communicate()
        yield Stage(training, process, cluster, prefect)
        for each in training.processes():
            each.kill()
        process.communicate()


STAGES = (
    *("worker", "fork-server", "child", "scheduler", "server", "store"),
    *(f"{what} {DIRECT}" for what in ("worker", "child", "scheduler", "store")),
)
CANCELS = [
    pytest.param(stage, number, id=f"{number.name}-{stage}")
    for place, stage in enumerate(STAGES)
    for turn, number in enumerate((signal.SIGINT, signal.SIGTERM))
    if THOROUGH or (place + turn) % 2 == 0
]
"""Each stage by one signal, and both signals by turns; or both everywhere."""


@pytest.mark.alone(in_pairs=True)  # it measures time, most of which it waits
@pytest.mark.parametrize(("stage", "number"), CANCELS, indirect=["stage"])
def test_a_run_is_cancelled_in_time_beside_what_hangs(
    experiment: Experiment, stage: Stage, number: signal.Signals, request
) -> None:
    what, _, way = request.node.callspec.params["stage"].partition(" ")
    stage.stop(what)
    time.sleep(0.5)
    stage.process.send_signal(number)
    began = time.monotonic()
    output, _ = stage.process.communicate(timeout=120)
    seconds = time.monotonic() - began
    assert "partwise.errors.RunCancelledError: The run 'chaos-cancel" in output, output
    assert stage.process.returncode == 1
    assert wait_for(lambda: not stage.training.processes(), 5), stage.training.processes()
    (stage.training.folder / "hangs").unlink(missing_ok=True)
    assert stage.training.run.status in (RunStatus.CANCELLED, RunStatus.IN_PROGRESS)
    experiment.tell(
        "G12",
        tried=1,
        lost=int(seconds > CANCEL_S),
        what=f"{number.name} beside a {what} that hangs {way}: ended after {seconds:.1f} s",
    )
