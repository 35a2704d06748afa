"""`partwise up`, `down` and `deploy`: a Prefect server and worker here, and deployments."""

import functools
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from partwise.errors import InputError, PartwiseError, ServiceError
from partwise.flows.cli import output
from partwise.flows.operations import services as local_services
from partwise.flows.operations.services import Role, Services, answers

if TYPE_CHECKING:
    import subprocess

    from partwise.flows.operations.deploy import Deployed, ProjectFile

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
Port = Annotated[int | None, Parameter(env_var="PARTWISE_PORT")]


def deploy(*, pool: str | None = None, pool_type: str | None = None) -> int:
    """Deploy this folder's prefect.yaml to a Prefect server, or update what was deployed.

    Registers partwise's blocks, creates work pools that are missing, deploys everything, and keeps
    the automation that marks dead flow runs as crashed. Twice does no harm.

    Args:
        pool: A work pool in which to make the deployments as well that nothing starts by itself,
            each as NAME-POOL. Default: all of them, where prefect.yaml says.
        pool_type: Of a work pool that is not there yet: process, docker, kubernetes. Default:
            process.
    """
    folder = Path.cwd()
    from partwise.flows.cli.prefect_log import quieten
    from partwise.flows.operations.deploy import begun_deploy, read_project, register

    quieten()
    project = read_project(folder, pool)
    api_url = _named_server()
    running = Services.read(folder)
    if api_url is None and running is not None:
        api_url = running.api_url
    if api_url is None:
        raise InputError(
            "No Prefect server is named: set PREFECT_API_URL, or start one with `partwise up`."
        )
    if not answers(api_url):
        raise ServiceError(f"No answer from the Prefect server at {api_url}: is it running?")
    with (
        _password_known(local_services.password_of(folder, api_url)),
        begun_deploy(project, api_url) as begun,
    ):
        kinds = register(project, api_url, pool_type)
        _deploy(project, api_url, kinds, begun, keeps_schedules=False)
    if project.left:
        names = ", ".join(sorted(set(project.left)))
        output.print_line(f"not in {pool}    {names}: a schedule or event starts it")
    return 0


def up(*, port: Port = None) -> int:
    """Start a Prefect server and a worker on this machine, and deploy this folder's prefect.yaml.

    They go on when the terminal is closed, with logs in .partwise/; `partwise down` ends them. A
    server that answers at PREFECT_API_URL is used in place of one of our own. Beside our own, the
    reports of runs are served, at the next free port, for the links in its UI.

    Args:
        port: Where the server listens, on 127.0.0.1. Default: 4200, or that of PREFECT_API_URL.
    """
    folder = Path.cwd()
    from partwise.flows.cli.prefect_log import quieten
    from partwise.flows.operations.deploy import begun_deploy, read_project, register

    quieten()
    project = read_project(folder)
    if len(project.pools) > 1:
        raise InputError(
            f"prefect.yaml names {len(project.pools)} work pools: {', '.join(project.pools)}. "
            "`partwise up` starts one worker; start yours with `prefect worker start`."
        )
    with local_services.locked(folder):
        before = Services.read(folder)
        running = _still_running(before, port)
        services = running or _plan(port)
        url = services.api_url
        secret = local_services.password(folder) if services.owns_server else None
        try:
            # Each of these four takes seconds to begin, and most of that is work of its own.
            with _password_known(secret), begun_deploy(project, url) as begun:
                services = _start_server(folder, services)
                services = _start_reports(folder, services)
                _await_servers(folder, services)
                kinds = register(project, url, None)
                [(pool, kind)] = kinds.items()
                services, is_at_work = _start_worker(folder, services, pool, kind)
                deployed = _deploy(project, url, kinds, begun, keeps_schedules=True)
                limit_s = local_services.WORKER_START_S
                local_services.await_health(folder, services, "worker", is_at_work, limit_s)
        except BaseException as error:
            _undo(folder, running)
            for note in getattr(error, "__notes__", []):
                output.tell(note)
            raise
    _print_where(
        services, deployed, was_there=running is not None and running.pids == services.pids
    )
    return 0


def down() -> int:
    """End the server and the worker that `partwise up` started in this folder, and nothing else.

    Flow runs at work are cancelled: what they have committed stays, and a later one resumes it.
    """
    folder = Path.cwd()
    if not (folder / local_services.FOLDER).is_dir():
        output.print_line(f"Nothing was started in {folder}.")
        return 0
    with local_services.locked(folder):
        services = Services.read(folder)
        if services is None:
            output.print_line("Nothing is running that `partwise up` started here.")
            return 0
        _end(folder, services)
        named = os.environ.get("PREFECT_API_URL", "").rstrip("/")
        if services.owns_server and named == services.api_url:
            # A call of a flow from Python would end with Prefect's error that it cannot be reached.
            forget = "unset PREFECT_API_URL PREFECT_API_AUTH_STRING"
            output.print_line(f"next: {forget}  (they name the server that has ended)")
    return 0


