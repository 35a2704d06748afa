"""Prefect's server, a worker, and reports on this machine: started, found again, ended for certain.

Each process that is started has a mark in its environment. All its children inherit the mark, also
one whose parent has died or that has a session of its own. A process is ours when it has the mark:
its ID alone is not proof, as the machine may have been booted, or the ID been used again.

`prefect server start --background` is not used (Prefect 3.8): it keeps one PID file for all of
PREFECT_HOME, so that two projects cannot each have a server; it connects the server's output to a
pipe that nobody reads, so that there is no log; and `prefect server stop` ends any process that has
the PID by then, without waiting for its end.
"""

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from partwise.errors import ServiceError
from partwise.mistakes import refused_format
from partwise.processes import family
from partwise.reports.links import REPORTS_URL
from partwise.tasks.flow_run import FLOW_RUN_ID

Role = Literal["server", "reports", "worker"]

FOLDER = ".partwise"
MARK = "PARTWISE_SERVICE"
PASSWORD = "password"  # noqa: S105 (a file's name)
"""The file in `.partwise` with the password of our own server."""
OWNER_ONLY = 0o077
"""The umask of what only its owner may read."""
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 4200
PORTS_TRIED = 10
# On a fresh database Prefect's server took 15 s on an idle machine.
SERVER_START_S = 180.0
WORKER_START_S = 120.0
SERVICE_STOP_S = 10.0
WORKER_STOP_S = 25.0
"""To cancel a run takes up to ten seconds, and then its Dask cluster is closed."""
ANSWER_TIMEOUT_S = 3.0
POLL_S = 0.1
TAIL_LINES = 20

_WANTED = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "true",
    # Default events: flow runs with their logs and artifacts would stay for ever, and not 90 days.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    # Default 10 s: for so long a flow run may wait that somebody has asked for.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Default 180 s: a dead flow run would seem alive for minutes.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
"""Settings of what we start, where the environment says nothing else."""

_PROGRAMS: Mapping[Role, tuple[str, ...]] = {
    "server": ("partwise.flows.operations.prefect_server", "--no-prompt", "server", "start"),
    "reports": ("partwise.flows.operations.report_server",),
    "worker": ("prefect", "--no-prompt", "worker", "start"),
}
"""Module and first arguments of each."""

_OF_DATABASE = ("PREFECT_SERVER_DATABASE", "PREFECT_API_DATABASE")
"""How the names begin of settings that flow runs need not see: they may hold a password."""


class Services(BaseModel):
    """What `up` started in a folder, as `.partwise/services.json` keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    mark: str
    """In the environment of all that was started, and of nothing else in the world."""
    api_url: str
    owns_server: bool
    """False: the server was there before us, and is not ours to end."""
    reports_url: str | None = None
    """Where the reports of runs are served, for links in the UI of our own server."""
    pids: dict[Role, int] = {}
    """The first process of each."""

    @classmethod
    def plan(cls, api_url: str, *, owns_server: bool) -> Self:
        """Describe what is about to be started."""
        return cls(mark=secrets.token_hex(16), api_url=api_url, owns_server=owns_server)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what was started in a folder and not ended; None: nothing."""
        path = folder / FOLDER / "services.json"
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            number = refused_format(error) if isinstance(error, ValidationError) else ""
            raise ServiceError(
                f"{path} cannot be read ({type(error).__name__}){number}: end what runs there by "
                "hand (`ps x | grep prefect`), and delete the file."
            ) from error

    def write(self, folder: Path) -> None:
        """Keep it, in place of what was kept before."""
        _write_private(folder / FOLDER / "services.json", self.model_dump_json(indent=2) + "\n")

    def processes(self, role: Role) -> list[psutil.Process]:
        """Return the processes of a service, and all that they started, wherever they went."""
        wanted = f"{self.mark}-{role}"
        return [
            process
            for process in psutil.process_iter()
            if environment_of(process.pid).get(MARK) == wanted
        ]

    def is_alive(self, role: Role) -> bool:
        """Whether the first process of a service is there, and the very one that was started."""
        pid = self.pids.get(role)
        if pid is None:
            return False
        return environment_of(pid).get(MARK) == f"{self.mark}-{role}"


