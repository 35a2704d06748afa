"""However a gang is stopped: it ends soon, says who is to blame, and leaves nothing behind."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, get_worker

from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.gangs.driver import GangDriver, run_gang
from partwise.gangs.errors import GangFailedError
from partwise.gangs.node import sweep_gang
from partwise.gangs.spec import GangSpec
from partwise.outcomes import CANCELLED, PartitionStatus
from partwise.processes.family import descendants_of, find_marked, is_running
from partwise.ranks.context import RankContext
from tests.gangs.gang_maker import Events, make_gang
from tests.own_cluster import wait_for

GRACE_S = 1.0
LATE_S = 60.0
"""Two seconds are meant; a machine that is busy with other tests takes longer."""


class OddError(Exception):
    """Cannot be made from its arguments alone."""

    def __init__(self, first: int, *, second: str) -> None:
        super().__init__(f"odd {first} {second}")
        self.second = second


def _raise() -> None:
    raise LookupError("no such thing", 7)


def _raise_oddly() -> None:
    raise OddError(1, second="x")


def _interrupt() -> None:
    raise KeyboardInterrupt


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _ignore() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


# What rank 1 does, when both are there. Of each: whether it is to blame, and what is told of it.
DEEDS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (_raise, "LookupError: ('no such thing', 7)"),
    "raises oddly": (_raise_oddly, "odd 1 x"),
    "exits": (lambda: sys.exit(3), "SystemExit: 3"),
    "exits without a word": (lambda: os._exit(0), "before its function had returned"),
    "is interrupted": (_interrupt, "KeyboardInterrupt"),
    "aborts": (os.abort, "SIGABRT"),
    "ends itself": (lambda: os.kill(os.getpid(), signal.SIGTERM), "SIGTERM"),
    "is killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
    "crashes": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
    "has its guard killed": (lambda: os.kill(os.getppid(), signal.SIGKILL), "SIGKILL"),
}
WAITS: dict[str, Callable[[], Any]] = {
    "waits": lambda: None,
    "is frozen": _freeze,
    "ignores SIGTERM": _ignore,
}


def misbehave(context: RankContext, deed: Callable[[], Any], folder: str) -> None:
    """Start processes that leave the session, tell of all, and let rank 1 do its deed."""
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    # An orphan: its parent ends at once.
    script = "sleep 600 > /dev/null & echo $!"
    orphan = subprocess.run(
        ["/bin/sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, check=True
    )
    # Named as torch does, with its number: what a killed rank has left there is nobody's.
    shared = Path(f"/dev/shm/torch_{os.getpid()}_left")
    shared.write_bytes(b"rows")
    facts = {
        "shared": str(shared),
        "pids": [os.getpid(), os.getppid(), left.pid, int(orphan.stdout)],
        "ports": [port for _, port in context.addresses],
    }
    Path(folder, f"{context.rank}.new").write_text(json.dumps(facts))
    context.barrier()
    Path(folder, f"{context.rank}.new").rename(Path(folder, f"{context.rank}.json"))
    if context.rank == 1:
        deed()
    context.barrier()
    time.sleep(600)


@dataclass
class Stage:
    """A cluster of its own, on which gangs come to bad ends."""

    client: Client
    folder: Path

    def spec(self, deed: Callable[[], Any], **fields: Any) -> GangSpec:
        folder = str(self.folder)

        def train(context: RankContext) -> None:
            misbehave(context, deed, folder)

        # Whatever ends a gang by itself, it is not that a rank was silent for too long.
        fields = {"silence_s": 6000.0, "grace_s": GRACE_S, **fields}
        return make_gang(self.client, self.folder, train, **fields)

    def facts(self) -> list[dict[str, Any]]:
        """Wait until both ranks have told of themselves."""
        paths = [self.folder / f"{rank}.json" for rank in (0, 1)]
        wait_for(lambda: all(path.exists() for path in paths), "not all have told", 60)
        return [json.loads(path.read_text()) for path in paths]

    def check_nothing_is_left(
        self, spec: GangSpec, told: list[dict[str, Any]], *, has_guard_killed: bool = False
    ) -> None:
        """Within a moment all processes, ports, folders and slots are free."""
        deadline = time.monotonic() + LATE_S
        pids = [pid for one in told for pid in one["pids"]]
        while any(map(is_running, pids)) or find_marked(f"gang-{spec.token}".encode()):
            assert time.monotonic() < deadline, "processes are left"
            time.sleep(0.02)
        for port in told[0]["ports"]:
            with socket.socket() as again:
                again.bind(("", port))
        left = {one["shared"] for one in told if Path(one["shared"]).exists()}
        for path in left:
            Path(path).unlink()
        # Nobody knows whose it was once the guard of rank 1 has been killed.
        assert left <= ({told[1]["shared"]} if has_guard_killed else set())
        workers = list(self.client.scheduler_info(n_workers=-1)["workers"])
        slots = [self.client.submit(_folders, workers=[one], pure=False) for one in workers]
        assert self.client.gather(slots) == [[]] * len(workers)


def _folders() -> list[str]:
    return [path.name for path in Path(get_worker().local_directory).glob("gang-*")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    from tests.plain_cluster import plain_cluster

    with plain_cluster(2) as client:
        yield client


@pytest.fixture
def stage(cluster: Client, tmp_path: Path) -> Stage:
    return Stage(cluster, tmp_path)


@pytest.fixture
def doomed_stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage whose workers are killed: Dask does not always start others in their place."""
    from partwise.blocks import LocalCluster

    with LocalCluster(workers=2).client() as client:
        yield Stage(client, tmp_path)


