"""Registering partwise on a Prefect server: block types, work pools, deployments, an automation.

All of it may be repeated: what is there already is updated, and nothing is there twice.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.blocks.core import Block
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowFilter,
    FlowFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import DeploymentSchedule, State, StateType, WorkerStatus
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_AUTH_STRING
from prefect.states import Cancelled, Crashed, Scheduled
from prefect.workers.utilities import get_default_base_job_template_for_infrastructure_type

from partwise.blocks.mail import SmtpMail
from partwise.blocks.saved import BLOCKS
from partwise.errors import InputError, ServiceError
from partwise.flows.operations.automations import OURS, crash_automation, save_automation
from partwise.flows.operations.notifications import Notification, notifications_of
from partwise.flows.operations.project_file import deployments_of, pool_of
from partwise.flows.orchestration.announcement import DEPLOYMENT_LABEL
from partwise.flows.orchestration.server_client import every, server_client
from partwise.formatting import did_you_mean, shortened
from partwise.redaction import without_secrets
from partwise.scripts.infrastructure import CONTAINER_POOLS
from partwise.scripts.pool_template import extended

PROJECT_FILE = "prefect.yaml"
REGISTERED: tuple[type[Block], ...] = (*BLOCKS, SmtpMail)
"""All that partwise has: what is not registered cannot be created in the UI."""
PROCESS = "process"
"""The type of a work pool where nobody says another: its flow runs are processes of the worker."""
TAIL_LINES = 15
REFUSED = "refused the deployment"
_REFUSED = re.compile(
    r"Validation failed(?: for field '(.+?)')?\. Failure reason: (.+?)[\"'], "
    r"'input': \{'name': '(.+?)'"
)
"""In what Prefect prints, on a line that repeats the whole form: forty thousand characters."""
HAS_NO_END = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


@dataclass(frozen=True, kw_only=True)
class ProjectFile:
    """The part of a folder's prefect.yaml that partwise reads."""

    folder: Path
    document: Mapping[str, Any] = field(repr=False)
    pools: tuple[str, ...]
    """The work pools that its deployments are in."""
    notifications: tuple[Notification, ...] = ()
    left: tuple[str, ...] = ()
    """The deployments that stay where they are: something starts them, and would do so twice."""

    @property
    def deployments(self) -> list[dict[str, Any]]:
        """Its deployments."""
        return list(self.document["deployments"])


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A deployment, as it is printed."""

    name: str
    """Flow and deployment, such as train-models/nightly-train."""
    id: UUID
    started_by: tuple[str, ...]
    """Schedules with their state, and automations; empty: people and programs only."""
    awaits_unknown: tuple[str, ...] = ()
    """Sentences about deployments that its triggers name, and that the server does not have."""


def read_project(folder: Path, pool: str | None = None) -> ProjectFile:
    """Read a folder's prefect.yaml.

    `pool` is a work pool to deploy to in place of those that the file names.
    """
    path = folder / PROJECT_FILE
    try:
        document = yaml.safe_load(path.read_text())  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        raise InputError(
            f"There is no {PROJECT_FILE} in {folder.resolve()}: go to the folder of your project. "
            "`partwise init NAME` makes a project with one."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {error}") from error
    deployments = deployments_of(document, path)
    notifications = notifications_of(document)
    left: tuple[str, ...] = ()
    if pool is not None:
        there = [one for one in deployments if _can_be_in(one, pool)]
        left = tuple(one["name"] for one in deployments if not _can_be_in(one, pool))
        if not there:
            raise InputError(
                f"Every deployment of {path} is started by a schedule or an event, which would "
                f"start it in the pool {pool!r} as well: write that pool into the file."
            )
        document["deployments"] = deployments = [_in_pool(one, pool) for one in there]
    pools = set()
    for deployment in deployments:
        if (own := pool_of(deployment)) is None:
            raise InputError(
                f"{path}, deployment {deployment['name']!r} has no work_pool.name: write one, or "
                "give --pool."
            )
        pools.add(own)
    _check_once(deployments, path)
    return ProjectFile(
        folder=folder,
        document=document,
        pools=tuple(sorted(pools)),
        # They are of what something starts, which stays where it is when another pool is named.
        notifications=() if pool is not None else tuple(notifications),
        left=left,
    )


def _check_once(deployments: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse two deployments of one flow with one name, of which the server keeps the last."""
    places = [(one["entrypoint"].replace(":", "."), one["name"]) for one in deployments]
    for flow, name in places:
        if places.count((flow, name)) > 1:
            raise InputError(
                f"{path}: two deployments of {flow} would be called {name!r}, and the server keeps "
                "one: give each a name of its own."
            )


