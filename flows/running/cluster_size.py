"""The number of workers of a cluster that runs already: brought to what is asked for, or as it was.

A Dask scheduler takes the workers that come to it, and cannot make any. So whoever made the cluster
has to be asked: a cluster object of Dask's, a command such as `kubectl scale`, or, where the
scheduler runs on this machine, `dask worker` itself.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlsplit

import psutil
from distributed import Client
from distributed.deploy.cluster import Cluster as DaskCluster

from partwise.blocks import RemoteCluster
from partwise.cluster_calls import ANSWER_S, known_workers, no_answer
from partwise.errors import ClusterError, InputError
from partwise.flows.running.connections import connect
from partwise.processes.starting import await_ends

LOOK_S = 0.2
UNDO_S = 30.0
"""For so long the cluster is waited for when it is brought back to what it was."""
COMMAND_S = 60.0
"""A command may take so long, and as long as workers are waited for."""
END_S = 5.0
"""Between SIGTERM and SIGKILL, for workers that were started here."""
PLACE = "{n}"
"""Stands in a command for the number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """How many workers a cluster had, and has."""

    before: int
    after: int


class _Supply:
    """Where workers of a cluster come from."""

    def scale(self, n: int) -> None:
        """Ask for so many workers; they come and go a while later."""
        raise NotImplementedError

    def failure(self) -> str:
        """Return why no more workers will come; empty where they may."""
        return ""

    def keep(self) -> None:
        """Let workers that have come go on without this process."""

    def undo(self, before: int) -> None:
        """Ask for as many as there were."""
        self.scale(before)


def set_cluster_size(
    cluster: RemoteCluster | DaskCluster, n: int, *, timeout_s: float, command: str = ""
) -> Scaled:
    """Bring a cluster to so many workers, and wait for them.

    Where they do not come, the cluster is brought back to what it was: also when this is
    interrupted. The scheduler of the cluster runs already. `command`, of a `RemoteCluster` only,
    brings it to {n} workers, and has these signs.
    """
    if n < 0:
        raise InputError(f"A cluster cannot have {n} workers: give a number from 0.")
    with _connected(cluster) as client:
        supply = _supply_of(cluster, client, command, timeout_s)
        before = len(known_workers(client))
        if before != n:
            try:
                supply.scale(n)
                _await(client, supply, before, n, timeout_s)
            except BaseException as error:
                outcome = _undone(client, supply, before)
                if isinstance(error, ClusterError):
                    raise ClusterError(f"{error} {outcome}") from error
                error.add_note(outcome)
                raise
            supply.keep()
        return Scaled(before=before, after=len(known_workers(client)))


@contextmanager
def _connected(cluster: RemoteCluster | DaskCluster) -> Iterator[Client]:
    if isinstance(cluster, RemoteCluster):
        with connect(cluster) as client:
            yield client
        return
    try:
        opened = Client(cluster)
    # Dask says by the second that its object is closed already.
    except (OSError, RuntimeError) as error:
        raise ClusterError(
            f"The {type(cluster).__name__} cannot be reached: {error} Start it again."
        ) from error
    with opened as client:
        yield client


def _supply_of(
    cluster: RemoteCluster | DaskCluster, client: Client, command: str, timeout_s: float
) -> _Supply:
    if not isinstance(cluster, RemoteCluster):
        return _OfObject(cluster)
    if command:
        return _OfCommand(command, max(timeout_s, COMMAND_S))
    address = cluster.address.strip()
    if not _is_here(urlsplit(address).hostname or ""):
        raise InputError(
            f"The cluster at {address} cannot be scaled: its scheduler runs on another machine, "
            "and cannot start workers. Give the command that does, such as `kubectl scale "
            "--replicas={n} deployment/dask-worker`, or start `dask worker` there."
        )
    return _OnThisMachine(cluster, client)


def _is_here(host: str) -> bool:
    addresses = {a.address for found in psutil.net_if_addrs().values() for a in found}
    return host == "localhost" or host.startswith("127.") or host in addresses