@pytest.mark.parametrize("name", DEEDS)
def test_a_rank_that_fails_ends_the_gang_and_is_blamed(stage, name):
    deed, message = DEEDS[name]
    spec = stage.spec(deed)
    events = Events()
    with pytest.raises(GangFailedError) as caught:
        run_gang(stage.client, spec, events)
    told = stage.facts()
    stage.check_nothing_is_left(spec, told, has_guard_killed=name == "has its guard killed")

    failed = caught.value
    assert failed.rank == 1
    assert message in str(failed)
    assert "'gang'" in str(failed)
    assert [end.rank for end in failed.ends] == [0, 1]
    assert failed.ends[1].status == PartitionStatus.FAILED
    assert {a.filename for end in failed.ends for a in end.artifacts} <= {"log.txt"}
    if name == "raises":
        assert type(failed.__cause__) is LookupError
        assert failed.__cause__.args == ("no such thing", 7)


@pytest.mark.parametrize("whose", ["rank", "guard"])
def test_what_multiprocessing_makes_goes_though_all_that_would_remove_it_was_killed(stage, whose):
    made = stage.folder / "made"

    def train(context: RankContext) -> None:
        # By its name, as multiprocessing finds it.
        from tests.multiprocessing_files import make_files

        if context.rank == 1:
            make_files(made)
            assert all(map(os.path.exists, made.read_text().split()))
            # All at once, so that nobody can look, or clear up.
            family = [*descendants_of(os.getpid()), os.getpid()]
            for pid in (*([os.getppid()] if whose == "guard" else []), *family):
                os.kill(pid, signal.SIGKILL)
        context.barrier()

    with pytest.raises(GangFailedError, match="SIGKILL"):
        run_gang(stage.client, make_gang(stage.client, stage.folder, train))
    paths = made.read_text().split()
    assert len(paths) == 4
    assert [path for path in paths if os.path.exists(path)] == []


