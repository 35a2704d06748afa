"""A rank's part in an Open MPI job: mpirun's daemons below the gang's ranks, and no ssh.

mpirun runs below rank 0. Where it would call ssh it calls a small program, which tells rank 0 the
command that starts its daemon on another node; rank 0 passes the commands on by the gang's
exchange, and the first rank of each node starts its own. So nothing of ours listens in the network.

A daemon starts a stub for each process of its node (`mpi_stub.py`). The stub gives the environment
of its process to the rank of the same number, over a socket in a folder of the rank's, and the rank
starts the program. So the program is a child of its rank as without MPI: its log, memory, exit
status and signals are the rank's, and the gang's rules are those that end it.

mpirun and its daemons have sessions of their own: a SIGTERM is for the programs, which may still
need MPI to keep a checkpoint.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from partwise.errors import MpiError, PeerLostError
from partwise.processes.starting import describe_exit
from partwise.ranks.context import RankContext
from partwise.redaction import without_secrets
from partwise.scripts import mpi_stub
from partwise.scripts.open_mpi import (
    LAUNCH_PROGRAM,
    daemon_environment,
    find_open_mpi,
    mpirun_words,
    node_host,
    program_environment,
)

START_S = 60.0
"""For so long mpirun may take to reach all nodes and to start all processes."""
SETTLE_S = 0.5
"""When the job breaks off, the one who broke it ends by itself within this time."""
REASON_S = 3.0
"""For so long a rank waits to hear why the job has broken off."""
LOOK_S = 0.05
LARGEST_MESSAGE_BYTES = 16 << 20
TAIL_BYTES = 4_000
"""So much of what mpirun wrote stands in errors."""
_HELD_BYTES = 16 * TAIL_BYTES
"""More than is told, as a secret that the cut would divide is masked before."""


def run_mpi(
    context: RankContext,
    environment: Mapping[str, str],
    run: Callable[[Mapping[str, str], Callable[[int], None]], int],
    *,
    grace_s: float = 30.0,
) -> int:
    """Run this rank's process of an MPI job; every rank of the gang has to call it.

    `run` is called with all variables of the program, those of Open MPI among them, and with a
    function that wants to hear the number of its process when it has started; it returns how that
    ended, as `subprocess` says it, and so does this. `grace_s` are seconds between SIGTERM and
    SIGKILL, for a program whose job has broken off.

    Raises:
        InputError: There is no Open MPI here.
        MpiError: It did not start the job, or came to an end before the job did.
        PeerLostError: The job has broken off, because of another rank.
    """
    with _MpiRank(context, environment, grace_s) as rank:
        return rank.end(run(rank.environment, rank.watch))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What each rank tells the others before the job starts."""

    node: int
    address: str
    socket: str
    """Where the stub of this rank finds it; a path on its machine."""
    version: str
    """Of Open MPI."""
    machine: str
    cores: int


