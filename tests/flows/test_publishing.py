"""What is left of a run for people to look at: the report, and artifacts in Prefect's UI."""

import json
import shlex

import pyarrow as pa
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterName,
)

from partwise.engine.options import ExecutionOptions
from partwise.errors import RunFailedError
from partwise.flows import map_partitions, train_models
from partwise.flows.orchestration.announcement import told_of
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result

# What Prefect shows of runs is asked of its server.
pytestmark = pytest.mark.usefixtures("prefect_server")

OPTIONS = ExecutionOptions(n_shards=2, max_retries=0)


def artifacts_of(run_id):
    with get_client(sync_client=True) as client:
        of_name = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
        [found] = client.read_flow_runs(flow_run_filter=of_name)
        chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[found.id]))
        found_artifacts = client.read_artifacts(artifact_filter=chosen)
    return {each.key: each.data for each in found_artifacts}


def test_a_run_leaves_a_report_a_summary_and_its_failures(cluster, tmp_path) -> None:
    def fit(data, context):
        if context.key % 5 == 0:
            raise ValueError("<b>no|pipe</b> `tick`")
        if context.key == 7:
            raise KeyError("seven")
        return Result({"mean": 1.0}, metrics={"mae": float(context.key)})

    folder = tmp_path / "bob's models"
    run = train_models(
        pa.table({"key": range(20), "value": range(20)}),
        "key",
        fit,
        run_id="left",
        store=folder,
        serde=PickleSerde(),
        execution=OPTIONS,
        cluster=cluster,
    )
    report = folder / "runs" / "left" / "report.html"
    assert "left" in report.read_text()
    found = artifacts_of("left")
    summary = found["train-models-summary"]
    assert summary.startswith("# left: PARTIAL_FAILURE\n")
    assert "| DONE | 15 |" in summary.replace("\\", "")
    assert "| mae | 1 | " in summary
    assert str(report) in summary
    where = shlex.quote(run.store.url)
    assert f"partwise runs show left --store {where} --open" in summary
    assert f"partwise runs show left --failures --store {where}" in told_of(run)
    # A user's text is shown as it is.
    assert "<b>" not in summary
    assert "\\<b\\>no\\|pipe" in summary
    causes = found["train-models-failures"]
    found_causes = json.loads(causes) if isinstance(causes, str) else causes
    keys = [(each["partitions"], each["keys"]) for each in found_causes]
    assert keys == [(4, "0, 5, 10, 15"), (1, "7")]
    assert "| 0, 5, 10, 15 |" in summary


def test_a_run_without_failures_has_no_table_of_them(cluster, tmp_path) -> None:
    map_partitions(
        pa.table({"key": range(3)}),
        "key",
        lambda data, context: None,
        run_id="clean",
        store=tmp_path,
        execution=OPTIONS,
        cluster=cluster,
    )
    assert sorted(artifacts_of("clean")) == ["map-partitions-progress", "map-partitions-summary"]


def test_a_failed_run_is_published_too(cluster, tmp_path) -> None:
    def fail(data, context):
        raise ValueError("none works")

    with pytest.raises(RunFailedError, match="none works"):
        map_partitions(
            pa.table({"key": range(3)}),
            "key",
            fail,
            run_id="none",
            store=tmp_path,
            execution=OPTIONS,
            cluster=cluster,
        )
    assert "none works" in (tmp_path / "runs" / "none" / "report.html").read_text()
    assert "map-partitions-failures" in artifacts_of("none")


def test_a_report_that_cannot_be_written_fails_nothing(cluster, tmp_path, monkeypatch) -> None:
    def no_report(run):
        raise OSError("no space left")

    monkeypatch.setattr("partwise.tasks.publish_report.write_report", no_report)
    run = map_partitions(
        pa.table({"key": range(3)}),
        "key",
        lambda data, context: None,
        store=tmp_path,
        execution=OPTIONS,
        cluster=cluster,
    )
    assert run.counts == {"DONE": 3}
