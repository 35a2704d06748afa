"""What Prefect's server gets to see of a run: refusals, progress, events, a second beginning."""

import json
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterName,
)
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from partwise.blocks import RemoteCluster, StoreBlock
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError, RunExistsError, RunIdError
from partwise.flows import map_partitions, tidy_store
from partwise.flows.cli.main import main
from partwise.flows.cli.tuning_options import parse_tune
from partwise.flows.orchestration.prefect_flow import _stored
from partwise.outcomes import RunStatus
from partwise.runs.run import Run

# What Prefect shows of runs is asked of its server.
pytestmark = pytest.mark.usefixtures("prefect_server")

PATIENCE_S = 30.0
FUNCTION = "tests.flows.orchestration.test_flow_runs:once_broken"


def once_broken(data: Any, context: Any) -> None:
    """Fail for one key, as long as a file says so."""
    broken = context.params.get("broken")
    if broken and pa.fs.LocalFileSystem().get_file_info(broken).type != pa.fs.FileType.NotFound:
        raise ValueError(f"no {context.key}")


def numbers(partitions: int) -> pa.Table:
    return pa.table({"key": range(partitions), "value": range(partitions)})


def nothing(data: Any, context: Any) -> None:
    """Do nothing."""


def begin(cluster: RemoteCluster, parameters: dict[str, Any]) -> FlowRun:
    """Run the flow as a deployment does: by parameters that were sent to the server."""
    with get_client(sync_client=True) as client:
        created = client.create_flow_run(map_partitions, parameters=parameters)
        run_flow(map_partitions, flow_run=created, return_type="state")
        return client.read_flow_run(created.id)


def test_a_bad_template_is_refused_before_anything_is_read(cluster, tmp_path) -> None:
    with pytest.raises(RunIdError, match="Mars"):
        map_partitions(
            "nowhere.parquet", "key", nothing, run_id="{scheduled[Mars]}", cluster=cluster
        )


def test_options_of_prefect_change_its_flow_and_nothing_else(cluster, tmp_path) -> None:
    changed = tidy_store.with_options(name="tidied-up", timeout_seconds=60)
    assert changed(keep_last=1, dry_run=True, store=str(tmp_path)).runs == {}
    with pytest.raises(InputError, match="keep_last"):
        changed(keep_last=0, store=str(tmp_path))
    mapped = map_partitions.with_options(name="mapped")
    run = mapped(numbers(2), "key", nothing, run_id="options", cluster=cluster, store=tmp_path)
    assert run.counts == {"DONE": 2}
    with get_client(sync_client=True) as client:
        assert {"tidied-up", "mapped"} <= {each.name for each in client.read_flows()}
        (shown,) = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=["options"]))
        )
    assert shown.parameters["data"] == "<Table>"


def test_a_space_that_was_typed_is_stored_whole() -> None:
    """A run that is copied in the UI has it again."""
    space = parse_tune(["num_leaves=randint(4,64)", "bagging=1"], "--space")
    drawn = {"kind": "randint", "low": 4, "high": 64}
    assert _stored(space) == {"num_leaves": drawn, "bagging": 1}


def test_a_flow_run_has_the_name_of_its_run(cluster, tmp_path) -> None:
    run = map_partitions(
        numbers(2), "key", nothing, run_id="due-{scheduled}", store=tmp_path, cluster=cluster
    )
    began = datetime.now(UTC)
    assert run.run_id in {f"due-{day:%Y-%m-%d}" for day in (began, began - timedelta(minutes=5))}
    made_up = map_partitions(numbers(2), "key", nothing, store=tmp_path, cluster=cluster)
    with get_client(sync_client=True) as client:
        for run_id in (run.run_id, made_up.run_id):
            chosen = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
            assert len(client.read_flow_runs(flow_run_filter=chosen)) == 1


@pytest.mark.slow
def test_a_flow_run_that_begins_again_goes_on_with_its_own_run(
    cluster, tmp_path, dask_client
) -> None:
    """Retry in the UI sets its state so; `on_existing_artifacts` stays "error"."""
    source, broken = tmp_path / "rows.parquet", tmp_path / "broken"
    # The keys of a mapping in JSON are texts.
    text_keys = pa.schema([("key", pa.string()), ("value", pa.int64())])
    pq.write_table(numbers(4).cast(text_keys), source)
    broken.touch()
    parameters = {
        "data": str(source),
        "partition_by": "key",
        "function": FUNCTION,
        "run_id": "again-{scheduled:%H%M%S}",
        "params": {"2": {"broken": str(broken)}},
        "store": str(tmp_path / "store"),
        "execution": {"n_shards": 2, "max_retries": 0},
        "cluster": dask_client.scheduler.address,
    }
    pq.write_table(
        numbers(4).cast(pa.schema([("key", pa.string()), ("value", pa.int64())])), source
    )
    first = begin(cluster, parameters)
    assert first.state is not None
    assert first.state.name == "PARTIAL_FAILURE", first.state
    broken.unlink()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(first.id, Scheduled(name="AwaitingRetry"), force=True)
        run_flow(map_partitions, flow_run=client.read_flow_run(first.id), return_type="state")
        second = client.read_flow_run(first.id)
    assert second.state is not None
    assert (second.name, second.run_count) == (first.name, 2)
    assert second.state.name == "Completed", second.state
    run = Run.open(first.name, tmp_path / "store")
    assert (run.generation, run.kept, run.counts) == (2, 3, {"DONE": 4})
    # Another flow run is another matter.
    refused = begin(cluster, parameters | {"run_id": first.name}).state
    assert refused is not None
    assert refused.is_failed()
    assert "exists" in (refused.message or "")


