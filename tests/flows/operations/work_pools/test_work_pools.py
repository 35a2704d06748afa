"""Calls that are sent to work pools of a real server, and carried out by a real worker."""

import json
import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterName,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun

from partwise.errors import InputError, RunExistsError
from partwise.flows.operations.deploy import (
    Deployed,
    begun_deploy,
    create_pool,
    deploy,
    read_project,
    register,
)
from partwise.flows.running.work_pool import call_in_work_pool
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.scripts.infrastructure import Infrastructure
from tests.flows.operations.project import ROOT, Production, wait_until

pytestmark = pytest.mark.slow  # a Prefect server and a worker

FUNCTIONS = '''
"""What calls that are sent to the work pool run there."""
import os
import time
from pathlib import Path


def tell_level(data, context):
    print("level", os.environ.get("LEVEL"))
    return {"level": [os.environ.get("LEVEL", "none")]}


def fail(data, context):
    raise ValueError(f"not {context.key}")


def wait(data, context):
    Path(__file__).with_name("sent-began").touch()
    time.sleep(120)
'''

SENDER = """
import sys
from dataclasses import dataclass
from partwise.calls.call import Call
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.work_pool import call_in_work_pool
from partwise.scripts.infrastructure import Infrastructure
from partwise.errors import RunCancelledError
from partwise.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Sent(Call):
    kind = "map"
    function: str


@run_flow(Sent, name="send-one")
def send_one(call: Sent) -> Run:
    arguments = {"data": "rows.parquet", "partition_by": "k", "function": call.function,
                 "run_id": call.run_id, "store": call.store, "cluster": {"workers": 1}}
    return call_in_work_pool("map-partitions", arguments, "work-pool/partwise", Infrastructure())


if __name__ == "__main__":
    try:
        function, run_id, store = sys.argv[1:]
        print(send_one(function=function, run_id=run_id, store=store).status.value)
    except RunCancelledError as error:
        print("cancelled", error.run and error.run.status.value)
        sys.exit(130)
"""


@pytest.fixture(scope="module")
def folder(production: Production) -> Path:
    (production.folder / "sent_functions.py").write_text(FUNCTIONS)
    (production.folder / "sender.py").write_text(SENDER)
    return production.folder


def send(production: Production, run_id: str, function: str, **more: Any) -> Run:
    arguments = production.small(run_id, function=f"sent_functions:{function}", **more)
    arguments["store"] = production.store
    asked = Infrastructure(environment_variables={"LEVEL": "7"})
    return call_in_work_pool("map-partitions", arguments, "work-pool/partwise", asked)


def flow_runs(production: Production, name: str) -> list[FlowRun]:
    named = FlowRunFilter(name=FlowRunFilterName(any_=[name]))
    return list(production.client.read_flow_runs(flow_run_filter=named))


def test_a_call_works_there_and_gives_its_run_back(
    production: Production, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "prefect.flow_runs")
    run = send(production, "sent-there", "tell_level")
    assert run.status is RunStatus.SUCCESS
    assert run.counts == {"DONE": 8}
    # The job variable reached the process of the worker.
    assert set(run.predictions()["level"].to_pylist()) == {"7"}
    (sent,) = flow_runs(production, "sent-there")
    assert sent.job_variables == {"env": {"LEVEL": "7"}}
    assert "sent-there" in caplog.text
    with pytest.raises(RunExistsError, match="'sent-there'"):
        send(production, "sent-there", "tell_level")


def test_a_run_that_fails_there_is_the_run_of_a_local_call(
    production: Production, folder: Path
) -> None:
    run = send(production, "sent-to-fail", "fail")
    assert run.status is RunStatus.FAILURE
    assert run.failures()["error_type"].to_pylist() == ["ValueError"]


def test_what_the_flow_refuses_there_is_raised_here(production: Production, folder: Path) -> None:
    with pytest.raises(InputError, match="no_such_function"):
        send(production, "sent-wrong", "no_such_function")
    with pytest.raises(InputError, match="'n_stores' was unexpected"):
        send(production, "sent-wrong", "fail", n_stores=3)


