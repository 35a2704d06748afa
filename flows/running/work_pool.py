"""Sending a call to a work pool: a flow run of the flow's deployment there, followed to its end.

Prefect hands a call to whoever polls the pool, and says nothing where nobody does: no such pool, a
paused one, no worker. So all that can be seen is looked at before a flow run is made, and while it
waits, a line says what it waits for.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError, TerminationSignal
from prefect.settings import PREFECT_API_URL
from pydantic import JsonValue

from partwise import errors
from partwise.errors import (
    InputError,
    PartwiseError,
    RunCancelledError,
    RunNotFoundError,
    ServiceError,
)
from partwise.flows.orchestration.flow_run_lines import FlowRunLines
from partwise.flows.orchestration.interruption import allow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.sent_parameters import sent_parameters
from partwise.formatting import did_you_mean
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.scripts.infrastructure import (
    CONTAINER_POOLS,
    REGISTRY_BLOCK,
    WORK_POOL,
    Infrastructure,
    JobVariables,
    job_variables,
)
from partwise.scripts.pool_template import takes_reference
from partwise.store.store import Store
from partwise.tasks.steps import run_logger

ON_DEMAND = "on-demand"
"""The tag of the deployment that is taken where a pool has several of a flow."""
POLL_S = 1.0
OUTAGE_S = 300.0
"""For so long the server may be silent while a flow run is followed."""
CANCEL_S = 120.0
"""For so long the end of a flow run is waited for that was cancelled."""


def call_in_work_pool(
    flow: str,
    arguments: Mapping[str, Any],
    cluster: str,
    infrastructure: Infrastructure,
    stage: Callable[[], Mapping[str, Any]] = dict,
) -> Run:
    """Carry out a call of a flow in a work pool, and return the run as it then stands in the store.

    While it works, what it logs is logged here. A caller that is interrupted cancels it; one that
    is killed leaves it at work.

    Args:
        flow: The flow's name in Prefect, such as "run-script".
        arguments: The call's arguments: a run_id that is filled in, a store that the work pool and
            this process both see, and none of the flow's words for where it works.
        cluster: "work-pool/NAME".
        infrastructure: The machine and container that it needs there.
        stage: Writes what the call needs of this machine to the store, and returns the arguments
            that name it there; called when nothing is left to be refused here.

    Returns:
        The run, also one that ended with FAILURE or was cancelled.

    Raises:
        InputError: The call cannot be sent there; no flow run was made.
        ServiceError: The flow run ended without a run, crashed, or cannot be followed any more.
        PartwiseError: What the call raises there before it has a run.
        RunCancelledError: It was cancelled before it had a run.
    """
    if PREFECT_API_URL.value() is None:
        raise InputError(
            f"{cluster} needs the Prefect server that its workers ask for work: set "
            "PREFECT_API_URL to its address."
        )
    name = cluster.removeprefix(WORK_POOL)
    parameters = sent_parameters({key: arguments[key] for key in arguments if key != "store"})
    store = open_store(arguments["store"])
    with get_client(sync_client=True) as client:
        with _told(f"send the call to the work pool {name!r}"):
            pool = _read_pool(client, name)
            parameters["store"] = _sent_store(arguments["store"], store, pool)
            deployment = _find_deployment(client, flow, pool)
            variables = _variables(client, infrastructure, pool, deployment)
            sent = _Sent(client, pool, store, str(arguments["run_id"]))
            # It says so before the flow run is made, and goes on: a worker may be on its way.
            sent.check_workers()
            parameters |= sent_parameters(stage())
            flow_run = _send(deployment, parameters, variables, sent.run_id)
        return sent.follow(flow_run)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except PrefectHTTPStatusError as error:
        detail = _detail(error.response)
        raise InputError(f"Prefect's server refused to {what}: {detail}") from error
    except httpx.HTTPError as error:
        raise ServiceError(
            f"Prefect's server at {PREFECT_API_URL.value()} does not answer, to {what}: {error}"
        ) from error


def _detail(response: httpx.Response) -> str:
    try:
        answer = response.json()
    except ValueError:
        return response.text
    return str(answer.get("detail") or answer.get("exception_detail") or answer)


def _read_pool(client: SyncPrefectClient, name: str) -> WorkPool:
    """Return a work pool that takes work."""
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        known = sorted(pool.name for pool in client.read_work_pools())
        raise InputError(
            f"The server at {PREFECT_API_URL.value()} has no work pool {name!r} (those there: "
            f"{', '.join(known) or 'none'}): `partwise deploy --pool {name} --pool-type docker` "
            f"makes one.{did_you_mean(name, known)}"
        ) from None
    if pool.is_paused:
        raise InputError(
            f"The work pool {name!r} is paused, so nothing in it would start: `prefect work-pool "
            f"resume {name}` goes on with it."
        )
    return pool


def _find_deployment(client: SyncPrefectClient, flow: str, pool: WorkPool) -> DeploymentResponse:
    """Return the deployment of a flow in a work pool."""
    found = client.read_deployments(
        flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool.name])),
    )
    chosen = [one for one in found if ON_DEMAND in one.tags] or found
    if not chosen:
        raise InputError(
            f"The work pool {pool.name!r} has no deployment of {flow}: `partwise deploy --pool "
            f"{pool.name}`, in the folder of your prefect.yaml, makes it."
        )
    if len(chosen) > 1:
        names = ", ".join(sorted(f"{flow}/{one.name}" for one in chosen))
        raise InputError(
            f"The work pool {pool.name!r} has several deployments of {flow}: {names}. Give the "
            f"one to use the tag {ON_DEMAND}."
        )
    (deployment,) = chosen
    if deployment.work_queue_name:
        queue = client.read_work_queue_by_name(deployment.work_queue_name, pool.name)
        if queue.is_paused:
            raise InputError(
                f"The work queue {queue.name!r} of the work pool {pool.name!r} is paused, so "
                f"nothing in it would start: `prefect work-queue resume {queue.name} --pool "
                f"{pool.name}` goes on with it."
            )
    return deployment


def _sent_store(given: Any, store: Store, pool: WorkPool) -> JsonValue:
    """Return the store as the flow run finds it: the caller reads the run there afterwards."""
    (plain,) = sent_parameters({"store": given}).values()
    if store.protocol != "file" or str(plain) != str(given):
        return plain
    if pool.type in CONTAINER_POOLS and not str(given).startswith("/"):
        raise InputError(
            f"The store {given!r} is a folder here, which containers of the work pool "
            f"{pool.name!r} do not see: give a URL such as s3://bucket/folder, a block's name, or "
            "the full path of a folder that is mounted there too."
        )
    return store.url


def _variables(
    client: SyncPrefectClient,
    infrastructure: Infrastructure,
    pool: WorkPool,
    deployment: DeploymentResponse,
) -> JobVariables:
    """Return the job variables of the flow run."""
    known = pool.base_job_template.get("variables", {}).get("properties", {})
    variables = job_variables(infrastructure, pool.type, known)
    before = {name: each["default"] for name, each in known.items() if each.get("default")}
    before |= deployment.job_variables or {}
    if pool.type in CONTAINER_POOLS and not (variables.get("image") or before.get("image")):
        raise InputError(
            f"Nothing says which image a container of the work pool {pool.name!r} is made of, and "
            "Prefect's own has no partwise: set infrastructure.image."
        )
    for name, value in variables.items():
        # Those of a flow run would take the place of a deployment's as a whole.
        if name != "env" and isinstance(value, dict) and isinstance(before.get(name), dict):
            variables[name] = {**before[name], **value}
    if infrastructure.registry_credentials:
        if not takes_reference(known["registry_credentials"]):
            raise InputError(
                f"The template of the work pool {pool.name!r} takes no block's name as "
                f"registry_credentials; `partwise deploy --pool {pool.name}` gives it one that "
                "does, unless it was changed by hand."
            )
        variables["registry_credentials"] = _reference(client, infrastructure.registry_credentials)
    return variables


def _reference(client: SyncPrefectClient, name: str) -> JsonValue:
    """Return a reference to a saved block, which the worker resolves."""
    kind, _, block = name.partition("/")
    try:
        document = client.read_block_document_by_name(block, kind, include_secrets=False)
    except ObjectNotFound:
        raise InputError(
            f"No block {name!r} is saved, which infrastructure.registry_credentials names: "
            f"`prefect block register -m prefect_docker`, then save a {REGISTRY_BLOCK} block."
        ) from None
    return {"$ref": {"block_document_id": str(document.id)}}


def _send(
    deployment: DeploymentResponse,
    parameters: Mapping[str, JsonValue],
    variables: JobVariables,
    run_id: str,
) -> FlowRun:
    schema = (deployment.parameter_openapi_schema or {}).get("properties", {})
    # In place of the deployment's defaults: there, the call works where it is.
    here = {name: value for name, value in _HERE.items() if name in schema}
    # Called from a flow run, as here, it is shown there as a part of it.
    flow_run: Any = run_deployment(
        deployment.id,
        parameters={**parameters, **here},
        flow_run_name=run_id,
        job_variables=variables,
        # It returns at once: what waits is `follow`, which shows what the flow run logs.
        timeout=0,
    )
    sent: FlowRun = flow_run
    return sent


_HERE: Mapping[str, JsonValue] = {"cluster": "", "infrastructure": {}}


@dataclass
class _Sent:
    """A call that was sent to a work pool."""

    client: SyncPrefectClient
    pool: WorkPool
    store: Store
    run_id: str

    def __post_init__(self) -> None:
        self._logger = run_logger()

    def check_workers(self) -> None:
        """Say so where no worker takes work of the pool."""
        if not self._workers():
            self._logger.warning(
                "Run %s: no worker polls the work pool %s: it waits until `prefect worker start "
                "--pool %s` is at work somewhere.",
                self.run_id,
                self.pool.name,
                self.pool.name,
            )

    def _workers(self) -> int:
        """Return how many workers take work of the pool; one where the server does so itself."""
        if self.pool.is_push_pool or self.pool.is_managed_pool:
            return 1
        workers = self.client.read_workers_for_work_pool(self.pool.name)
        return sum(worker.status is WorkerStatus.ONLINE for worker in workers)

    def follow(self, flow_run: FlowRun) -> Run:
        """Follow the flow run to its end, and return the run or raise what the call raised."""
        try:
            ended = self._await_end(flow_run.id)
        except (KeyboardInterrupt, SystemExit, TerminationSignal):
            # What works elsewhere would not hear of it.
            ended = self._cancel(flow_run.id)
            if ended is None:
                raise
        return self._outcome(ended)

    def _await_end(self, flow_run_id: UUID, timeout_s: float | None = None) -> State[Any] | None:
        lines = FlowRunLines(self.client, flow_run_id, self._logger, self.run_id)
        began = heard = time.monotonic()
        while timeout_s is None or time.monotonic() - began < timeout_s:
            state = None
            try:
                state = self.client.read_flow_run(flow_run_id).state
                heard = time.monotonic()
            except ObjectNotFound:
                raise ServiceError(
                    f"The flow run {flow_run_id} of the run {self.run_id!r} was deleted in "
                    "Prefect; whether it goes on is not known."
                ) from None
            except httpx.HTTPError as error:
                if time.monotonic() - heard > OUTAGE_S:
                    raise ServiceError(
                        f"Prefect's server has not answered for {OUTAGE_S:.0f} s. The flow run "
                        f"{flow_run_id} may go on: see `partwise runs show {self.run_id}`."
                    ) from error
            with suppress(httpx.HTTPError):
                lines.update(state, self._waits_for)
            if state is not None and state.is_final():
                lines.close()
                return state
            time.sleep(POLL_S)
        return None

    def _waits_for(self) -> str:
        """Say what a flow run waits for that has not begun."""
        pool = self.client.read_work_pool(self.pool.name)
        if pool.is_paused:
            return f"the work pool {pool.name} is paused"
        workers = self._workers()
        if not workers:
            return f"no worker polls the work pool {pool.name}"
        busy = "" if pool.concurrency_limit is None else f", at most {pool.concurrency_limit} runs"
        return f"the work pool {pool.name} has {workers} workers{busy}"

    def _cancel(self, flow_run_id: UUID) -> State[Any] | None:
        """Cancel the flow run, and wait for its end; None: it has not ended, or nobody knows."""
        # It ends there in its own time, in which a call that ends here would be pressed on.
        allow(CANCEL_S)
        self._logger.info("Run %s: cancelling it in the work pool.", self.run_id)
        try:
            self.client.set_flow_run_state(flow_run_id, State(type=StateType.CANCELLING))
            return self._await_end(flow_run_id, CANCEL_S)
        except (httpx.HTTPError, ServiceError):
            return None

    def _outcome(self, state: State[Any] | None) -> Run:
        assert state is not None  # noqa: S101 (for mypy: without a time limit it waits for an end)
        message = state.message or ""
        if state.type is StateType.CRASHED:
            raise ServiceError(
                f"The flow run of the run {self.run_id!r} crashed in the work pool "
                f"{self.pool.name!r}: {message} What it has committed is kept; the same call with "
                "on_existing_artifacts='resume' goes on."
            )
        # With the name of a status it is that of a run, which is in the store.
        if state.type is StateType.FAILED and state.name not in [*RunStatus]:
            raise _error_of(message, self.run_id, self.pool.name)
        try:
            return Run.open(self.run_id, self.store)
        except RunNotFoundError as error:
            if state.type is StateType.CANCELLED:
                raise RunCancelledError(
                    f"The run {self.run_id!r} was cancelled before it began.", None
                ) from None
            raise ServiceError(
                f"The flow run of the run {self.run_id!r} ended as {state.name} in the work pool "
                f"{self.pool.name!r}, but its run is not in {self.store.url} as it is seen from "
                "here: give a store that both see."
            ) from error


def _error_of(message: str, run_id: str, pool: str) -> PartwiseError:
    """Return the error that a flow run failed with: its state has the class' name and the text."""
    name, colon, text = message.partition(": ")
    kind = getattr(errors, name, None)
    if colon and isinstance(kind, type) and issubclass(kind, PartwiseError):
        return kind(text)
    return ServiceError(
        f"The flow run of the run {run_id!r} failed in the work pool {pool!r}: {message}"
    )