def environment_of(pid: int) -> Mapping[str, str]:
    """Return a process' environment; empty where it is gone, or somebody else's."""
    try:
        variables = os.fsdecode(family.environment_of(pid)).split("\0")
    except OSError:
        return {}
    return dict(variable.split("=", 1) for variable in variables if "=" in variable)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one that starts or ends services in a folder."""
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    _close_to_others(folder / FOLDER)
    with open(folder / FOLDER / "lock", "w", opener=owner_only) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(
                f"Another `partwise up` or `partwise down` is at work in {folder}: wait for it."
            ) from None
        yield


def owner_only(path: str, flags: int) -> int:
    """Open a file that is made so that only its owner may read it; `open` takes it as `opener`."""
    return os.open(path, flags, mode=0o600)


def _close_to_others(folder: Path) -> None:
    """Take the rights of other users away: an older `partwise up` left them."""
    folder.chmod(0o700)
    # Who has opened the folder before can still reach what is in it.
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode & ~OWNER_ONLY)


def password(folder: Path) -> str:
    """Return the password of a folder's own server, which is made when it is first asked for.

    It is what Prefect calls an authentication string, a name and a secret. It stays the same when
    the server is started again, so that browsers and terminals that know it go on.
    """
    path = folder / FOLDER / PASSWORD
    # An empty one, of an earlier release on a full disk, is none: everybody would know it.
    with suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    made = f"partwise:{secrets.token_urlsafe(24)}"
    _write_private(path, f"{made}\n")
    return made


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all, over what was there."""
    temporary = path.with_suffix(".new")
    with open(temporary, "w", opener=owner_only) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def password_of(folder: Path, api_url: str) -> str | None:
    """Return the password of the server at a URL, if `up` started it in this folder."""
    services = Services.read(folder)
    if services is None or not services.owns_server or api_url.rstrip("/") != services.api_url:
        return None
    with suppress(OSError):
        return (folder / FOLDER / PASSWORD).read_text().strip() or None
    return None


def start(folder: Path, services: Services, role: Role, words: list[str]) -> Services:
    """Start a service away from this terminal, its output in `.partwise/<role>.log`.

    `services` are written down before and after, so that no process is started without a record;
    with the new one, they are returned.
    """
    services.write(folder)
    log = log_path(folder, role)
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    # To be appended to: it may be cut (`service_logs`).
    with open(log, "ab", opener=owner_only) as out:
        process = subprocess.Popen(  # noqa: S603 (our own arguments)
            [sys.executable, "-m", *_PROGRAMS[role], *words],
            cwd=folder,
            env=_environment(folder, services, role),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            # Neither Ctrl-C in this terminal nor its end may reach the service.
            start_new_session=True,
            # Prefect's database holds blocks, and the key that they are encrypted with. What flow
            # runs write is the user's.
            umask=-1 if role == "worker" else OWNER_ONLY,
        )
    # It outlives this process, and is found by its mark: there is nothing to wait for.
    process.returncode = 0
    started = services.model_copy(update={"pids": {**services.pids, role: process.pid}})
    started.write(folder)
    return started


def _environment(folder: Path, services: Services, role: Role) -> dict[str, str]:
    environment = {**_WANTED, **os.environ}
    environment["PREFECT_API_URL"] = services.api_url
    environment[MARK] = f"{services.mark}-{role}"
    if services.owns_server:
        environment |= _closed(services.api_url, password(folder))
    if services.reports_url is not None:
        environment[REPORTS_URL] = services.reports_url
    if role != "server":
        for name in [name for name in environment if name.startswith(_OF_DATABASE)]:
            del environment[name]
    elif not any(name.startswith(_OF_DATABASE) for name in environment):
        database = (folder / FOLDER / "prefect.db").resolve()
        environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{database}"
    return environment


def _closed(api_url: str, secret: str) -> dict[str, str]:
    """Return the settings by which a server answers to nobody but those who know its password.

    By its defaults it answers everyone on the machine, and every web page that a browser shows
    here. Prefect does not look at the Host header, so a page whose name resolves to 127.0.0.1 is of
    the server's own origin for a browser; it does not know the password either.
    """
    ui = api_url.removesuffix("/api")
    return {
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "PREFECT_API_AUTH_STRING": secret,
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": f"{ui},{ui.replace(LOOPBACK, 'localhost')}",
    }


def await_health(
    folder: Path, services: Services, role: Role, healthy: Callable[[], bool], timeout_s: float
) -> None:
    """Wait until a service that was started is at work."""
    deadline = time.monotonic() + timeout_s
    # First whether it is alive: what answers may be another that was quicker to take the port.
    while (ended := not _is_there(services.pids[role])) or not healthy():
        if ended or time.monotonic() > deadline:
            what = "ended as it started" if ended else f"did not answer within {timeout_s:.0f} s"
            owner = "The server of" if role == "reports" else "Prefect's"
            error = ServiceError(f"{owner} {role} {what}: see {log_path(folder, role)}.")
            error.add_note(tail(folder, role))
            raise error
        time.sleep(POLL_S)


def _is_there(pid: int) -> bool:
    # While we are its parent, its ID is not used again before we wait for it.
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return bool(psutil.pid_exists(pid))


def log_path(folder: Path, role: Role) -> Path:
    """Return the log file of a service."""
    return folder / FOLDER / f"{role}.log"