def start_sender(production: Production, *words: str) -> subprocess.Popen[str]:
    environment = {**production.project.environment, **production.access}
    return subprocess.Popen(
        [sys.executable, "sender.py", *words, production.store],
        cwd=production.folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_flow_that_sends_is_shown_with_what_it_sent(production: Production, folder: Path) -> None:
    with start_sender(production, "sent_functions:tell_level", "from-a-flow") as sender:
        out, _ = sender.communicate(timeout=120)
    assert sender.returncode == 0
    assert out.splitlines()[-1] == "SUCCESS"
    caller, sent = sorted(flow_runs(production, "from-a-flow"), key=lambda run: run.created)
    assert [run.state_name for run in (caller, sent)] == ["Completed"] * 2
    assert caller.deployment_id is None
    assert sent.parent_task_run_id is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_caller_cancels_what_works_there(
    production: Production, folder: Path, number: signal.Signals
) -> None:
    run_id = f"sent-and-{number.name.lower()}"
    began = folder / "sent-began"
    began.unlink(missing_ok=True)
    with start_sender(production, "sent_functions:wait", run_id) as sender:
        wait_until(began.exists, "a partition to begin")
        sender.send_signal(number)
        out, _ = sender.communicate(timeout=120)
    assert sender.returncode == 130
    assert out.splitlines()[-1] == "cancelled CANCELLED"
    assert {run.state_name for run in flow_runs(production, run_id)} == {"Cancelled"}
    assert Run.open(run_id, production.store).status is RunStatus.CANCELLED


# `partwise deploy --pool`.


@pytest.fixture
def server(production: Production) -> Iterator[str]:
    """Prefect's server, from which the work pools that a test makes are taken again."""
    client = production.client
    before = {pool.name for pool in client.read_work_pools()}
    yield production.api_url
    made = [pool.name for pool in client.read_work_pools() if pool.name not in before]
    for name in made:
        for deployment in client.read_deployments(work_pool_filter=_named(name)):
            client.delete_deployment(deployment.id)
        client.delete_work_pool(name)


def _named(name: str) -> WorkPoolFilter:
    return WorkPoolFilter(name=WorkPoolFilterName(any_=[name]))


@pytest.fixture
def deployed(server: str, tmp_path: Path) -> Callable[..., list[Deployed]]:
    """Deploy a prefect.yaml, the shipped one, to a work pool, as `partwise deploy` does."""
    shutil.copy(ROOT / "prefect.yaml", tmp_path)

    def call(pool: str | None = None, pool_type: str | None = None) -> list[Deployed]:
        project = read_project(tmp_path, pool)
        with begun_deploy(project, server) as begun:
            kinds = register(project, server, pool_type)
            return deploy(project, server, kinds, begun, keeps_schedules=False)

    return call


def test_deploying_to_a_pool_makes_what_is_on_demand_there_too(
    production: Production, deployed: Callable[..., list[Deployed]], tmp_path: Path
) -> None:
    client = production.client
    # All of the file is deployed to its own work pool already.
    before = client.read_deployment_by_name("train-models/train")
    deployed("containers", "docker")
    pool = client.read_work_pool("containers")
    assert pool.type == "docker"
    made = client.read_deployments(work_pool_filter=_named("containers"))
    project = read_project(tmp_path, "containers")
    assert len(made) == len(project.deployments)
    assert {"train-containers", "script-containers"} <= {one.name for one in made}
    # No container has the folder that was deployed from.
    assert not any(one.pull_steps for one in made)
    assert before.pull_steps
    # What was there stays there.
    after = client.read_deployment_by_name("train-models/train")
    assert (after.id, after.work_pool_name) == (before.id, "partwise")
    assert project.left == (
        "nightly-train",
        "after-training",
        "nightly",
        "nightly-pipeline",
        "tidy",
    )

    # Twice does no harm; to see it of a few will do.
    document = yaml.safe_load((tmp_path / "prefect.yaml").read_text())
    document["deployments"] = document["deployments"][:2] + document["deployments"][-1:]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(document))
    again = deployed("containers")
    assert {one.id for one in again} < {one.id for one in made}
    assert len(again) == 2
    still = client.read_deployments(work_pool_filter=_named("containers"))
    assert {(one.id, one.name) for one in still} == {(one.id, one.name) for one in made}


