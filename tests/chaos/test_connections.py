"""Connections that are closed in runs of every kind, as by a proxy that is restarted.

Two proxies stand before the scheduler of a cluster that stays: one for drivers, one for workers. A
driver finds its scheduler again; a worker ends, and another one takes its place. Some drivers are
killed besides. On the workers, also on those that had nothing to do, nothing is left.
"""

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

import distributed
import pytest

from partwise.runs.run import Run
from tests.chaos import impatient
from tests.chaos.conftest import Experiment
from tests.chaos.test_roles import KINDS, Quiet, Script, what_came_of_it
from tests.chaos.training import wait_for
from tests.own_cluster import OwnCluster, own_cluster
from tests.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.slow


WORKERS = 2
KILLED = 0.25
"""How many of the drivers are killed after the last closing."""
REFUSED_S = 3.0
"""For so long connections are refused at most; a driver waits longer for its own."""


@dataclass
class Ground:
    """A cluster that stays, with a proxy for its drivers and one for its workers."""

    cluster: OwnCluster
    client: distributed.Client
    wires: dict[str, TcpProxy]

    def close(self, whose: str, refused_s: float) -> None:
        """Close connections to the scheduler; workers end of that, and others take their place."""
        if whose == "workers":
            # One that starts would go on looking for its scheduler.
            self.client.wait_for_workers(WORKERS, timeout=120)
        self.wires[whose].restart(refused_s)
        if whose == "workers":
            assert wait_for(lambda: not self.cluster.nannies(), 60), "workers go on by themselves"
            self.cluster.add(WORKERS)

    def close_some(
        self, chance: Random, script: Script, process: subprocess.Popen[str]
    ) -> tuple[Counter[str], dict[str, datetime]]:
        """Close connections at a few moments of a run.

        Returns whose these were, and what was committed before.
        """
        closed, before = Counter[str](), script.committed()
        carried = self.wires["driver"].carried
        wait_for(lambda: self.wires["driver"].carried > carried or process.poll() is not None)
        for _ in range(chance.randint(1, 4)):
            time.sleep(chance.uniform(0.0, 3.0))
            whose = chance.choice(("driver", "driver", "workers"))
            refused_s = chance.choice((0.0, chance.uniform(0.0, REFUSED_S)))
            if process.poll() is None:
                before = script.committed()
                self.close(whose, refused_s)
                closed[f"{whose} of {script.kind}"] += 1
        if chance.random() < KILLED and process.poll() is None:
            before = script.committed()
            process.kill()
            closed[f"killed {script.kind}"] += 1
        return closed, before

    def what_is_left(self) -> str:
        """Return what a run has left on its workers; "": nothing."""
        left: list[object] = []

        def is_tidy() -> bool:
            left[:] = [*self.cluster.folder.rglob("partwise-*"), *self.cluster.children()]
            return not left

        return "" if wait_for(is_tidy, 20) else f"left on workers: {left}"


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Give a cluster for as long as a block lasts."""
    with (
        own_cluster(
            folder, CHAOS_NAP_S="0.1", DASK_DISTRIBUTED__WORKER__PRELOAD=impatient.__name__
        ) as cluster,
        tcp_proxy(cluster.address) as drivers,
        tcp_proxy(cluster.address) as workers,
        distributed.Client(cluster.address, set_as_default=False) as client,
    ):
        cluster.address = workers.address
        cluster.add(WORKERS)
        yield Ground(cluster, client, {"driver": drivers, "workers": workers})


def test_closed_connections_lose_nothing(experiment: Experiment, tmp_path: Path) -> None:
    chance, wrong, closed, went_on = experiment.chance, list[str](), Counter[str](), 0
    with ground(tmp_path / "cluster") as made:
        address = made.wires["driver"].address
        quiet = Quiet(tmp_path / "quiet", address)
        for number in experiment.tries(1):
            kind = KINDS[number % len(KINDS)] if experiment.seconds else chance.choice(KINDS)
            made.client.wait_for_workers(WORKERS, timeout=120)
            store, expected = tmp_path / str(number), quiet.digest(kind)
            shutil.copytree(quiet.store, store)
            script = Script(store, kind, "closed", address=address)
            process = script.start()
            whose, before = made.close_some(chance, script, process)
            closed += whose
            problem = what_came_of_it(script, process, before, expected, may_print=False)
            went_on += process.returncode == 0
            # A gang begins again as a whole.
            if not problem and kind != "gang":
                problem = attempts_of(script)
            if not problem:
                problem = made.what_is_left()
            if problem:
                wrong.append(f"{kind}: {problem}")
            shutil.rmtree(store)
    experiment.tell(
        "G24",
        tried=closed.total(),
        lost=len(wrong),
        what=f"{went_on} of {number} went on, {dict(sorted(closed.items()))} {wrong or ''}",
    )


def attempts_of(script: Script) -> str:
    """Return of which attempts there were several; "": one at each partition."""
    rows = Run.open(script.run_id, script.store).partitions
    attempts = Counter(rows["attempts"].to_pylist())
    return "" if set(attempts) == {1} else f"attempts were counted: {attempts}"
