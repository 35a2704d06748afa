"""Runs on hosts whose network breaks at some moment, for some time: what came of each."""

import json
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.hosts.network import Cluster, Network, network
from tests.hosts.training import CALLS, OUTPUT, PARTITIONS, digest_of, model_of, rows_of_all

HOSTS = ("driver", "scheduler", "store", "one", "two")
WORKERS = ("one", "two")
SCRIPT = str(Path(__file__).with_name("training.py"))
STORE = "s3://models/runs"
FOR_EVER = float("inf")
MOMENTS = {"at the first": 1, "after a third": PARTITIONS // 3, "near the end": PARTITIONS - 4}
"""How often the function was called when the network breaks."""
BUSY = 3
"""Beside other work all takes so many times as long before it counts as hanging."""
PATIENCE_S = 900.0
"""What takes longer hangs."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Something that breaks.

    Args:
        ends: The two hosts that lose each other; or the one that vanishes.
        stated_s: After so long the call has ended, or is done: what docs/reliability.md says.
    """

    ends: tuple[str, ...]
    stated_s: float

    @property
    def name(self) -> str:
        """What the table calls it."""
        return "-".join(self.ends) if len(self.ends) > 1 else f"{self.ends[0]} vanishes"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A cut, the moment it comes at, and how long it lasts."""

    cut: Cut
    moment: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class End:
    """How a trial ended.

    Args:
        took_s: From the cut to the end of the call.
        said: The sentence by which the call ended; nothing where it went on to its end.
        wrong: What must not be: a sentence each.
        twice: How many keys were trained by two executions at once, of which one was cut off.
    """

    took_s: float
    said: str
    wrong: tuple[str, ...]
    twice: int


class Ground:
    """A network with a cluster and a bucket, for one trial after the other.

    Args:
        made: With the hosts of `HOSTS`.
        folder: For logs.
    """

    def __init__(self, made: Network, folder: Path) -> None:
        self.network = made
        self.cluster = Cluster(made, (), folder)
        self._nannies = {name: self.cluster.add(name) for name in WORKERS}
        make = (
            "import boto3, botocore.config as c; boto3.client('s3', config=c.Config("
            "retries={'max_attempts': 30}, connect_timeout=5)).create_bucket(Bucket='models')"
        )
        process = made["driver"].python("-c", make, AWS_ENDPOINT_URL_S3=self.cluster.store)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output
        self._script = made["driver"].python(
            SCRIPT, lines=subprocess.PIPE, AWS_ENDPOINT_URL_S3=self.cluster.store
        )
        self.cluster.pids.add(self._script.pid)

    def play(self, trial: Trial) -> End:
        """Begin a run, break the network, mend it, and resume the run if it ended."""
        run_id = f"cut-{uuid.uuid4().hex[:8]}"
        name = self._start(run_id)
        called = MOMENTS[trial.moment]
        begun = self._wait(lambda: len(self._calls(run_id)) >= called, name, PATIENCE_S)
        assert begun, f"the function is not called: {self._output(name)}"
        began = time.monotonic()
        lost = self._break(trial.cut, run_id)
        is_over = self._wait(lambda: False, name, trial.seconds, mends=False)
        over_s = time.monotonic() - began
        self._mend(trial.cut)
        if not is_over:
            is_over = self._wait(lambda: False, name, PATIENCE_S, mends=False)
            over_s = time.monotonic() - began
        output = self._output(name)
        wrong = _wrong_of(output)
        if not is_over or over_s > BUSY * trial.cut.stated_s:
            wrong.append(f"it went on for {over_s:.0f} s")
        said, found = _line(output, "ENDED "), _line(output, "WHOLE ")
        wrong += self._left_behind()
        if not found:
            name = self._start(run_id)
            self._wait(lambda: False, name, PATIENCE_S)
            found = _line(self._output(name), "WHOLE ")
            wrong += [] if found else [f"the resume: {_tail(self._output(name))}"]
            wrong += self._left_behind()
        calls = lost + self._calls(run_id)
        more, twice = _look_at(json.loads(found), calls) if found else ([], 0)
        return End(took_s=over_s, said=said, wrong=(*wrong, *more), twice=twice)

    def _start(self, run_id: str) -> str:
        """Begin a run or resume it, and return the name of its output."""
        name = uuid.uuid4().hex
        assert self._script.stdin is not None
        self._script.stdin.write(f"{STORE} {self.cluster.scheduler} {run_id} {name}\n")
        self._script.stdin.flush()
        return name

    def _output(self, name: str) -> str:
        return self.network["driver"].text(OUTPUT.format(name))

    def _wait(
        self, condition: Callable[[], bool], name: str, seconds: float, *, mends: bool = True
    ) -> bool:
        """Wait until something is so, or a run is over; `mends`: workers that ended come back."""
        deadline = time.monotonic() + min(seconds, PATIENCE_S)
        while not condition() and "\nEXIT " not in self._output(name):
            if time.monotonic() > deadline:
                return False
            if mends:
                self._replace_dead()
            time.sleep(0.1)
        return True

    def _replace_dead(self) -> None:
        """Start workers in the place of those that have ended with their connection."""
        for name, nanny in self._nannies.items():
            if nanny.poll() is not None:
                self._nannies[name] = self.cluster.add(name)

    def _calls(self, run_id: str) -> list[tuple[float, int]]:
        """When the function was called, for which key."""
        lines = [line.split() for name in WORKERS for line in self._text(name).splitlines()]
        return [(float(when), int(key)) for when, of, key in lines if of == run_id]

    def _text(self, name: str) -> str:
        return self.network[name].text(CALLS)

    def _break(self, cut: Cut, run_id: str) -> list[tuple[float, int]]:
        """Break it, and return the calls that nobody can read any more."""
        if len(cut.ends) > 1:
            self.network.cut(*cut.ends)
            return []
        (name,) = cut.ends
        calls = self._calls(run_id)
        self.network.vanish(name)
        kept = self._calls(run_id)
        return [each for each in calls if each not in kept]

    def _mend(self, cut: Cut) -> None:
        if len(cut.ends) > 1:
            self.network.heal(*cut.ends)
            return
        (name,) = cut.ends
        self.network.plug_in(name)
        if name == "scheduler":
            self.cluster.add_scheduler()
        if name in self._nannies:
            self._nannies[name] = self.cluster.add(name)

    def _left_behind(self) -> list[str]:
        """Processes that are nobody's any more: on the driver's host all, on others orphans."""
        deadline, found = time.monotonic() + 30, ["?"]
        while found and time.monotonic() < deadline:
            found = [f"left on {name}: {line}" for name in HOSTS for line in self._strays(name)]
            time.sleep(0.5)
        return found

    def _strays(self, name: str) -> Iterator[str]:
        host = self.network[name]
        for process in host.processes():
            with_parents = {process.pid}
            try:
                with_parents |= {each.pid for each in process.parents()}
                line = " ".join(process.cmdline())[:120]
            except psutil.Error:
                continue
            if not with_parents & self.cluster.pids:
                yield line


def _line(output: str, begin: str) -> str:
    return next((e.removeprefix(begin) for e in output.splitlines() if e.startswith(begin)), "")


def _tail(output: str) -> str:
    return " | ".join(output.splitlines()[-4:])[-300:]


def _wrong_of(output: str) -> list[str]:
    """What must not be in the words of a call."""
    wrong = []
    if not _line(output, "ENDED ") and not _line(output, "WHOLE "):
        wrong.append(f"no sentence: {_tail(output)}")
    if "Traceback" in output:
        wrong.append("a stack trace")
    return wrong


def _look_at(said: dict[str, Any], calls: list[tuple[float, int]]) -> tuple[list[str], int]:
    """See that a run is whole, and nothing trained after its commit; count what ran twice."""
    wrong = []
    if said["keys"] != list(range(PARTITIONS)) or said["digest"] != expected_digest():
        wrong.append("other models")
    first: dict[int, float] = {}
    for when, key, _ in said["commits"]:
        first[key] = min(first.get(key, when), when)
    # The bucket tells full seconds: a commit is over at the end of its own.
    doubled = sorted({key for when, key in calls if when > first.get(key, FOR_EVER) + 1.0})
    if doubled:
        wrong.append(f"trained after their commit: {doubled}")
    # A resume writes the rows that it keeps once more.
    trained = Counter(key for key, _ in {(key, at) for _, key, at in said["commits"]})
    return wrong, sum(count > 1 for count in trained.values())


def expected_digest() -> str:
    """Of the models, as they are without any cluster."""
    x = rows_of_all()["x"].to_numpy().reshape(PARTITIONS, -1)
    return digest_of([model_of(np.ascontiguousarray(each)) for each in x])


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Give a network for trials, and end it."""
    folder.mkdir(parents=True)
    with network(*HOSTS) as made:
        yield Ground(made, folder)