def test_a_pool_of_another_type_or_of_none_that_there_is_is_refused(deployed) -> None:
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="there", type="process"))
    with pytest.raises(InputError, match="'there' is there already, and of type process, not dock"):
        deployed("there", "docker")
    with pytest.raises(InputError, match="Prefect knows no work pool of type 'quantum'"):
        deployed("new", "quantum")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n_stores": 3}, r"its parameters: Additional .* \('n_stores' was unexpected\)"),
        ({"null_keys": 7}, r"the parameter 'null_keys': 7 is not one of \['error', 'drop'"),
    ],
)
def test_a_parameter_that_a_form_has_not_is_named_with_its_deployment(
    server, tmp_path, wrong, said
) -> None:
    """Prefect repeats all of the form: forty thousand characters."""
    deployment = {
        "name": "mine",
        "entrypoint": "partwise.flows.map_partitions.map_partitions",
        "work_pool": {"name": "refused"},
        "parameters": {"data": "a", "partition_by": "k", "function": "a:b", **wrong},
    }
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [deployment]}))
    project = read_project(tmp_path)
    with begun_deploy(project, server) as begun:
        kinds = register(project, server, None)
        with pytest.raises(InputError, match=f"deployment 'mine': the server refuses {said}"):
            deploy(project, server, kinds, begun, keeps_schedules=False)


@pytest.mark.usefixtures("server")
def test_a_pool_of_prefects_own_template_gets_ours_and_a_changed_one_is_left() -> None:
    from prefect_kubernetes.worker import KubernetesWorker

    stock = KubernetesWorker.get_default_base_job_template()
    changed = json.loads(json.dumps(stock))
    changed["variables"]["properties"]["namespace"]["default"] = "team"
    with get_client(sync_client=True) as client:
        for name, template in (("stock", stock), ("changed", changed)):
            client.create_work_pool(
                WorkPoolCreate(name=name, type="kubernetes", base_job_template=template)
            )
            assert create_pool(client, name, None) == "kubernetes"
        ours = client.read_work_pool("stock").base_job_template
        assert "shm_size" in ours["variables"]["properties"]
        assert client.read_work_pool("changed").base_job_template == changed
        # Once it is ours, it stays so.
        create_pool(client, "stock", "kubernetes")
        assert client.read_work_pool("stock").base_job_template == ours


def test_a_file_of_schedules_only_is_not_deployed_elsewhere(tmp_path: Path) -> None:
    deployment = {
        "name": "nightly",
        "entrypoint": "a.b",
        "work_pool": {"name": "own"},
        "schedules": [{"cron": "0 0 * * *"}],
    }
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [deployment]}))
    with pytest.raises(InputError, match="started by a schedule or an event"):
        read_project(tmp_path, "other")
    assert read_project(tmp_path, "own").deployments == [deployment]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"inputs": ["a.txt"]}, "inputs is called files now"),
        ({"execution": {"partition_cpus": 2}}, "partition_cpus is called cpus now"),
    ],
)
def test_old_names_of_parameters_are_not_deployed(tmp_path: Path, given, sentence: str) -> None:
    deployment = {
        "name": "nightly",
        "entrypoint": "partwise.flows.train_models.train_models",
        "work_pool": {"name": "own"},
        "parameters": given,
    }
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [deployment]}))
    with pytest.raises(InputError, match=f"deployment 'nightly': {sentence}"):
        read_project(tmp_path)