def _await(client: Client, supply: _Supply, before: int, n: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        there = len(known_workers(client))
        if there >= n if n > before else there <= n:
            return
        if reason := supply.failure():
            raise ClusterError(f"The cluster has {there} of {n} workers: {reason}")
        if time.monotonic() > deadline:
            raise ClusterError(f"The cluster has {there} of {n} workers after {timeout_s:g} s.")
        time.sleep(LOOK_S)


def _undone(client: Client, supply: _Supply, before: int) -> str:
    """Bring the cluster back, and say in a sentence to what."""
    reason = ""
    try:
        supply.undo(before)
        deadline = time.monotonic() + UNDO_S
        while len(known_workers(client)) != before and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        there = len(known_workers(client))
    except Exception as error:
        # Said beside the error that led here, which it is not to hide.
        return f"It could not be brought back to {before}: {error}"
    if there != before:
        reason = f", and not to the {before} that it had, within {UNDO_S:g} s"
    return f"It was brought back to {there}{reason}."


class _OfObject(_Supply):
    """Workers of a cluster object of Dask's."""

    def __init__(self, cluster: DaskCluster) -> None:
        self._cluster = cluster

    def scale(self, n: int) -> None:
        try:
            self._cluster.scale(n)
        except NotImplementedError as error:
            kind = type(self._cluster).__name__
            raise InputError(f"A {kind} cannot be scaled: start workers by hand.") from error


class _OfCommand(_Supply):
    """Workers that a command brings and takes."""

    def __init__(self, command: str, timeout_s: float) -> None:
        self._command = command
        self._timeout_s = timeout_s

    def scale(self, n: int) -> None:
        # No shell: what stands in the number's place could not be another command.
        words = [word.replace(PLACE, str(n)) for word in shlex.split(self._command)]
        try:
            done = subprocess.run(  # noqa: S603 (no shell; who calls may run code here anyway)
                words,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"The command {shlex.join(words)!r} did not end within {self._timeout_s:g} s."
            ) from error
        except OSError as error:
            raise ClusterError(f"The command {words[0]!r} cannot be run: {error}.") from error
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
            raise ClusterError(
                f"The command {shlex.join(words)!r} ended with {done.returncode}: {last[-1]}."
            )


class _OnThisMachine(_Supply):
    """`dask worker` processes beside a scheduler of this machine; they outlive who started them."""

    def __init__(self, cluster: RemoteCluster, client: Client) -> None:
        self._cluster = cluster
        self._client = client
        self._started: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def scale(self, n: int) -> None:
        missing = n - len(known_workers(self._client))
        for _ in range(missing):
            self._start()
        if missing < 0:
            # Idle ones first; a shard of a busy one goes to another worker.
            scheduler: Any = self._client.scheduler
            try:
                self._client.sync(
                    scheduler.retire_workers,
                    n=-missing,
                    close_workers=True,
                    callback_timeout=ANSWER_S,
                )
            except TimeoutError as error:
                raise no_answer(ANSWER_S) from error
            except OSError as error:
                raise ClusterError(
                    f"The connection to the Dask scheduler was closed ({error}) while workers were "
                    "to go."
                ) from error

    def _start(self) -> None:
        block = self._cluster
        address = block.address.strip().rstrip("/")
        words = [sys.executable, "-m", "distributed.cli.dask_worker", address]
        words += ["--host", urlsplit(address).hostname or "", "--nworkers", "1", "--nthreads", "1"]
        # Without Dask's limit, which does not see the processes that functions run in.
        words += ["--memory-limit", "0", "--no-dashboard", "--death-timeout", "60"]
        if address.startswith("tls:"):
            words += ["--tls-ca-file", block.tls_ca_file, "--tls-cert", block.tls_cert_file]
            words += ["--tls-key", block.tls_key_file]
        # It has no name, and so is gone with the worker.
        log = tempfile.TemporaryFile()  # noqa: SIM115 (read when the worker has ended)
        process = subprocess.Popen(  # noqa: S603 (our own arguments)
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # It outlives this process, and a Ctrl-C here is none for it.
            start_new_session=True,
            env={"DASK_LOGGING__DISTRIBUTED": "warning", **os.environ},
        )
        self._started.append((process, log))

    def failure(self) -> str:
        for process, log in self._started:
            if process.poll() is not None:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                said = lines[-1] if lines else "it wrote nothing"
                return f"a worker that was started ended with {process.returncode}: {said}."
        return ""

    def keep(self) -> None:
        for process, log in self._started:
            log.close()
            # Found by the scheduler only: there is nothing to wait for.
            process.returncode = 0
        self._started.clear()

    def undo(self, before: int) -> None:
        # It was to shrink: workers in the place of those that have gone are to stay.
        if not self._started:
            self.scale(before)
            self.keep()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process, _ in self._started:
                with suppress(ProcessLookupError):
                    # A nanny and its worker are a session.
                    os.killpg(process.pid, number)
            await_ends((process for process, _ in self._started), END_S)
        for _, log in self._started:
            log.close()
        self._started.clear()
