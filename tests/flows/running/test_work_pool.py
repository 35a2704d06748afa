"""A call that is sent to a work pool: what is refused before a flow run is made, and how it ends.

A thread stands for the worker here; `tests/flows/operations/work_pools/` has a real one.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun, WorkPool
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running, State

from partwise.errors import (
    InputError,
    RunBusyError,
    RunCancelledError,
    RunExistsError,
    ServiceError,
)
from partwise.flows import map_partitions
from partwise.flows.operations.deploy import create_pool, free_flow_runs
from partwise.flows.running import work_pool
from partwise.flows.running.work_pool import call_in_work_pool
from partwise.scripts.infrastructure import Infrastructure
from partwise.scripts.pool_template import extended
from tests.flows.operations.project import wait_until
from tests.lazily import Lazily
from tests.run_maker import RunMaker

docker, kubernetes = Lazily("prefect_docker.worker"), Lazily("prefect_kubernetes.worker")

NOTHING = Infrastructure()


@pytest.fixture(scope="module")
def client(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool, "POLL_S", 0.05)
    monkeypatch.setattr("partwise.flows.orchestration.flow_run_lines.LAST_LINES_S", 0.0)


def stock_template(kind: str) -> dict[str, Any]:
    """The template of a pool that somebody makes by `prefect work-pool create`."""
    worker = docker.DockerWorker if kind == "docker" else kubernetes.KubernetesWorker
    return worker.get_default_base_job_template()


@pytest.fixture
def pool(client: SyncPrefectClient) -> Callable[..., str]:
    """Make a work pool of a type, with a deployment of map-partitions, and return its name."""

    def make(
        kind: str = "process", deployments: tuple[str, ...] = ("on-demand",), **more: Any
    ) -> str:
        template = {} if kind == "process" else extended(stock_template(kind), kind)
        name = f"{kind}-{uuid4().hex[:8]}"
        client.create_work_pool(WorkPoolCreate(name=name, type=kind, base_job_template=template))
        flow_id = client.create_flow(map_partitions)
        for each in deployments:
            # The same name in another pool would be the same deployment.
            client.create_deployment(
                flow_id, f"{each}-{name}", entrypoint="any", work_pool_name=name, **more
            )
        return name

    return make


def test_a_pool_that_its_worker_makes_at_the_same_moment_is_taken(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read = f"process-{uuid4().hex[:8]}", client.read_work_pool

    def read_before_the_worker(wanted: str) -> WorkPool:
        monkeypatch.setattr(client, "read_work_pool", read)
        with pytest.raises(ObjectNotFound) as missing:
            read(wanted)
        client.create_work_pool(WorkPoolCreate(name=wanted, type="process", base_job_template={}))
        raise missing.value

    for kind in ("process", None):
        monkeypatch.setattr(client, "read_work_pool", read_before_the_worker)
        assert create_pool(client, f"{name}-{kind}", kind) == "process"
    monkeypatch.setattr(client, "read_work_pool", read_before_the_worker)
    with pytest.raises(InputError, match="of type process, not docker"):
        create_pool(client, f"{name}-other", "docker")


def test_what_a_worker_had_taken_and_not_begun_waits_again(
    client: SyncPrefectClient, pool: Callable[..., str]
) -> None:
    """But not where another worker may be about to begin it."""
    name, url = pool(), str(PREFECT_API_URL.value())
    deployment = client.read_deployment_by_name(f"map-partitions/on-demand-{name}").id
    taken, begun = (client.create_flow_run_from_deployment(deployment) for _ in range(2))
    client.set_flow_run_state(taken.id, Pending(name="Submitting"), force=True)
    client.set_flow_run_state(begun.id, Running(), force=True)
    client.send_worker_heartbeat(name, "theirs")
    assert free_flow_runs(url, name, "ours") == []
    assert client.read_flow_run(taken.id).state_name == "Submitting"
    assert free_flow_runs(url, name, "theirs") == [taken.name]
    waits = client.read_flow_run(taken.id)
    assert (waits.state_name, waits.expected_start_time) == ("Scheduled", taken.expected_start_time)
    assert client.read_flow_run(begun.id).state_name == "Running"


def flow_runs(client: SyncPrefectClient, run_id: str) -> list[FlowRun]:
    named = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
    return list(client.read_flow_runs(flow_run_filter=named))


@pytest.fixture
def call(client: SyncPrefectClient, tmp_path: Path) -> Callable[..., Any]:
    """Send a call to a pool whose only worker ends its flow run in a state."""

    def send(
        name: str,
        state: State[Any] | None = None,
        asked: Infrastructure = NOTHING,
        then: Callable[[UUID], None] = lambda _: None,
        **arguments: Any,
    ) -> Any:
        run_id = arguments.setdefault("run_id", f"sent-{uuid4().hex[:8]}")
        arguments.setdefault("store", str(tmp_path / "store"))
        no_longer = threading.Event()

        def work() -> None:
            with get_client(sync_client=True) as own:
                while not no_longer.wait(0.05):
                    for flow_run in flow_runs(own, run_id):
                        if flow_run.state is None or flow_run.state.is_final():
                            continue  # of another test, by the same name
                        try:
                            then(flow_run.id)
                        finally:
                            # Else the caller would wait for ever.
                            with suppress(ObjectNotFound):  # where it was deleted
                                own.set_flow_run_state(flow_run.id, state, force=True)
                        return

        worker = threading.Thread(target=work)
        if state is not None:
            worker.start()
        try:
            return call_in_work_pool("map-partitions", arguments, f"work-pool/{name}", asked)
        finally:
            no_longer.set()
            if state is not None:
                worker.join()

    return send


# What is refused before a flow run is made.


def test_a_pool_that_does_not_exist_is_named_with_those_there_are(pool, call) -> None:
    there = pool()
    with pytest.raises(
        InputError, match=rf"no work pool 'nowhere'.*{there}.*deploy --pool nowhere"
    ):
        call("nowhere")
    # Others of the session's server may be as near.
    with pytest.raises(InputError, match=r"makes one\. Did you mean 'process-[0-9a-f]{8}'\?"):
        call(f"{there}-")


def test_a_paused_pool_and_a_paused_queue_are_refused(client, pool, call) -> None:
    name = pool()
    queue = client.read_work_queue_by_name("default", name)
    client.update_work_queue(queue.id, is_paused=True)
    with pytest.raises(InputError, match=r"queue 'default' .* is paused.*work-queue resume"):
        call(name)
    client.update_work_pool(name, WorkPoolUpdate(is_paused=True))
    with pytest.raises(InputError, match=rf"is paused.*work-pool resume {name}"):
        call(name, run_id="never-sent")
    assert flow_runs(client, "never-sent") == []


def test_a_pool_without_the_deployment_or_with_several_is_refused(pool, call) -> None:
    with pytest.raises(InputError, match=r"no deployment of map-partitions.*partwise deploy"):
        call(pool(deployments=()))
    with pytest.raises(InputError, match=r"several deployments.*/a-.*/b-.*Give the one"):
        call(pool(deployments=("a", "b")))


def test_of_several_deployments_the_one_that_is_on_demand_is_taken(client, pool, call) -> None:
    name = pool(deployments=("nightly",))
    flow_id = client.create_flow(map_partitions)
    client.create_deployment(flow_id, f"map-{name}", work_pool_name=name, tags=["on-demand"])
    with pytest.raises(RunCancelledError):
        call(name, Cancelled())


def test_without_a_server_it_says_which_address_is_missing(call) -> None:
    with (
        temporary_settings({PREFECT_API_URL: None}),
        pytest.raises(InputError, match="set PREFECT_API_URL"),
    ):
        call("any")
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(ServiceError, match="does not answer, to send"),
    ):
        call("any")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"image": "a:1"}, "sets image, which a work pool of type 'process' cannot have"),
        ({"gpus": 1, "vm_class": "x"}, "sets gpus, vm_class"),
    ],
)
def test_what_the_pool_cannot_have_is_refused(client, pool, call, asked, words) -> None:
    with pytest.raises(InputError, match=words):
        call(pool(), asked=Infrastructure(**asked), run_id="not-asked")
    assert flow_runs(client, "not-asked") == []


def test_a_pool_of_a_type_that_we_do_not_know_takes_calls_without_settings(pool, call) -> None:
    name = pool("somebodys-own")
    with pytest.raises(InputError, match="type 'somebodys-own' only its own template"):
        call(name, asked=Infrastructure(cpus=1))
    with pytest.raises(RunCancelledError):
        call(name, Cancelled())


def test_a_template_that_lacks_a_variable_is_told_by_the_setting(client, call) -> None:
    name = f"stock-{uuid4().hex[:8]}"
    template = stock_template("kubernetes")
    client.create_work_pool(
        WorkPoolCreate(name=name, type="kubernetes", base_job_template=template)
    )
    flow_id = client.create_flow(map_partitions)
    client.create_deployment(flow_id, f"on-demand-{name}", work_pool_name=name)
    with pytest.raises(InputError, match=r"sets gpus, and the template .* no variable 'gpus'"):
        call(name, asked=Infrastructure(image="a:1", gpus=1), store="s3://bucket/x")


def test_a_container_needs_an_image_and_a_store_that_it_sees(pool, call) -> None:
    with pytest.raises(InputError, match="Nothing says which image"):
        call(pool("docker"), store="s3://bucket/runs")
    with pytest.raises(InputError, match="'artifacts' is a folder here, which containers"):
        call(pool("kubernetes"), asked=Infrastructure(image="a:1"), store="artifacts")
    of_deployment = pool("docker", job_variables={"image": "team/forecast:1"})
    with pytest.raises(RunCancelledError):
        call(of_deployment, Cancelled())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"function": lambda data, context: None}, "function= is .*which another process cannot"),
        ({"data": {"k": object()}}, "data= is a object in the memory of this process"),
        ({"params": {"weights": {1: 2.0}}}, "params= is a dict with keys that are no texts"),
        ({"data": "postgresql://me:hunter2@db/shop"}, "data= holds a password"),
    ],
)
def test_arguments_that_cannot_be_sent_are_named(pool, call, arguments, words) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call(pool(), **arguments)
    assert "hunter2" not in str(caught.value)


# What is sent.


def test_parameters_and_job_variables_reach_the_flow_run(client, pool, call, tmp_path) -> None:
    name = pool(
        "docker",
        job_variables={
            "container_create_kwargs": {"shm_size": "1g", "ulimits": [1]},
            "env": {"A": "1"},
        },
    )
    asked = Infrastructure(image="a:1", shm_gib=2, environment_variables={"B": "2"})
    with pytest.raises(RunCancelledError):
        call(
            name,
            Cancelled(),
            asked,
            run_id="as-sent",
            data=["a.parquet", tmp_path / "b.parquet"],
            columns=("x", "y"),
            seed=3,
            version=None,
        )
    (sent,) = flow_runs(client, "as-sent")
    assert sent.parameters == {
        "run_id": "as-sent",
        "data": ["a.parquet", str(tmp_path / "b.parquet")],
        "columns": ["x", "y"],
        "seed": 3,
        "store": str(tmp_path / "store"),
    }
    # Those of the deployment stay, but for what was asked for.
    assert sent.job_variables == {
        "image": "a:1",
        "container_create_kwargs": {"shm_size": "2048m", "ulimits": [1]},
        "env": {"B": "2"},
    }


def test_a_folder_is_sent_by_its_full_path(client, pool, call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunCancelledError):
        call(pool(), Cancelled(), run_id="full-path", store="runs")
    (sent,) = flow_runs(client, "full-path")
    assert sent.parameters["store"] == str(tmp_path / "runs")


def test_credentials_of_a_registry_are_sent_as_a_reference_and_found_by_the_worker(
    client, pool, call
) -> None:
    from prefect_docker.credentials import DockerRegistryCredentials

    DockerRegistryCredentials.register_type_and_schema()
    block = DockerRegistryCredentials(username="me", password="hunter2", registry_url="r.org")
    block.save("prod")
    name = pool("docker")
    missing = Infrastructure(image="a:1", registry_credentials="docker-registry-credentials/none")
    with pytest.raises(InputError, match="No block 'docker-registry-credentials/none' is saved"):
        call(name, asked=missing)

    asked = Infrastructure(image="a:1", registry_credentials="docker-registry-credentials/prod")
    with pytest.raises(RunCancelledError):
        call(name, Cancelled(), asked, run_id="with-credentials")
    (sent,) = flow_runs(client, "with-credentials")
    assert "hunter2" not in sent.model_dump_json()
    template = client.read_work_pool(name).base_job_template
    made = _configuration(template, sent.job_variables or {})
    assert made.registry_credentials.password.get_secret_value() == "hunter2"

    # Of Prefect's own template the server would refuse it, in words about schemas.
    stock = WorkPoolUpdate(base_job_template=stock_template("docker"))
    client.update_work_pool(name, stock)
    with pytest.raises(InputError, match=r"takes no block's name.*partwise deploy --pool"):
        call(name, asked=asked, run_id="not-with-prefects-own")
    assert flow_runs(client, "not-with-prefects-own") == []


def _configuration(template: dict[str, Any], values: dict[str, Any]) -> Any:
    import asyncio

    kind = docker.DockerWorkerJobConfiguration
    return asyncio.run(kind.from_template_and_values(template, values))


# How it ends.


def test_without_a_worker_it_says_so_and_waits(client, pool, call, caplog) -> None:
    caplog.set_level(logging.INFO, "prefect.flow_runs")
    name = pool()
    with pytest.raises(RunCancelledError, match="'nobody' was cancelled before it began"):
        call(name, Cancelled(), run_id="nobody")
    assert f"Run nobody: no worker polls the work pool {name}: it waits until" in caplog.text


def test_a_flow_run_that_does_not_begin_says_what_it_waits_for(
    client, pool, call, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("partwise.flows.orchestration.flow_run_lines.FIRST_LINE_S", 0.2)
    caplog.set_level(logging.INFO, "prefect.flow_runs")
    name = pool()

    def pause(_: UUID) -> None:
        client.update_work_pool(name, WorkPoolUpdate(is_paused=True))
        wait_until(lambda: "is paused" in caplog.text, "a line", 20)

    with pytest.raises(RunCancelledError):
        call(name, Cancelled(), then=pause)
    assert "not begun after" in caplog.text


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (Failed(message="InputError: The column 'x' is missing."), InputError, "^The column 'x'"),
        (Failed(message="RunExistsError: The run exists."), RunExistsError, "^The run exists"),
        (Failed(message="RunBusyError: It is at work."), RunBusyError, "^It is at work"),
        (Failed(message="Flow run encountered an exception: OSError: x"), ServiceError, "OSError"),
        (Failed(message="str: x"), ServiceError, "failed in the work pool .*: str: x"),
        (Crashed(message="Exit code 137."), ServiceError, "crashed .*137.*='resume' goes on"),
        (Completed(), ServiceError, "its run is not in .* give a store that both see"),
    ],
)
def test_an_end_without_a_run_is_the_error_of_a_local_call(pool, call, state, kind, words) -> None:
    with pytest.raises(kind, match=words) as caught:
        call(pool(), state)
    assert type(caught.value) is kind


def test_the_run_is_read_from_the_store(pool, call, tmp_path) -> None:
    run = RunMaker(work_pool.Store.parse(tmp_path / "store"))
    run.begin()
    run.commit(("a", "DONE", 1.0))
    run.end(1)
    found = call(pool(), Completed(), run_id="run", store=tmp_path / "store")
    assert found.run_id == "run"


def test_a_flow_run_that_is_deleted_ends_the_wait(client, pool, call) -> None:
    def delete(flow_run_id: UUID) -> None:
        client._client.delete(f"/flow_runs/{flow_run_id}")

    with pytest.raises(ServiceError, match="was deleted in Prefect"):
        call(pool(), Completed(), then=delete)


def test_a_server_that_is_silent_for_too_long_ends_the_wait(
    pool, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = pool()
    asked = threading.Event()

    def fail(self: Any, flow_run_id: UUID) -> FlowRun:
        asked.set()
        raise httpx.ConnectError("gone")

    monkeypatch.setattr(work_pool, "OUTAGE_S", 0.3)
    monkeypatch.setattr(SyncPrefectClient, "read_flow_run", fail)
    with pytest.raises(ServiceError, match=r"not answered for 0 s\. The flow run .* may go on"):
        call(name)
    assert asked.is_set()


def test_logs_that_cannot_be_read_do_not_hide_the_end(pool, call, monkeypatch) -> None:
    def fail(self: Any, *_: Any, **__: Any) -> list[Any]:
        raise httpx.ReadTimeout("slow")

    monkeypatch.setattr(SyncPrefectClient, "read_logs", fail)
    with pytest.raises(RunCancelledError):
        call(pool(), Cancelled())