@contextmanager
def _password_known(secret: str | None) -> Iterator[None]:
    """Have Prefect's clients show a password meanwhile; None: what they show otherwise."""
    from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

    with temporary_settings(updates={PREFECT_API_AUTH_STRING: secret} if secret else {}):
        yield


def _named_server() -> str | None:
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    return None if url is None else str(url).rstrip("/")


def _still_running(before: Services | None, port: int | None) -> Services | None:
    """Return what is left of an earlier start, if any of it is alive."""
    if before is None or not any(before.is_alive(role) for role in before.pids):
        return None
    ours = urlsplit(before.api_url).port
    if port is not None and port != ours:
        raise ServiceError(
            f"It runs here already, with the server at {before.api_url}: `partwise down` ends it."
        )
    return before


def _plan(port: int | None) -> Services:
    """Decide which server to use: that of PREFECT_API_URL, or one of our own."""
    named = _named_server()
    if named is not None and port is None:
        if answers(named):
            return Services.plan(named, owns_server=False)
        parts = urlsplit(named)
        if parts.hostname not in LOOPBACK_NAMES:
            raise ServiceError(
                f"No answer from the Prefect server at {named}, which PREFECT_API_URL or the "
                "profile names: start it, or unset the setting to have a server here."
            )
        # The user has set the address of our own server, so that other commands find it.
        port = parts.port
    port = port or local_services.DEFAULT_PORT
    local_services.check_port(port)
    return Services.plan(f"http://{local_services.LOOPBACK}:{port}/api", owns_server=True)


def _start_server(folder: Path, services: Services) -> Services:
    if not services.owns_server or services.is_alive("server"):
        return services
    port = urlsplit(services.api_url).port or local_services.DEFAULT_PORT
    # What a server that has died has left behind may hold the port.
    local_services.end_server(services)
    local_services.check_port(port)
    output.tell(f"starting Prefect's server at http://{local_services.LOOPBACK}:{port}")
    words = ["--host", local_services.LOOPBACK, "--port", str(port)]
    return local_services.start(folder, services, "server", words)


def _start_reports(folder: Path, services: Services) -> Services:
    """Start what serves reports, beside a server of our own, whose password signs the links."""
    if not services.owns_server or services.is_alive("reports"):
        return services
    local_services.end_server(services, "reports")
    port = urlsplit(services.api_url).port or local_services.DEFAULT_PORT
    url = f"http://{local_services.LOOPBACK}:{local_services.free_port(port + 1)}"
    services = services.model_copy(update={"reports_url": url})
    return local_services.start(folder, services, "reports", [url])


def _await_servers(folder: Path, services: Services) -> None:
    """Wait until our server, if it is ours, answers, and that of the reports."""
    waits: tuple[tuple[Role, str | None, float], ...] = (
        ("server", services.api_url, local_services.SERVER_START_S),
        ("reports", services.reports_url, local_services.WORKER_START_S),
    )
    for role, url, limit_s in waits:
        if role in services.pids and url is not None:
            healthy = functools.partial(answers, url)
            local_services.await_health(folder, services, role, healthy, limit_s)


def _start_worker(
    folder: Path, services: Services, pool: str, kind: str
) -> tuple[Services, Callable[[], bool]]:
    """Start a worker, and return what says whether it is at work."""
    from partwise.flows.operations.deploy import free_flow_runs, last_heartbeat

    if services.is_alive("worker"):
        return services, lambda: True
    if kind != "process":
        raise ServiceError(
            f"The work pool {pool!r} is of type {kind}, and `partwise up` starts a worker for "
            f"processes: start yours with `prefect worker start --pool {pool}`."
        )
    output.tell(f"starting a worker for the work pool {pool}")
    name = re.sub(r"[^\w.-]", "-", f"{socket.gethostname()}-{folder.resolve().name}")
    # A process that the worker before has left may be about to begin one of them.
    if not services.processes("worker"):
        for flow_run in free_flow_runs(services.api_url, pool, name):
            output.tell(f"flow run {flow_run} waits again, which a worker had taken and not begun")
    # A worker of this name may have been here before: only a newer heartbeat is of this one.
    before = last_heartbeat(services.api_url, pool, name)
    words = ["--pool", pool, "--type", "process", "--name", name]
    services = local_services.start(folder, services, "worker", words)
    return services, lambda: last_heartbeat(services.api_url, pool, name) not in (None, before)


