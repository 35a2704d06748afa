"""Drivers that are killed, and processes that want one run."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.conftest import Experiment
from tests.chaos.training import Training, expected_digest, kill_family, wait_for

pytestmark = pytest.mark.slow

PARTITIONS = 120
SHARES = (0.1, 0.5, 0.9, 0.99)
"""How much of a run is done when its driver is killed."""


def test_a_killed_driver_loses_no_model(
    experiment: Experiment, tmp_path: Path, prefect_server: str
) -> None:
    expected = expected_digest(PARTITIONS)
    chance, kills, repeated, lost = experiment.chance, 0, 0, 0
    deadline = time.monotonic() + experiment.seconds
    while kills == 0 or time.monotonic() < deadline:
        training = Training(tmp_path / f"killed-{kills}", f"chaos-killed-{kills}", PARTITIONS)
        for share in chance.sample(SHARES, chance.randint(1, 2)):
            process = training.start()
            wanted = max(len(training.calls), int(share * PARTITIONS))
            assert wait_for(lambda t=training, n=wanted: len(t.calls) >= n), process.communicate()
            kill_family(process)
            kills += 1
            assert wait_for(lambda t=training: not t.processes()), "processes outlive their driver"
        kept, before = training.committed(), training.calls
        training.finish(nap_s=0)
        again = training.calls - before
        # What was committed is not trained again, and the models are those of a plain loop.
        lost += len(kept & set(again)) + (training.digest() != expected)
        repeated += sum(again.values()) - (PARTITIONS - len(kept))
    experiment.tell(
        "G2",
        tried=kills,
        lost=lost + repeated,
        what=f"{PARTITIONS} models each; all as in a plain loop, {repeated} trained twice",
    )


CONTENDER = """
import sys, time
from partwise.errors import RunBusyError
from partwise.store.lease import Lease
from partwise.store.store import Store
store = Store.parse(sys.argv[1])
while sys.stdin.readline():
    try:
        lease = Lease.acquire(store, "runs/wanted", wait_s=0.0)
    except RunBusyError as error:
        print("busy", str(error), flush=True)
    else:
        print("owner", lease.owner.pid, flush=True)
"""


def test_one_process_owns_a_run(
    experiment: Experiment, tmp_path: Path, start_python: Callable[..., object]
) -> None:
    contenders = [start_python(CONTENDER, tmp_path / "store") for _ in range(8)]
    lost, rounds = 0, 0
    # In each round the owner of the round before is killed, and all others ask at once.
    while len(contenders) > 1:
        rounds += 1
        for process in contenders:
            process.stdin.write("now\n")
            process.stdin.flush()
        answers = [process.stdout.readline().split() for process in contenders]
        owners = [
            process for process, said in zip(contenders, answers, strict=True) if said[0] == "owner"
        ]
        lost += len(owners) != 1
        named = {f"process {owner.pid}" for owner in owners}
        busy = [" ".join(said) for said in answers if said[0] == "busy"]
        lost += sum(not any(name in said for name in named) for said in busy)
        for owner in owners:
            owner.kill()
            owner.wait()
            contenders.remove(owner)
    experiment.tell(
        "G8", tried=rounds, lost=lost, what="up to 8 processes at once; one owner each time"
    )