class _MpiRank:
    def __init__(
        self, context: RankContext, environment: Mapping[str, str], grace_s: float
    ) -> None:
        self._context = context
        self._given = environment
        self._grace_s = grace_s
        self._daemon: _Daemon | None = None
        self._watcher: threading.Thread | None = None
        self._broke_off = False
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="mpi-", dir=self._context.scratch_directory, ignore_cleanup_errors=True
                )
            )
            # Before the folder is removed, in which it has its files.
            stack.callback(self._end_daemon)
            listener = stack.enter_context(_listen(self._folder))
            places = self._tell_places(find_open_mpi(self._given.get("PATH")).version)
            mine = places[self._context.rank]
            address = mine.address if len({place.node for place in places}) > 1 else ""
            self._start_daemon(listener, places, address)
            joined = self._accept(listener, "its process")
            self._stub: socket.socket = stack.enter_context(joined.connection)
            neighbours = [place for place in places if place.machine == mine.machine]
            self.environment = program_environment(
                self._given,
                joined.content["environment"],
                address,
                self._folder,
                is_crowded=len(neighbours) > mine.cores,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def watch(self, pid: int) -> None:
        """Have the program ended when the job breaks off."""
        # When the job breaks off, the number may be that of another process.
        program = os.pidfd_open(pid)
        self._watcher = threading.Thread(target=self._watch, args=(program,), daemon=True)
        self._watcher.start()

    def end(self, code: int) -> int:
        """Tell Open MPI how the program has ended, and return that when the rank may end as well.

        The first rank of a node stays until all processes of its node have ended, rank 0 until all
        of the job have, since mpirun and the daemons end with them.
        """
        if self._watcher is not None:
            self._watcher.join()
        if self._broke_off:
            raise self._describe_end()
        with contextlib.suppress(OSError):
            self._stub.sendall(b"%d\n" % code)
        if code == 0 and self._daemon is not None:
            self._daemon.process.wait()
            if self._daemon.process.returncode:
                raise self._describe_end()
        return code

    def _tell_places(self, version: str) -> list[_Place]:
        context = self._context
        place = _Place(
            node=context.node_rank,
            address=context.addresses[context.rank][0],
            socket=os.path.join(self._folder, _SOCKET),
            version=version,
            # By what the kernel says: containers of one machine have host names of their own.
            machine=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            cores=len(os.sched_getaffinity(0)),
        )
        gathered = context.all_gather(json.dumps(asdict(place)).encode())
        places = [_Place(**json.loads(one)) for one in gathered]
        other = next((rank for rank, one in enumerate(places) if one.version != version), None)
        if other is not None:
            raise MpiError(
                f"Rank {context.rank} has Open MPI {version} and rank {other} has "
                f"{places[other].version}: install the same one on all workers."
            )
        return places

    def _start_daemon(self, listener: socket.socket, places: list[_Place], address: str) -> None:
        """Start what this rank is to start: mpirun, the daemon of its node, or nothing."""
        rank, node = self._context.rank, self._context.node_rank
        of_node = {r: place.socket for r, place in enumerate(places) if place.node == node}
        variables = {
            "PARTWISE_MPI_PYTHON": sys.executable,
            "PARTWISE_MPI_STUB": mpi_stub.__file__,
            mpi_stub.RANKS_VARIABLE: json.dumps(of_node),
            mpi_stub.LAUNCH_VARIABLE: os.path.join(self._folder, _SOCKET),
        }
        daemon_variables = daemon_environment(self._given, address, self._folder, variables)
        self._write_launcher()
        commands: dict[str, str] = {}
        try:
            if rank == 0:
                counts = [sum(p.node == n for p in places) for n in range(places[-1].node + 1)]
                self._daemon = _Daemon("mpirun", mpirun_words(counts), daemon_variables)
                while len(commands) < len(counts) - 1:
                    message = self._accept(listener, "the commands of its daemons")
                    commands[message.content["host"]] = message.content["command"]
                    message.connection.close()
        finally:
            # Also where that failed: the others wait.
            gathered = self._context.all_gather(json.dumps(commands).encode())[0]
        commands = json.loads(gathered)
        if node > 0 and rank == min(of_node):
            if node_host(node) not in commands:
                raise PeerLostError(f"Rank {rank} got no command to start its part of MPI.")
            # Without a shell in between, it can be seen how the daemon ends.
            command = commands[node_host(node)].strip()
            command = f"exec {command}" if command.startswith("orted ") else command
            words = ["/bin/sh", "-c", command]
            self._daemon = _Daemon(f"daemon of node {node}", words, daemon_variables)

    def _write_launcher(self) -> None:
        stub = shlex.join([sys.executable, "-I", "-S", mpi_stub.__file__, "launch"])
        path = Path(self._folder, LAUNCH_PROGRAM)
        path.write_text(f'#!/bin/sh\nexec {stub} "$@"\n')
        path.chmod(0o700)

    def _accept(self, listener: socket.socket, what: str) -> "_Message":
        """Wait for the next message of a stub, and for nothing where the daemon has ended."""
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                content = _read_line(connection, deadline)
                if content is not None:
                    return _Message(content, connection)
                connection.close()
            if self._daemon is not None and self._daemon.process.poll() is not None:
                raise self._describe_end()
            if time.monotonic() > deadline:
                wrote = self._daemon.tail() if self._daemon else ""
                raise MpiError(
                    f"Rank {self._context.rank} waited {START_S:.0f} s for Open MPI to start "
                    f"{what}, in vain. Its nodes have to reach each other on all ports, at the "
                    "addresses that their workers have in Dask, and nobody else may connect to "
                    f"these ports: Open MPI lets whoever comes keep it waiting.{wrote}"
                )

    def _watch(self, program: int) -> None:
        watched: list[Any] = [program, self._stub]
        if self._daemon is not None:
            watched.append(self._daemon.ended)
        try:
            if program in wait(watched) or wait([program], SETTLE_S):
                return
            # The stub has reported that, or it is gone: Open MPI is about to end all processes. It
            # waits for the stub.
            self._broke_off = True
            with contextlib.suppress(OSError):
                self._stub.shutdown(socket.SHUT_RDWR)
            signal.pidfd_send_signal(program, signal.SIGTERM)
            if not wait([program], self._grace_s):
                signal.pidfd_send_signal(program, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(program)

    def _describe_end(self) -> MpiError | PeerLostError:
        """Return what is to be said of a job that has broken off."""
        rank = self._context.rank
        if self._daemon is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # It says why it ends the job when it has done so.
                self._daemon.process.wait(REASON_S)
            code = self._daemon.process.returncode
            if code is not None and (code < 0 or not self.environment):
                return MpiError(
                    f"Open MPI's {self._daemon.name}, below rank {rank}, ended before the job had: "
                    f"{describe_exit(code)}.{self._daemon.tail()}"
                )
        wrote = self._daemon.tail() if self._daemon else ""
        return PeerLostError(
            f"The MPI process of rank {rank} was ended, as another one of the job had ended.{wrote}"
        )

    def _end_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()


@dataclass(frozen=True, slots=True)
class _Message:
    content: Any
    connection: socket.socket


_SOCKET = "rank"


def _read_line(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """Return the message of a stub; None: who connected is none, or did not end it in time."""
    # A limit of the socket alone would hold for each byte.
    left_s = max(0.0, deadline - time.monotonic())
    limit = threading.Timer(left_s, connection.shutdown, (socket.SHUT_RDWR,))
    limit.start()
    try:
        with connection.makefile("rb") as lines:
            content = json.loads(lines.readline(LARGEST_MESSAGE_BYTES))
        return content if isinstance(content, dict) else None
    except (OSError, ValueError):
        return None
    finally:
        limit.cancel()


def _listen(folder: str) -> socket.socket:
    """Return a socket that listens in a folder, which only this user may enter."""
    listener = socket.socket(socket.AF_UNIX)
    descriptor = os.open(folder, os.O_PATH)
    try:
        # The path itself may be too long for an address.
        listener.bind(f"/proc/self/fd/{descriptor}/{_SOCKET}")
        listener.listen(128)
        listener.settimeout(LOOK_S)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(descriptor)
    return listener


class _Daemon:
    """mpirun, or the daemon of another node: what it writes goes to the log of the rank."""

    def __init__(self, name: str, words: list[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._tail = b""
        self.process = subprocess.Popen(  # noqa: S603 (our own words, or those of mpirun)
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.ended = os.pidfd_open(self.process.pid)
        self._copier = threading.Thread(target=self._copy, daemon=True)
        self._copier.start()

    def _copy(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 (a pipe was asked for)
        while content := os.read(self.process.stdout.fileno(), 64 << 10):
            self._tail = (self._tail + content)[-_HELD_BYTES:]
            os.write(2, content)

    def tail(self) -> str:
        """Return the end of what it wrote, as the end of a message of one line."""
        self._copier.join(LOOK_S)
        lines = self._tail.decode(errors="replace").splitlines()
        # Its paragraphs stand between lines of dashes.
        text = " ".join(line.strip() for line in lines if line.strip("- "))
        return f" It wrote: {without_secrets(text)[-TAIL_BYTES:]}" if text else ""

    def kill(self) -> None:
        """End it, where it still runs."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._copier.join(LOOK_S)
        os.close(self.ended)