def _can_be_in(deployment: Mapping[str, Any], pool: str) -> bool:
    """Whether it is in the pool already, or nothing starts it that would then start two."""
    own = pool_of(deployment) or pool
    starts = ("schedule", "schedules", "triggers")
    return own == pool or not any(deployment.get(name) for name in starts)


def _in_pool(deployment: Mapping[str, Any], pool: str) -> dict[str, Any]:
    """Return a deployment as it is in a pool: beside the one in its own, under another name."""
    own = pool_of(deployment) or pool
    name = deployment["name"] if own == pool else f"{deployment['name']}-{pool}"
    # A copy: with YAML's anchors they all share one.
    work_pool = {**(deployment.get("work_pool") or {}), "name": pool}
    return {**deployment, "name": name, "work_pool": work_pool}


def register(project: ProjectFile, api_url: str, pool_type: str | None) -> dict[str, str]:
    """Register on a server what deployments need, and return the types of the work pools by name.

    `pool_type` is that of a work pool that is not there yet; None: process.
    """
    with server_client(api_url, REFUSED) as client:
        for block in REGISTERED:
            block.register_type_and_schema()
        return {name: create_pool(client, name, pool_type) for name in project.pools}


def deploy(
    project: ProjectFile,
    api_url: str,
    kinds: Mapping[str, str],
    begun: "subprocess.Popen[str]",
    *,
    keeps_schedules: bool,
) -> list[Deployed]:
    """Deploy a project to a server on which it is registered, by a deployment that has begun.

    With `keeps_schedules`, those that the server has stay on or off; else they are what the file
    says.
    """
    with server_client(api_url, REFUSED) as client:
        # Before: `prefect deploy` puts each schedule on or off as the file says.
        older = [
            schedule for deployment in _ours(client, project) for schedule in deployment.schedules
        ]
        _run_prefect_deploy(project, kinds, begun)
        deployed = _ours(client, project)
        if keeps_schedules:
            _restore_schedules(client, deployed, older)
            deployed = _ours(client, project)
        # A user who has switched it off had a reason.
        save_automation(client, crash_automation(), keeps_switch=True)
        of_flows = FlowFilter(id=FlowFilterId(any_=[one.flow_id for one in deployed]))
        names = {flow.id: flow.name for flow in every(client.read_flows, flow_filter=of_flows)}
        done = [_describe(client, one, names[one.flow_id]) for one in deployed]
        return [replace(one, awaits_unknown=_unknown(client, project, one, done)) for one in done]


def create_pool(client: SyncPrefectClient, name: str, kind: str | None) -> str:
    """Return the type of a work pool, which is created where there is none.

    Its template is Prefect's with variables for all of `Infrastructure`. One that a person has
    changed stays as it is.
    """
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        made = kind or PROCESS
        template = extended(_template(made), made)
        wanted = WorkPoolCreate(name=name, type=made, base_job_template=template)
        try:
            client.create_work_pool(wanted)
        except ObjectAlreadyExists:
            # A worker that starts makes the pool it is to serve, as does another deployment.
            pool = client.read_work_pool(name)
        else:
            return made
    if kind is not None and kind != pool.type:
        raise InputError(
            f"The work pool {name!r} is there already, and of type {pool.type}, not {kind}: give "
            "another name, or leave --pool-type out."
        )
    if pool.type in CONTAINER_POOLS and pool.base_job_template == (stock := _template(pool.type)):
        changed = WorkPoolUpdate(base_job_template=extended(stock, pool.type))
        client.update_work_pool(name, changed)
    return pool.type


