"""What is deployed, and what starts it: people, programs, a schedule, an event."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.events import emit_event
from prefect.events.actions import DoNothing
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from partwise.flows.operations.automations import CRASH_AUTOMATION
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.run import Run
from tests.flows.operations.project import DEMO_STORES, Production, processes_of, wait_until

pytestmark = pytest.mark.slow  # a Prefect server and a worker

DEPLOYMENTS = (
    "train-models/train",
    "find-portfolio/find-portfolio",
    "train-distributed/train-distributed",
    "tune-model/tune",
    "run-script/script",
    "run-inference/infer",
    "compare-models/compare",
    "evaluate-predictions/evaluate",
    "promote-models/promote",
    "map-partitions/map",
    "export-models/export",
    "validate-exports/validate",
    "model-pipeline/pipeline",
    "export-transformers/transformers",
    "scale-cluster/scale",
    "model-pipeline/nightly-pipeline",
    "train-models/nightly-train",
    "run-inference/after-training",
)
TRAINER = {"kind": "lightgbm", "label": "y", "features": ["x"], "rounds": 2, "min_rows": 1}


def runs_of(production: Production, deployment: str) -> list[FlowRun]:
    found = production.client.read_deployment_by_name(deployment)
    chosen = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[found.id]))
    return list(production.client.read_flow_runs(flow_run_filter=chosen))


def ids(production: Production) -> dict[str, UUID]:
    read = production.client.read_deployment_by_name
    return {name: read(name).id for name in DEPLOYMENTS}


def test_every_deployment_is_there_and_described(production: Production) -> None:
    for name in DEPLOYMENTS:
        found = production.client.read_deployment_by_name(name)
        assert found.enforce_parameter_schema
        assert found.tags[0] == "partwise"
        assert found.tags[1] in ("on-demand", "nightly")
        assert found.work_pool_name == "partwise"
        assert found.job_variables["env"] == {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
        # What its page shows, and names that tell it apart in the list.
        assert (found.description or "").endswith(".")
        assert "\n" not in (found.description or "")
    assert len({name.partition("/")[2] for name in DEPLOYMENTS}) == len(DEPLOYMENTS)
    types = {kind.slug for kind in production.client.read_block_types()}
    assert {"store-block", "local-cluster", "cuda-cluster", "remote-cluster"} <= types


def test_an_unknown_parameter_is_refused_by_its_name(production: Production) -> None:
    parameters = production.small("unknown", function="mine:first_row", n_stores=3)
    with pytest.raises(PrefectHTTPStatusError, match="409") as caught:
        production.run("map-partitions/map", parameters)
    assert "'n_stores' was unexpected" in caught.value.response.text


def test_a_wrong_value_is_refused_by_its_field(production: Production) -> None:
    parameters = production.small("wrong", function="mine:first_row", null_keys="maybe")
    with pytest.raises(PrefectHTTPStatusError, match="409") as caught:
        production.run("map-partitions/map", parameters)
    assert "null_keys" in caught.value.response.text


def test_deploying_again_makes_nothing_twice(production: Production) -> None:
    client, before = production.client, ids(production)
    [automation] = client.read_automations_by_name(CRASH_AUTOMATION)
    said = production.project.cli("deploy")
    assert "30 2 * * * Europe/Amsterdam, off" in said
    assert "event (run-inference after train-models/nightly-train), on" in said
    assert "notify  partwise: off, as the server has no block slack-webhook/ops" in said
    assert ids(production) == before
    assert [one.id for one in client.read_automations_by_name(CRASH_AUTOMATION)] == [automation.id]
    chain = client.read_automations_by_name("run-inference after train-models/nightly-train")
    assert len(chain) == 1
    schedules = client.read_deployment_schedules(before["train-models/nightly-train"])
    assert [one.active for one in schedules] == [False]


def test_training_and_inference_are_started_by_the_api(
    production: Production, shared_cluster: dict[str, Any]
) -> None:
    parameters = production.small("trained", trainer=TRAINER, cluster=shared_cluster)
    ended = production.wait(production.run("train-models/train", parameters))
    assert ended.state_name == "Completed", ended.state
    assert Run.open("trained", production.store).counts == {"DONE": 8}
    infer = production.small("inferred", training_run_id="trained", cluster=shared_cluster)
    ended = production.wait(production.run("run-inference/infer", infer))
    assert ended.state_name == "Completed", ended.state
    assert Run.open("inferred", production.store).predictions().num_rows == 240


def test_a_wrong_type_is_refused_before_a_flow_run_is_made(production: Production) -> None:
    parameters = {**production.small("", function="mine:first_row"), "run_id": 7}
    with pytest.raises(PrefectHTTPStatusError, match="run_id"):
        production.run("map-partitions/map", parameters)


CALLER = """
import json, sys
from prefect.deployments import run_deployment

for text, timeout in zip(sys.argv[1:], (0, None), strict=True):
    run = run_deployment("map-partitions/map", parameters=json.loads(text), timeout=timeout)
    print(run.id, run.state.name)
