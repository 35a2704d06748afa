"""A Dask cluster of processes of our own, which a test may stop, kill, and start again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import distributed
import psutil

from partwise.blocks import RemoteCluster

_SERVERS = ("processes.warm_server", "processes.machine_server")
START_S = 120.0


class OwnCluster:
    """A scheduler, and workers with or without a nanny, each started as a command of Dask's.

    Args:
        folder: For logs and for what workers write.
        environment: Variables besides those of this process.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._file = folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self._file
        )
        # The file is there a moment before what stands in it.
        wait_for(lambda: self._read_address() is not None, "the scheduler does not start")
        self.address: str = self._read_address() or ""
        self.commands: list[subprocess.Popen[bytes]] = []
        """A nanny each, or a worker without one."""

    def _read_address(self) -> str | None:
        with suppress(OSError, ValueError):
            return str(json.loads(self._file.read_text())["address"])
        return None

    @property
    def block(self) -> RemoteCluster:
        """How a flow is told of it."""
        return RemoteCluster(address=self.address, shares_filesystem=True)

    def add(self, count: int, nanny: bool = True) -> None:
        """Start workers of one thread each."""
        words = [
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--local-directory",
            str(self.folder),
        ]
        words += ["--nanny" if nanny else "--no-nanny"]
        for _ in range(count):
            self.commands.append(self._start("worker", self.address, *words))

    def stop_scheduler(self) -> None:
        """Have the scheduler hang, with its connections open."""
        os.kill(self.scheduler.pid, signal.SIGSTOP)

    def kill_scheduler(self) -> None:
        """End the scheduler at once, and with it all workers, which have nothing to wait for."""
        self.scheduler.kill()
        self.scheduler.wait()

    def restart_scheduler(self) -> None:
        """Start another scheduler at the address of the one that was killed."""
        port = self.address.rpartition(":")[2]
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", port)

    def workers(self) -> list[psutil.Process]:
        """The processes that run shards."""
        return [process for command in self.commands for process in _workers_of(command)]

    def nannies(self) -> list[psutil.Process]:
        """The processes that start workers again."""
        running = [command for command in self.commands if command.poll() is None]
        return [psutil.Process(command.pid) for command in running]

    def replace_dead(self, count: int) -> None:
        """Start as many as are missing; without their nanny, workers end by themselves."""
        self.commands = [command for command in self.commands if command.poll() is None]
        self.add(max(0, count - len(self.commands)))

    def children(self) -> list[psutil.Process]:
        """The processes that run the user's function."""
        found = []
        for worker in self.workers():
            with suppress(psutil.Error):
                found += worker.children(recursive=True)
        return [process for process in found if is_child(process)]

    def _start(self, what: str, *words: object) -> subprocess.Popen[bytes]:
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ
                | {
                    "DASK_LOGGING__DISTRIBUTED": "critical",
                    # Tests kill workers far more often than they die by themselves.
                    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000",
                    # As in clusters of ours: its processes have nothing to do most of the time.
                    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
                    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
                    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
                    **self._environment,
                },
            )

    def close(self) -> None:
        """Kill all of it, stopped processes as well."""
        for command in [*self.commands, self.scheduler]:
            family = []
            with suppress(psutil.Error):
                family = psutil.Process(command.pid).children(recursive=True)
            command.kill()
            for process in family:
                with suppress(psutil.Error):
                    process.kill()
            command.wait()


@contextmanager
def own_cluster(
    folder: Path, workers: int = 0, nanny: bool = True, **environment: str
) -> Iterator[OwnCluster]:
    """Give a cluster of our own, and end it whatever happened to its processes."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = OwnCluster(folder, environment)
    try:
        cluster.add(workers, nanny)
        yield cluster
    finally:
        cluster.close()


def is_child(process: psutil.Process) -> bool:
    """Whether a process runs the user's function: one below a keeper, which a server has forked."""
    with suppress(psutil.Error):
        family = (process, *process.parents()[:2])
        return all(any(name in _line(each) for name in _SERVERS) for each in family)
    return False


def wait_for(condition, why: str, timeout_s: float = START_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def send(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal, and say whether there was somebody to take it."""
    try:
        process.send_signal(number)
    except psutil.Error:
        return False
    return True


def _workers_of(command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.Error):
        process = psutil.Process(command.pid)
        if "--no-nanny" in process.cmdline():
            return [process]
        return [child for child in process.children() if "spawn_main" in _line(child)]
    return []


def _line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def cut_off_others(client: distributed.Client) -> None:
    """Close the connections between the scheduler and all other clients; they may come again."""
    spared = client.id

    def cut(dask_scheduler: distributed.Scheduler) -> None:
        for name, stream in list(dask_scheduler.client_comms.items()):
            if name != spared:
                stream.comm.abort()

    client.run_on_scheduler(cut)
