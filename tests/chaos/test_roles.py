"""Processes of every role, killed in runs of every kind once some of a run is done.

A run of each kind is made by a script on a cluster of its own. Any process that this has started is
killed: the script, Dask's nannies and workers, the processes that children are forked from, their
keepers, the children, the ranks. The call goes on to its end, or ends with a sentence and is called
again; nothing that was committed is done once more, and what comes of it is what a quiet run gives.
"""

import os
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from partwise.errors import PartwiseError
from partwise.runs.run import Run
from tests.chaos.conftest import Experiment
from tests.chaos.kinds import PARTITIONS
from tests.chaos.training import MARK, wait_for

pytestmark = pytest.mark.slow

KINDS = ("train", "infer", "map", "export", "compare", "tune", "gang")
ENDS_S = 300.0
"""After so long what goes on after a kill counts as hanging."""


@dataclass
class Script:
    """The script on a store, and all processes that it starts."""

    store: Path
    kind: str
    run_id: str
    trains: Sequence[str] = ()
    """Training runs that the same process makes first."""
    address: str = ""
    """Of the scheduler of a cluster that stays; "": it has a cluster of its own."""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self, nap_s: float = 0.0) -> subprocess.Popen[str]:
        """Begin the run, or resume it."""
        more = {MARK: self.mark, "CHAOS_NAP_S": str(nap_s), "PREFECT_LOGGING_LEVEL": "ERROR"}
        more["CHAOS_ADDRESS"] = self.address
        runs = [*(("train", each) for each in self.trains), (self.kind, self.run_id)]
        words = [str(self.store), *(word for run in runs for word in run)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.kinds", *words],
            env=os.environ | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Return those that are there."""
        return list(self._processes())

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != "zombie":
                    yield process

    def committed(self) -> dict[str, datetime]:
        """Return when each partition that is done was done."""
        try:
            ledger = Run.open(self.run_id, self.store).newest.partitions
        except PartwiseError:
            return {}
        rows = ledger.select(["partition_id", "status", "finished_at"]).to_pylist()
        return {row["partition_id"]: row["finished_at"] for row in rows if row["status"] == "DONE"}


TRACKER = "resource tracker"
FORKED = {
    "multiprocessing.forkserver": ("fork server of workers", "worker"),
    "machine_server": ("machine's server", "worker's server", "keeper", "child"),
    "warm_server": ("worker's server", "keeper", "child"),
}
"""What is a fork has the command of its parent: these are the roles by how many above have it."""


def role_of(process: psutil.Process, driver: int) -> str:
    """Name what a process is, by its command and how far it is from the script."""
    if process.pid == driver:
        return "driver"
    line = " ".join(process.cmdline())
    for words, role in (
        ("resource_tracker", TRACKER),
        ("multiprocessing.spawn", "worker"),
        ("judge", "judge"),
        ("rank", "rank"),
    ):
        if words in line:
            return role
    above = [" ".join(each.cmdline()) for each in process.parents()]
    for words, roles in FORKED.items():
        if words in line:
            depth = sum(words in each for each in above)
            return roles[min(depth, len(roles) - 1)]
    return f"other ({line[:60]})"


def finish(script: Script) -> str:
    """Go on with a run to its end, and return its digest."""
    output, _ = (process := script.start()).communicate(timeout=ENDS_S)
    assert process.returncode == 0, output
    return digest_in(output)


def digest_in(output: str) -> str:
    """Return what the script said of its last run."""
    return next((line for line in output.splitlines()[::-1] if line.startswith("DIGEST ")), "")


MODELS = {"infer": ("trained",), "export": ("trained",), "compare": ("trained", "trained-too")}
"""The training runs that a kind uses."""


class Quiet:
    """A store with quiet runs and the models that they use, each made when it is asked for first.

    Args:
        store: A folder that is not there yet.
        address: Of a cluster that stays; "": each run has its own.
    """

    def __init__(self, store: Path, address: str = "") -> None:
        self.store, self.address = store, address
        self._digests: dict[str, str] = {}
        self._trained: list[str] = []

    def digest(self, kind: str) -> str:
        """What a quiet run of a kind gives."""
        if kind not in self._digests:
            missing = [name for name in MODELS.get(kind, ()) if name not in self._trained]
            script = Script(self.store, kind, f"quiet-{kind}", missing, self.address)
            self._digests[kind] = finish(script)
            self._trained += missing
        return self._digests[kind]


def test_any_process_may_be_killed_in_a_run_of_any_kind(
    experiment: Experiment, tmp_path: Path
) -> None:
    quiet = Quiet(tmp_path / "quiet")
    chance, killed, went_on, wrong = experiment.chance, Counter[str](), 0, list[str]()
    for number in experiment.tries(1):
        kind = KINDS[number % len(KINDS)] if experiment.seconds else chance.choice(KINDS)
        store, expected = tmp_path / str(number), quiet.digest(kind)
        shutil.copytree(quiet.store, store)
        script = Script(store, kind, "killed")
        process = script.start(nap_s=0.1)
        # A gang has no partitions of its own: it has begun when its run is there.
        share = chance.choice((1, PARTITIONS // 3, PARTITIONS // 2))
        begun = wait_for(
            lambda s=script, p=process, n=share: (
                p.poll() is not None
                or len(s.committed()) >= n
                or (s.kind in ("gang", "tune") and len(s.processes()) > 7)
            )
        )
        assert begun, f"{kind} does not begin"
        found = script.processes()
        if not found:
            continue
        victim, role = chance.choice(found), "gone"
        before = script.committed()
        with suppress(psutil.Error):
            role = role_of(victim, process.pid)
            victim.kill()
            killed[f"{role} of {kind}"] += 1
        # The next one prints an error for each name that it was never told: Python's, and harmless.
        may_print = role == TRACKER
        problem = what_came_of_it(script, process, before, expected, may_print)
        went_on += process.returncode == 0
        if problem:
            wrong.append(f"{role} of {kind}: {problem}")
        shutil.rmtree(store)
    experiment.tell(
        "G23",
        tried=killed.total(),
        lost=len(wrong),
        what=f"{went_on} went on, {dict(sorted(killed.items()))} {wrong or ''}",
    )


def what_came_of_it(
    script: Script,
    process: subprocess.Popen[str],
    before: dict[str, datetime],
    expected: str,
    may_print: bool,
) -> str:
    """Return what is wrong after a kill; "": nothing."""
    try:
        output, _ = process.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return f"it goes on after {ENDS_S:.0f} s"
    if process.returncode not in (0, 3, -9):
        return f"it ended with {process.returncode}: {output[-2000:]}"
    if "Traceback" in output and not may_print:
        return f"a stack trace: {output[-2000:]}"
    if not wait_for(lambda: not script.processes(), 30):
        return f"left behind: {[each.cmdline() for each in script.processes()]}"
    said = digest_in(output)
    if process.returncode:
        before = script.committed() | before
        said = finish(script)
    if said != expected:
        return f"other results: {said}, not {expected}"
    after = script.committed()
    again = [name for name, when in before.items() if after.get(name) != when]
    return f"done once more: {again}" if again else ""