def _undo(folder: Path, running: Services | None) -> None:
    """End what a start that failed has started, and leave what was there before."""
    with suppress(PartwiseError):
        started = Services.read(folder)
        if started is None:
            return
        if running is None:
            output.tell("ending what was started")
            _end(folder, started, prints=False)
            return
        for role, pid in started.pids.items():
            if running.pids.get(role) != pid:
                if role == "worker":
                    local_services.end_worker(started)
                else:
                    local_services.end_server(started, role)
        running.write(folder)


def _end(folder: Path, services: Services, *, prints: bool = True) -> None:
    from partwise.flows.cli.prefect_log import quieten
    from partwise.flows.operations.deploy import end_flow_runs

    quieten()
    was_alive = {role: services.is_alive(role) for role in services.pids}
    # The worker first, and the server last, which is to hear how its flow runs have ended.
    flow_run_ids = local_services.end_worker(services)
    if flow_run_ids:
        try:
            with _password_known(local_services.password_of(folder, services.api_url)):
                for line in end_flow_runs(services.api_url, flow_run_ids):
                    output.print_line(f"flow run {line}")
        except ServiceError as error:
            output.tell(f"warning: {error}")
    local_services.end_server(services, "reports")
    local_services.end_server(services)
    # Last: were this interrupted, another `down` would find by it what is left.
    (folder / local_services.FOLDER / "services.json").unlink(missing_ok=True)
    for role, alive in was_alive.items():
        if prints:
            output.print_line(f"{role}: {'ended' if alive else 'was gone already'}")


def _deploy(
    project: "ProjectFile",
    api_url: str,
    kinds: Mapping[str, str],
    begun: "subprocess.Popen[str]",
    *,
    keeps_schedules: bool,
) -> "list[Deployed]":
    from partwise.flows.operations.automations import CRASH_AUTOMATION
    from partwise.flows.operations.deploy import deploy
    from partwise.flows.operations.notifications import save_notifications

    output.tell(f"deploying {len(project.deployments)} deployments to {api_url}")
    done = deploy(project, api_url, kinds, begun, keeps_schedules=keeps_schedules)
    rows = [(one.name, "; ".join(one.started_by) or "on demand") for one in done]
    output.print_table(("deployment", "started by"), rows)
    output.print_line(f"automation  {CRASH_AUTOMATION}")
    # Of what is on demand somebody sees the end who began it.
    told_of = [one.id for one in done if one.started_by]
    for line in save_notifications(
        project.notifications, told_of, api_url, keeps_switches=keeps_schedules
    ):
        output.print_line(f"notify  {line}")
    for sentence in (sentence for one in done for sentence in one.awaits_unknown):
        output.tell(f"warning: {sentence}")
    return done


def _print_where(services: Services, deployed: "list[Deployed]", *, was_there: bool) -> None:
    """Print where server and logs are, and what to do next."""
    ui = services.api_url.removesuffix("/api")
    state = "runs already" if was_there else "is up"
    owner = "" if services.owns_server else " (not ours: `partwise down` leaves it)"
    output.print_line(f"\nPrefect {state} at {ui}{owner}; logs in {local_services.FOLDER}/")
    hints = []
    if services.owns_server:
        file = f"{local_services.FOLDER}/{local_services.PASSWORD}"
        hints.append((f"cat {file}", "the password that the UI asks for"))
    if os.environ.get("PREFECT_API_URL", "").rstrip("/") != services.api_url:
        hints.append((f"export PREFECT_API_URL={services.api_url}", "so that others find it"))
    if services.owns_server:
        words = f'export PREFECT_API_AUTH_STRING="$(cat {file})"'
        hints.append((words, "so that `prefect` may enter; `partwise` may, in this folder"))
        words = f'curl -u "$(cat {file})" {services.reports_url}/metrics'
        hints.append((words, "what happens here, for Prometheus"))
    # What something starts by itself has all its parameters.
    started = next((one.name for one in deployed if one.started_by), None)
    if started is not None:
        hints.append((f"prefect deployment run {started}", "or Quick run in the UI"))
    hints.append(("partwise down", "ends what was started"))
    width = max(len(command) for command, _ in hints)
    for command, why in hints:
        output.print_line(f"  {command:<{width}}  ({why})")