def test_the_same_call_again_is_refused(cluster, tmp_path) -> None:
    options = {"run_id": "twice", "store": tmp_path, "cluster": cluster}
    map_partitions(numbers(2), "key", nothing, **options)
    with pytest.raises(RunExistsError, match="twice"):
        map_partitions(numbers(2), "key", nothing, **options)


def artifacts_of(run_id: str) -> dict[str, Artifact]:
    with get_client(sync_client=True) as client:
        of_name = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
        [found] = client.read_flow_runs(flow_run_filter=of_name)
        chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[found.id]))
        return {each.key: each for each in client.read_artifacts(artifact_filter=chosen)}


def test_progress_is_an_artifact_over_partitions(cluster, tmp_path) -> None:
    def fail_some(data, context):
        if context.key % 10 == 0:
            raise ValueError(f"not {context.key % 20}")

    map_partitions(
        numbers(60),
        "key",
        fail_some,
        run_id="progress",
        store=tmp_path,
        execution=ExecutionOptions(n_shards=4, max_retries=0),
        cluster=cluster,
    )
    progress = artifacts_of("progress")["map-partitions-progress"]
    assert progress.type == "progress"
    assert progress.data == 100.0
    assert progress.description == "60 of 60 partitions, 6 of them failed"


class Collected(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


def test_a_line_for_each_shard_and_each_kind_of_failure(cluster, tmp_path) -> None:
    def fail_some(data, context):
        if context.key % 2:
            raise ValueError("odd")
        if context.key % 10 == 0:
            raise KeyError("ten")

    collected = Collected()
    loggers = [logging.getLogger(f"prefect.{name}") for name in ("task_runs", "flow_runs")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(collected)
        logger.setLevel(logging.INFO)
    try:
        run = map_partitions(
            numbers(100),
            "key",
            fail_some,
            run_id="lines",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=3, max_retries=0),
            cluster=cluster,
        )
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(collected)
            logger.setLevel(level)
    shards = len(run.partitions["shard"].unique())
    of_shards = [text for _, text in collected.lines if text.startswith("shard ")]
    assert len(of_shards) == shards
    assert all("partitions in" in text and "FAILED" in text for text in of_shards)
    warnings = sorted(text for level, text in collected.lines if level == "WARNING")
    assert len(warnings) == 2
    assert "KeyError: 'ten'" in warnings[0] or "KeyError: 'ten'" in warnings[1]
    assert sum("ValueError: odd" in text for text in warnings) == 1


def test_the_end_of_a_run_is_an_event(cluster, tmp_path) -> None:
    run = map_partitions(numbers(2), "key", nothing, store=tmp_path, cluster=cluster)
    assert run.status is RunStatus.SUCCESS
    wanted = {"filter": {"event": {"name": ["partwise.run.completed"]}}, "limit": 50}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with get_client(sync_client=True) as client:
            found = client._client.post("/events/filter", json=wanted).json()["events"]
        # Other tests of this server tell it of runs without an ID.
        told = [event for event in found if event["payload"].get("run_id") == run.run_id]
        if told or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    [event] = told
    summary = run.summary
    assert event["payload"] == {
        "run_id": run.run_id, "kind": "map", "status": "SUCCESS", "store": run.store.url,
        "counts": {"DONE": 2}, "text": "SUCCESS: 2 partitions (2 DONE).",
        "seconds": (summary.finished_at - summary.started_at).total_seconds(),
    }  # fmt: skip
    resource = event["resource"]
    assert resource["prefect.resource.id"] == f"partwise.run.{run.run_id}"
    assert resource["partwise.deployment"] == ""


def test_blocks_go_by_their_names(cluster, tmp_path, capsys) -> None:
    StoreBlock(url=str(tmp_path / "store")).save("mine", overwrite=True)
    cluster.save("two", overwrite=True)
    run = map_partitions(
        numbers(2),
        "key",
        nothing,
        run_id="by-name",
        store="store-block/mine",
        cluster="remote-cluster/two",
    )
    assert run.path == f"{tmp_path}/store/runs/by-name"
    capsys.readouterr()
    assert main(["runs", "show", "by-name", "--store", "store-block/mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == "by-name"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"store": "store-block/nowhere"}, "store-block/nowhere"),
        ({"cluster": "cuda-cluster/nowhere"}, "cuda-cluster/nowhere"),
        ({"cluster": "my-cluster"}, "'my-cluster' is not a block's name"),
        ({"cluster": "tcp://example.org:8786"}, "plaintext"),
    ],
)
def test_names_that_lead_nowhere_are_refused(cluster, tmp_path, options, named) -> None:
    with pytest.raises(InputError, match=named):
        map_partitions(numbers(2), "key", nothing, **{"store": tmp_path, **options})
    assert not list(tmp_path.iterdir())