def tail(folder: Path, role: Role) -> str:
    """Return the last lines of a service's log."""
    try:
        lines = log_path(folder, role).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-TAIL_LINES:])


def answers(url: str) -> bool:
    """Whether anything answers below a URL, as Prefect's API does; a refusal is an answer."""
    import httpx  # here, since `partwise up --help` can do without

    try:
        # To read the machine's certificates takes 20 ms, and asking goes on while a server starts.
        has_tls = url.startswith("https")
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_TIMEOUT_S, verify=has_tls)
    # An address that is none raises what is no HTTPError.
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return False
    return True


def check_port(port: int) -> None:
    """See that a server can listen on a port of this machine."""
    with socket.socket() as listener:
        # As the server does: a port whose last connections are fading out is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            return
        except OverflowError:
            raise ServiceError(f"There is no port {port}: give one from 1024 to 65535.") from None
        except PermissionError:
            raise ServiceError(f"Port {port} is for root only: give one above 1023.") from None
        except OSError:
            owner = _listener(port)
    raise ServiceError(
        f"Port {port} is taken by {owner}: end that, choose another port with --port (make: "
        f"PORT=...), or, if it is a Prefect server, use it with "
        f"PREFECT_API_URL=http://{LOOPBACK}:{port}/api."
    )


def free_port(first: int) -> int:
    """Return the first port from one on at which a server can listen."""
    for port in range(first, first + PORTS_TRIED):
        with suppress(ServiceError):
            check_port(port)
            return port
    raise ServiceError(
        f"None of the ports {first} to {first + PORTS_TRIED - 1} is free, of which the reports of "
        "runs need one: choose another port with --port (make: PORT=...)."
    )


def _listener(port: int) -> str:
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status != psutil.CONN_LISTEN or not address or address.port != port:
                continue
            if connection.pid is not None:
                words = " ".join(psutil.Process(connection.pid).cmdline()[:4])
                return f"process {connection.pid} ({words})"
    return "another program"


def flow_runs_at_work(services: Services) -> dict[str, list[psutil.Process]]:
    """Return the flow runs that the worker started, and each one's processes."""
    found: dict[str, list[psutil.Process]] = {}
    for process in services.processes("worker"):
        if flow_run_id := environment_of(process.pid).get(FLOW_RUN_ID):
            found.setdefault(flow_run_id, []).append(process)
    return found


def end_worker(services: Services) -> set[str]:
    """End the worker and its flow runs: they may cancel their work first, then they are killed.

    Returned are the IDs of the flow runs that were at work, whether they ended in order or not.
    """
    first = _first(services, "worker")
    for process in first:
        # A worker that is asked to end kills its flow runs, and one that is not takes new ones.
        with suppress(psutil.Error):
            process.suspend()
    try:
        seen = _end_flow_runs(services)
    finally:
        for process in first:
            with suppress(psutil.Error):
                # In this order: it meets the signal before it can take another flow run.
                process.terminate()
                process.resume()
    _await_end(services, "worker")
    return seen


def _end_flow_runs(services: Services) -> set[str]:
    seen: set[str] = set()
    asked: set[int] = set()
    deadline = time.monotonic() + WORKER_STOP_S
    while flow_runs := flow_runs_at_work(services):
        seen |= flow_runs.keys()
        for processes in flow_runs.values():
            if time.monotonic() > deadline:
                _kill(processes)
                continue
            # The one that knows in which order the others have to end; a second signal would mean
            # to end at once.
            process = _uppermost(processes)
            if process.pid not in asked:
                asked.add(process.pid)
                with suppress(psutil.Error):
                    process.terminate()
        time.sleep(POLL_S)
    return seen


def end_server(services: Services, role: Role = "server") -> None:
    """End the server, or the one of the reports, if it is ours."""
    for process in _first(services, role):
        with suppress(psutil.Error):
            process.terminate()
    _await_end(services, role)


def _await_end(services: Services, role: Role) -> None:
    """Wait until a service and all that it started is gone; kill what is left of it."""
    deadline = time.monotonic() + SERVICE_STOP_S
    while processes := services.processes(role):
        # Once its first process has gone, nobody ends the others in order.
        if time.monotonic() > deadline or not services.is_alive(role):
            _kill(processes)
        time.sleep(POLL_S)


def _first(services: Services, role: Role) -> list[psutil.Process]:
    if not services.is_alive(role):
        return []
    with suppress(psutil.Error):
        return [psutil.Process(services.pids[role])]
    return []


def _uppermost(processes: list[psutil.Process]) -> psutil.Process:
    pids = {process.pid for process in processes}
    for process in processes:
        with suppress(psutil.Error):
            if process.ppid() not in pids:
                return process
    return processes[0]


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=1)
