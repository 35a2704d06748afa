"""Open MPI programs as ranks of a gang, with the real Open MPI: two workers stand for two nodes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from partwise.gangs.driver import run_gang
from partwise.gangs.errors import GangFailedError
from partwise.gangs.node import gang_mark
from partwise.gangs.spec import Node
from partwise.outcomes import PartitionStatus
from partwise.processes.family import find_marked
from partwise.ranks.context import RankContext
from partwise.scripts import mpi
from partwise.scripts.mpi import run_mpi
from tests.gangs.gang_maker import Events, make_gang
from tests.strangers_everywhere import strangers_everywhere

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = pytest.mark.usefixtures("mpirun")

LATE_S = 20.0
PROGRAM = """
import os, signal, sys, time
from mpi4py import MPI

world = MPI.COMM_WORLD
names = "COMM_WORLD_RANK", "COMM_WORLD_SIZE", "COMM_WORLD_LOCAL_RANK", "COMM_WORLD_LOCAL_SIZE"
told = [int(os.environ[f"OMPI_{name}"]) for name in names]
gang = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
assert told == gang == [world.rank, world.size, *told[2:]]
print("sum", world.allreduce(world.rank + 1), flush=True)


def below(name):
    import psutil
    found = psutil.Process(os.getppid()).children(recursive=True)
    return next(one.pid for one in found if one.name() == name)


"""


def start(script: str, environment: dict[str, str] | None = None, start_s: float = mpi.START_S):
    """Return a function that runs a script as the program of each rank."""

    def work(context: RankContext) -> None:
        mpi.START_S = start_s

        def run(variables, started):
            # As ranks of scripts do: a SIGTERM to the group is the program's.
            before = signal.signal(signal.SIGTERM, lambda *_: None)
            words = [sys.executable, "-c", PROGRAM + script]
            program = subprocess.Popen(words, env=dict(variables), cwd=context.scratch_directory)
            started(program.pid)
            code = program.wait()
            signal.signal(signal.SIGTERM, before)
            return code

        code = run_mpi(context, {**os.environ, **(environment or {})}, run, grace_s=1.0)
        if code < 0:
            os.kill(os.getpid(), -code)
        if code:
            os._exit(code)

    return work


@pytest.fixture
def make_spec(dask_client, tmp_path):
    """Make a gang of a script on nodes with so many ranks each, and look that nothing stays."""
    specs = []

    def left():
        folders = [*Path("/tmp").glob("ompi.*"), *Path("/tmp").glob("pmix*")]
        return {*folders, *Path("/dev/shm").glob("vader_segment.*")}

    def make(script, ranks=(1, 1), environment=None, start_s=mpi.START_S, first_worker=0, **fields):
        workers = sorted(dask_client.scheduler_info(n_workers=-1)["workers"])[first_worker:]
        nodes = [
            Node(worker=workers[number], first_rank=sum(ranks[:number]), ranks=of_node)
            for number, of_node in enumerate(ranks)
        ]
        work = start(script, environment, start_s)
        specs.append(make_gang(dask_client, tmp_path, work, nodes=tuple(nodes), **fields))
        return specs[-1]

    before = left()
    yield make
    deadline = time.monotonic() + LATE_S
    for spec in specs:
        while found := find_marked(gang_mark(spec.token).encode()):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
    assert left() <= before


def test_ranks_of_two_nodes_are_one_job(dask_client, make_spec):
    """Each with its own log; with more ranks than cores, and settings of the caller's own."""
    script = """
names = ["mpi_yield_when_idle", "btl_vader_backing_directory", "coll_base_verbose"]
settings = [os.environ[f"OMPI_MCA_{name}"] for name in names]
assert settings[0] == "1" and settings[1].startswith(os.path.dirname(os.getcwd())), settings
assert settings[2] == "0"
"""
    cores = len(os.sched_getaffinity(0))
    events = Events()
    spec = make_spec(script, (cores, 1), {"OMPI_MCA_coll_base_verbose": "0"})
    ends = run_gang(dask_client, spec, events)
    assert [end.exit_code for end in ends] == [0] * (cores + 1)
    total = sum(range(cores + 2))
    # Open MPI warns now and then that a process which it has just started ended already.
    lines = sorted(line for line in events.lines() if "setpgid" not in line)
    assert lines == [f"[rank {rank}] sum {total}" for rank in range(cores + 1)]