def _template(kind: str) -> dict[str, Any]:
    template = asyncio.run(get_default_base_job_template_for_infrastructure_type(kind))
    if template is None:
        raise InputError(
            f"Prefect knows no work pool of type {kind!r}: `prefect work-pool create --help` "
            "names them; some need a package, such as prefect-docker."
        )
    return template


@contextmanager
def begun_deploy(project: ProjectFile, api_url: str) -> Iterator["subprocess.Popen[str]"]:
    """Start Prefect's own command, which waits until `deploy` names it a file.

    It has seconds of imports to do before it needs a server.
    """
    entrypoints = [str(one.get("entrypoint", "")) for one in project.deployments]
    process = subprocess.Popen(  # noqa: S603 (our own arguments)
        # As a module: the path of modules of a console script lacks the folder.
        [sys.executable, "-m", "partwise.flows.operations.prefect_deploy", *entrypoints],
        cwd=project.folder,
        env=_environment(api_url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            # It has ended, but where something else has failed.
            process.kill()


def _run_prefect_deploy(
    project: ProjectFile, kinds: Mapping[str, str], process: "subprocess.Popen[str]"
) -> None:
    """Have Prefect's own command read the file: its syntax is larger than what we read of it."""
    document = dict(project.document)
    document["deployments"] = [
        _without_folder(one, document, kinds[one["work_pool"]["name"]])
        for one in project.deployments
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(document, file)  # type: ignore[no-untyped-call]
        file.flush()
        said, _ = process.communicate(f"{file.name}\n")
    if process.returncode:
        if refused := _REFUSED.search(said):
            field, reason, name = refused.groups()
            what = "its parameters" if field is None else f"the parameter {field!r}"
            raise InputError(
                f"{project.folder / PROJECT_FILE}, deployment {name!r}: the server refuses {what}: "
                f"{reason}."
            )
        error = ServiceError(f"`prefect deploy --all` failed in {project.folder.resolve()}.")
        lines = without_secrets(said).splitlines()[-TAIL_LINES:]
        error.add_note("\n".join(shortened(each, 500) for each in lines))
        raise error


def _environment(api_url: str) -> dict[str, str]:
    environment = {**os.environ, "PREFECT_API_URL": api_url, "NO_COLOR": "1", "COLUMNS": "200"}
    if secret := PREFECT_API_AUTH_STRING.value():
        environment["PREFECT_API_AUTH_STRING"] = secret
    return environment


def _without_folder(
    deployment: dict[str, Any], document: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    """Return a deployment whose flow runs do not look for the folder that is deployed from.

    Prefect writes it into each deployment that says nothing else, and no container has it.
    """
    if kind == PROCESS or deployment.get("pull", document.get("pull")) is not None:
        return deployment
    return {**deployment, "pull": []}


def _ours(client: SyncPrefectClient, project: ProjectFile) -> list[DeploymentResponse]:
    """Return the deployments of the file that the server has, in the file's order."""
    places = {(one["entrypoint"], one["name"]): i for i, one in enumerate(project.deployments)}
    names = sorted({name for _, name in places})
    chosen = DeploymentFilter(name=DeploymentFilterName(any_=names))
    found = {
        places[deployment.entrypoint or "", deployment.name]: deployment
        for deployment in every(client.read_deployments, deployment_filter=chosen)
        if (deployment.entrypoint or "", deployment.name) in places
    }
    return [found[place] for place in sorted(found)]


def _restore_schedules(
    client: SyncPrefectClient,
    deployed: Sequence[DeploymentResponse],
    older: Sequence[DeploymentSchedule],
) -> None:
    """Switch schedules to what they were before: deploying puts new ones in their place."""
    before = {(one.deployment_id, one.slug): one.active for one in older}
    for deployment in deployed:
        for schedule in deployment.schedules:
            active = before.get((deployment.id, schedule.slug), schedule.active)
            if active != schedule.active:
                client.update_deployment_schedule(deployment.id, schedule.id, active=active)


def _describe(client: SyncPrefectClient, deployment: DeploymentResponse, flow: str) -> Deployed:
    started_by = [
        f"{_when(one)}, {'on' if one.active and not deployment.paused else 'off'}"
        for one in deployment.schedules
    ]
    owned = client.read_resource_related_automations(f"prefect.deployment.{deployment.id}")
    started_by += [
        f"event ({one.name}), {'on' if one.enabled else 'off'}"
        for one in owned
        if not one.name.startswith(OURS)
    ]
    return Deployed(
        name=f"{flow}/{deployment.name}", id=deployment.id, started_by=tuple(started_by)
    )


def _unknown(
    client: SyncPrefectClient, project: ProjectFile, of: Deployed, known: Sequence[Deployed]
) -> tuple[str, ...]:
    """Return a sentence about each deployment whose runs it waits for in vain.

    Prefect takes any name for an event that may come; it may also be deployed later.
    """
    names = [one.name for one in known]
    written = [one for one in project.deployments if one["name"] == of.name.partition("/")[2]]
    sentences = []
    for awaited in dict.fromkeys(name for one in written for name in _awaited(one.get("triggers"))):
        # What a template comes to, Prefect knows.
        if awaited in names or "*" in awaited or "{{" in awaited:
            continue
        try:
            client.read_deployment_by_name(awaited)
        except (ObjectNotFound, ValueError):
            sentences.append(
                f"{of.name} waits for runs of {awaited!r}, a deployment that the server does not "
                f"have.{did_you_mean(awaited, names)}"
            )
    return tuple(sentences)


def _awaited(triggers: Any) -> Iterator[str]:
    """Give the deployments that triggers name, those within others too."""
    for trigger in triggers or ():
        found = (trigger.get("match") or {}).get(DEPLOYMENT_LABEL, ())
        yield from [found] if isinstance(found, str) else found
        yield from _awaited(trigger.get("triggers"))


def _when(schedule: DeploymentSchedule) -> str:
    match schedule.schedule:
        case CronSchedule() as cron:
            return f"schedule {cron.cron} {cron.timezone or 'UTC'}"
        case IntervalSchedule() as interval:
            return f"schedule every {interval.interval}"
        case RRuleSchedule() as rule:
            return f"schedule {rule.rrule} {rule.timezone or 'UTC'}"
        case _:
            return "schedule"


def end_flow_runs(api_url: str, flow_run_ids: set[str]) -> list[str]:
    """Give flow runs an end whose processes are gone, where they have none yet.

    No process works on them any more. Returned are name and state of each.
    """
    ended = []
    with server_client(api_url, "could not mark the flow runs that were ended") as client:
        for flow_run_id in sorted(flow_run_ids):
            run = client.read_flow_run(UUID(flow_run_id))
            state = run.state
            if state is not None and state.type in HAS_NO_END:
                message = "Its worker was ended."
                cancelling = state.type is StateType.CANCELLING
                state = (Cancelled if cancelling else Crashed)(message=message)
                client.set_flow_run_state(run.id, state, force=True)
            ended.append(f"{run.name}: {state.name if state is not None else 'unknown'}")
    return ended


def free_flow_runs(api_url: str, pool: str, worker: str) -> list[str]:
    """Have flow runs wait again that a worker has taken, and had not begun when it ended.

    Prefect (3.8) leaves them Submitting, for ever. Where another worker than that of this name
    serves the pool, it may be about to begin them: then all stay as they are. Returned are the
    names of those that wait again.
    """
    chosen = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
    )
    with server_client(api_url, REFUSED) as client:
        if any(
            found.status == WorkerStatus.ONLINE and found.name != worker
            for found in client.read_workers_for_work_pool(pool)
        ):
            return []
        of_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
        # All of them first: each that waits again is no longer among them.
        runs = list(every(client.read_flow_runs, flow_run_filter=chosen, work_pool_filter=of_pool))
        for run in runs:
            waits: State[Any] = Scheduled(
                scheduled_time=run.expected_start_time,
                message="The worker that had taken it ended before it began.",
            )
            client.set_flow_run_state(run.id, waits, force=True)
    return [run.name for run in runs]


def last_heartbeat(api_url: str, pool: str, worker: str) -> Any:
    """Return when a worker of this name last sent a heartbeat; None: never, or not known."""
    with suppress(ServiceError), server_client(api_url, "does not answer") as client:
        for found in client.read_workers_for_work_pool(pool):
            if found.name == worker:
                return found.last_heartbeat_time
    return None
