"""Start servers on a loopback address, and see what they cost."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from benchmarks.frame.processes import end

START_S = 180.0


@dataclass(frozen=True)
class Server:
    """A server that answers, with its processes."""

    url: str
    process: psutil.Process
    started_s: float
    """From its start until it was ready."""

    def family(self) -> list[psutil.Process]:
        """Return the process that was started and all below it."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return seconds of CPU of its processes so far."""
        times = [each.cpu_times() for each in self.family()]
        return sum(each.user + each.system for each in times)

    def memory_mib(self) -> float:
        """Return what its processes hold in memory; what they share counts once."""
        return sum(each.memory_full_info().pss for each in self.family()) / 2**20

    def kill_one(self) -> int:
        """Kill the busiest process but the first, which looks after the others.

        Returns:
            How many connections it had.
        """
        workers = self.family()[1:]
        busiest = max(workers, key=lambda each: sum(each.cpu_times()[:2]))
        connections = busiest.net_connections("tcp")
        busiest.send_signal(signal.SIGKILL)
        return sum(each.status == psutil.CONN_ESTABLISHED for each in connections)


def free_port() -> int:
    """Return a port of loopback that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def serving(
    words: Sequence[str],
    port: int,
    ready: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server for as long as a block lasts; `ready` is a path that answers 200 then.

    Raises:
        RuntimeError: It ended, or was not ready in time; with the end of what it printed.
    """
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            words, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
        try:
            while not _answers(url + ready):
                if process.poll() is not None or time.monotonic() - began > START_S:
                    said.seek(0)
                    raise RuntimeError(f"{' '.join(words)} is not ready: {said.read()[-2000:]}")
                time.sleep(0.05)
            yield Server(url, psutil.Process(process.pid), time.monotonic() - began)
        finally:
            end(process, patience_s=10)


@contextmanager
def partwise_serving(store: str, *options: object) -> Iterator[Server]:
    """Run `partwise serve catalog://sales`, and wait until it has warmed up."""
    from benchmarks.served.catalog import CATALOG

    port = free_port()
    command = "from partwise.flows.cli.main import main; main()"
    words = [sys.executable, "-c", command, "serve", f"catalog://{CATALOG}", "--store", store]
    words += ["--port", str(port), *map(str, options)]
    with serving(words, port, "/v2/health/ready") as server:
        yield server


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