# What a rank does while the others wait for it: how it ends, and what is told of it.
DEEDS = {
    "exits": ("os._exit(3)", 3, "exit status 3"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", -9, "SIGKILL"),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", -11, "SIGSEGV"),
    "aborts": ("world.Abort(7)", 7, "exit status 7"),
    "has its rank killed": ("os.kill(os.getppid(), signal.SIGKILL)", -9, "SIGKILL"),
    "leaves without a word": ("os._exit(0)", None, "exiting improperly"),
    "loses its daemon": ("os.kill(below('orted'), signal.SIGKILL)", 1, "daemon of node 1.*SIGKILL"),
    "loses mpirun": ("os.kill(below('mpirun'), signal.SIGKILL)", 1, "mpirun.*SIGKILL"),
}
QUICK = [("exits", 1)]
SLOW = [
    *((name, rank) for name in ("is killed", "aborts", "has its rank killed") for rank in (0, 1)),
    *(("exits", 0), ("crashes", 1), ("leaves without a word", 1)),
    *(("loses its daemon", 1), ("loses mpirun", 0)),
]


@pytest.mark.parametrize(
    ("name", "guilty"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_the_rank_that_broke_off_the_job_is_to_blame(dask_client, make_spec, name, guilty):
    deed, code, message = DEEDS[name]
    script = f"""
if world.rank == {guilty}:
    time.sleep(0.2)
    {deed}
world.allreduce(1) if world.rank != {guilty} else time.sleep(60)
"""
    with pytest.raises(GangFailedError) as caught:
        run_gang(dask_client, make_spec(script))
    assert re.search(message, str(caught.value), re.DOTALL)
    if code is not None:
        assert caught.value.rank == guilty
        assert caught.value.ends[guilty].exit_code == code


@pytest.mark.slow
def test_programs_may_still_use_mpi_when_they_are_told_to_end(dask_client, make_spec):
    script = """
def keep(*_):
    print("kept", world.allreduce(1), flush=True)
    MPI.Finalize()
    os._exit(0)


signal.signal(signal.SIGTERM, keep)
while True:
    time.sleep(0.01)
"""
    events = Events()
    with pytest.raises(GangFailedError, match="its time limit"):
        run_gang(dask_client, make_spec(script, timeout_s=6.0, grace_s=10.0), events)
    kept = [line for line in events.lines() if "kept" in line]
    assert sorted(kept) == ["[rank 0] kept 2", "[rank 1] kept 2"]


@pytest.mark.slow
def test_programs_that_ignore_the_end_are_killed(dask_client, make_spec):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    with pytest.raises(GangFailedError, match="its time limit") as caught:
        run_gang(dask_client, make_spec(script, timeout_s=5.0))
    assert {end.status for end in caught.value.ends} == {PartitionStatus.CANCELLED}


@pytest.mark.slow
def test_two_jobs_on_one_machine_do_not_meet(dask_client, make_spec):
    """On one node each, and again and again: names of files and numbers of jobs would repeat."""
    script = "for _ in range(20): assert world.allreduce(world.rank) == 1"
    results: list[list[int | None]] = []

    def run(number: int) -> None:
        for _ in range(2):
            spec = make_spec(script, (2,), first_worker=number)
            results.append([end.exit_code for end in run_gang(dask_client, spec)])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0, 0]] * 4


@pytest.mark.slow
def test_a_job_that_cannot_start_says_what_mpirun_said(dask_client, make_spec):
    environment = {"OMPI_MCA_rmaps": "none_of_these"}
    with pytest.raises(GangFailedError) as caught:
        run_gang(dask_client, make_spec("", environment=environment))
    assert caught.value.rank == 0
    said = r"mpirun, below rank 0, ended before .*It wrote:.*none_of_these"
    assert re.search(said, str(caught.value), re.DOTALL)


@pytest.mark.slow
def test_strangers_at_its_ports_do_not_hold_a_job_for_ever(dask_client, make_spec):
    with strangers_everywhere() as visited:
        try:
            ends = run_gang(dask_client, make_spec("", start_s=5.0))
        except GangFailedError as error:
            assert re.search("nobody else may connect to these ports", str(error))  # noqa: PT017
        else:
            assert [end.exit_code for end in ends] == [0, 0]
    assert any("mpirun" in one for one in visited.ports)