def test_a_rank_that_is_frozen_is_to_blame_when_the_others_have_waited_long_enough(stage):
    spec = stage.spec(_freeze, silence_s=4.0)
    reason = r"was stopped \(SIGSTOP\) for \d+ s, and killed"
    with pytest.raises(GangFailedError, match=reason) as caught:
        run_gang(stage.client, spec)
    stage.check_nothing_is_left(spec, stage.facts())
    assert caught.value.rank == 1


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("how", ["stop", pytest.param("time limit", marks=pytest.mark.slow)])
def test_a_gang_that_is_stopped_ends_with_its_reason(stage, name, how):
    spec = stage.spec(WAITS[name], timeout_s=None if how == "stop" else 6.0)
    told: list[Any] = []

    def watch() -> None:
        told.extend(stage.facts())
        if how == "stop":
            driver.stop(CANCELLED)

    watcher = threading.Thread(target=watch)
    with ClusterWatch(stage.client, spec.run_id, None) as cluster:
        driver = GangDriver(stage.client, spec, cluster)
        watcher.start()
        with pytest.raises(GangFailedError) as caught:
            driver.run()
    watcher.join()
    stage.check_nothing_is_left(spec, told)

    failed = caught.value
    assert failed.rank is None
    assert failed.__cause__ is None
    assert {end.status for end in failed.ends} == {PartitionStatus.CANCELLED}
    reason = "cancelled" if how == "stop" else "its time limit of 6 s was over"
    assert [end.reason for end in failed.ends] == [reason] * 2
    assert reason in str(failed)
    assert failed.stopped == (CANCELLED if how == "stop" else None)
    assert [end.exit_code for end in failed.ends][1] == (-9 if name == "ignores SIGTERM" else -15)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_lost_ends_the_gang(doomed_stage, number):
    stage = doomed_stage
    spec = stage.spec(lambda: None, silence_s=12.0 if number == signal.SIGSTOP else 6000.0)
    pids = stage.client.run(os.getpid)
    victim = pids[spec.nodes[1].worker]
    told: list[Any] = []

    def strike() -> None:
        told.extend(stage.facts())
        os.kill(victim, number)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        with pytest.raises(GangFailedError) as caught:
            run_gang(stage.client, spec)
        striker.join()
        pids = [pid for one in told for pid in one["pids"]]
        wait_for(lambda: not any(map(is_running, pids)), "processes are left", LATE_S)
    finally:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    failed = caught.value
    assert failed.rank == 1
    assert spec.nodes[1].worker in str(failed)
    assert failed.ends[1].status == PartitionStatus.INTERNAL_ERROR
    worker = spec.nodes[1].worker
    known = partial(stage.client.scheduler_info, n_workers=-1)
    wait_for(lambda: worker not in known()["workers"], "the worker stays", LATE_S)
    stage.check_nothing_is_left(spec, told)


def test_a_sweep_leaves_it_to_guards_to_end_their_ranks(stage):
    """Whoever does not know what they hold leaves it in shared memory."""
    spec = stage.spec(lambda: None)
    told: list[Any] = []

    def sweep() -> None:
        told.extend(stage.facts())
        sweep_gang(spec.token, 1, [])

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    with pytest.raises(GangFailedError, match="SIGKILL"):
        run_gang(stage.client, spec)
    sweeper.join()
    stage.check_nothing_is_left(spec, told)


@pytest.mark.slow
def test_a_gang_that_lost_a_worker_begins_again_on_another_one(doomed_stage):
    stage = doomed_stage
    folder = str(stage.folder)

    def train(context: RankContext) -> int:
        Path(folder, f"{context.attempt}-{context.rank}").touch()
        context.barrier()
        if context.attempt == 1:
            time.sleep(600)
        return context.attempt

    spec = make_gang(stage.client, stage.folder, train, max_retries=1)
    victim = stage.client.run(os.getpid)[spec.nodes[0].worker]

    def strike() -> None:
        while not (stage.folder / "1-0").exists() or not (stage.folder / "1-1").exists():
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)

    striker = threading.Thread(target=strike)
    striker.start()
    ends = run_gang(stage.client, spec)
    striker.join()
    assert [(end.attempt, end.status) for end in ends] == [(2, PartitionStatus.DONE)] * 2


DRIVER = """
import pickle, sys
from distributed import Client
from partwise.gangs.driver import run_gang

spec = pickle.load(open(sys.argv[2], "rb"))
with Client(sys.argv[1]) as client:
    run_gang(client, spec)
"""


def test_a_gang_whose_driver_is_killed_ends(stage, start_python):
    spec = stage.spec(lambda: None)
    path = stage.folder / "spec.pickle"
    path.write_bytes(pickle.dumps(spec))
    driver = start_python(DRIVER, stage.client.scheduler.address, path)
    told = stage.facts()
    driver.kill()
    stage.check_nothing_is_left(spec, told)