"""


def test_another_project_starts_a_run_and_waits_or_does_not(
    production: Production, shared_cluster: dict[str, Any], tmp_path: Path
) -> None:
    names = ("called-and-left", "called-and-awaited")
    given = [
        production.small(name, function="mine:first_row", cluster=shared_cluster) for name in names
    ]
    done = subprocess.run(
        [sys.executable, "-c", CALLER, *map(json.dumps, given)],
        cwd=tmp_path,
        env={**production.project.environment, **production.access},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    later, left, _, awaited = done.stdout.split()
    assert (left, awaited) == ("Scheduled", "Completed")
    assert production.wait(UUID(later)).state_name == "Completed"
    for name in names:
        run = Run.open(name, production.store)
        assert run.status is RunStatus.SUCCESS
        assert run.predictions().num_rows == 8


def test_a_run_id_at_work_is_refused_and_the_first_run_unharmed(
    production: Production, shared_cluster: dict[str, Any]
) -> None:
    production.forget_words()
    parameters = production.small(
        "only-once", function="mine:wait_for_word", cluster=shared_cluster
    )
    first = production.run("map-partitions/map", parameters)
    production.await_words(2)
    second = production.wait(production.run("map-partitions/map", parameters))
    assert second.state is not None
    assert second.state.is_failed()
    assert "'only-once'" in (second.state.message or "")
    assert production.state(first) == "Running"
    (production.folder / "go").touch()
    assert production.wait(first).state_name == "Completed"
    assert Run.open("only-once", production.store).counts == {"DONE": 8}


def test_cancelling_a_gang_ends_its_ranks_and_completes_the_run(production: Production) -> None:
    production.forget_words()
    parameters = {
        "data": "rows.parquet",
        "trainer": "mine:wait_as_ranks",
        "run_id": "cancelled-gang",
        "store": "store",
        "scaling": {"ranks": 2},
        "gang": {"grace_s": 1},
        "cluster": {"workers": 2},
    }
    flow_run = production.run("train-distributed/train-distributed", parameters)
    production.await_words(2)
    production.cancel(flow_run)
    ended = production.wait(flow_run)
    assert ended.state is not None
    assert ended.state.type.value == "CANCELLED"
    run = Run.open("cancelled-gang", production.store)
    assert run.status is RunStatus.CANCELLED
    assert run.counts == {PartitionStatus.CANCELLED.value: 2}
    wait_until(lambda: not processes_of(flow_run), "its processes to end", timeout_s=10)


@pytest.fixture
def soon(production: Production) -> Iterator[Callable[[], None]]:
    """A schedule of nightly-train that does not wait for the night; call it to end it."""
    client = production.client
    nightly = client.read_deployment_by_name("train-models/nightly-train")
    # Whatever is due before the scheduler has looked is left out: then the next one counts.
    anchor = datetime.now(UTC) + timedelta(seconds=6)
    schedule = IntervalSchedule(interval=timedelta(seconds=20), anchor_date=anchor)
    [added] = client.create_deployment_schedules(nightly.id, [(schedule, True)])

    def end() -> None:
        with suppress(ObjectNotFound):
            client.delete_deployment_schedule(nightly.id, added.id)
        # The server may have planned more meanwhile, a hundred of them: the worker would begin one
        # every 20 s as long as there are tests.
        for run in runs_of(production, "train-models/nightly-train"):
            if run.state is not None and run.state.is_scheduled():
                with suppress(ObjectNotFound):
                    client.delete_flow_run(run.id)

    yield end
    end()


def test_a_schedule_starts_a_run_named_by_its_time_and_that_its_inference(
    production: Production, soon: Callable[[], None]
) -> None:
    def begun() -> list[FlowRun]:
        runs = runs_of(production, "train-models/nightly-train")
        return [run for run in runs if run.state_name not in ("Scheduled", "Late")]

    watching = AutomationCore(
        name="sees the end of a night",
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={"prefect.flow-run.Completed"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.id": (
                    f"prefect.deployment.{ids(production)['train-models/nightly-train']}"
                ),
                "prefect.resource.role": "deployment",
            },
        ),
        actions=[DoNothing()],
    )
    watched = production.client.create_automation(watching)
    failed = {
        "prefect.resource.id": "partwise.run.bad-night",
        "partwise.kind": "train",
        "partwise.status": "FAILURE",
        "partwise.deployment": "train-models/nightly-train",
    }
    emit_event("partwise.run.completed", failed, payload={"run_id": "bad-night"})
    run = wait_until(begun, "the scheduled run to begin")[0]
    soon()
    run = production.wait(run.id)
    assert run.state_name == "Completed", run.state
    local = run.expected_start_time.astimezone(ZoneInfo("Europe/Amsterdam"))
    name = f"nightly-{local:%Y-%m-%d}"
    assert run.name == name
    store = production.folder / "demo" / "artifacts"
    assert Run.open(name, store).status is RunStatus.SUCCESS
    # Its end is an event, which starts the inference, as the end of a failed one does not.
    used = wait_until(
        lambda: runs_of(production, "run-inference/after-training"), "inference to be started"
    )
    assert [one.parameters["training_run_id"] for one in used] == [name]
    assert production.wait(used[0].id).state_name == "Completed"
    assert Run.open(f"{name}-used", store).counts == {"DONE": DEMO_STORES}
    # Prefect holds back what happens to a flow run whose first event it has not seen.
    of_automation = {
        "event": {"name": ["prefect.automation.triggered"]},
        "any_resource": {"id": [f"prefect.automation.{watched}"]},
    }
    wait_until(
        lambda: production.post("/events/filter", {"filter": of_automation})["events"],
        "an automation to see that the scheduled run has ended",
    )
