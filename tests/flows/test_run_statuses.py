"""Each status of a run, everywhere it shows: the page, states, exit codes, events, lists, reports.

The table in docs/settings.md is what is promised, and the enumeration is what there is: a status
that is added has to be added to both, and is then looked for everywhere.
"""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.calls.exports import ExportCall
from partwise.calls.partitions import InferCall
from partwise.errors import ModelNotFoundError
from partwise.flows import model_pipeline, run_script
from partwise.flows.cli import flow_calls
from partwise.flows.cli.main import main
from partwise.flows.cli.output import STYLES
from partwise.flows.orchestration import announcement
from partwise.flows.orchestration.endings import result_of
from partwise.flows.orchestration.states import state_of
from partwise.outcomes import CANCELLED, PartitionStatus, RunStatus
from partwise.planning.exports import prepare_export
from partwise.planning.models import models_of_call
from partwise.reports.next_command import next_command
from partwise.reports.report import render_report
from partwise.runs.completion import run_status
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.sources.opening import open_source
from partwise.store.store import Store
from tests.run_maker import RunMaker

BEGUN = uuid4()
IDS = {"nightly": uuid4(), "on-demand": uuid4()}
"""Of a flow run, and of deployments."""
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = {
    RunStatus.SUCCESS: ("DONE", "SKIPPED"),
    RunStatus.PARTIAL_FAILURE: ("DONE", "FAILED"),
    RunStatus.SKIPPED: ("SKIPPED", "SKIPPED"),
    RunStatus.FAILURE: ("FAILED", "SKIPPED"),
    RunStatus.CANCELLED: ("DONE", "CANCELLED"),
    RunStatus.IN_PROGRESS: ("DONE", "SKIPPED"),
}
"""What became of the partitions of a run that ends so."""
ENDED = [status for status in RunStatus if status is not RunStatus.IN_PROGRESS]


def promised() -> dict[str, tuple[str, str]]:
    """By status: the state and the exit code in the table of docs/settings.md."""
    page = (ROOT / "docs" / "settings.md").read_text()
    section = page.partition("## How a run ends")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| [A-Z]+", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {status: (state, code) for status, _, state, code in rows}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """A store with a run of each status, named for it."""
    store = Store.parse(tmp_path_factory.mktemp("store"))
    for status, partitions in PARTITIONS.items():
        maker = RunMaker(store, status.value, kind="train", serde="lightgbm")
        maker.begin()
        maker.commit(*((f"key-{i}", became, 1.0) for i, became in enumerate(partitions)))
        if status is RunStatus.IN_PROGRESS:
            maker.leave()
        else:
            maker.end(len(partitions), CANCELLED if status is RunStatus.CANCELLED else None)
    return store


def test_every_status_has_a_row_on_the_page_and_a_run_in_these_tests(store) -> None:
    assert promised().keys() == PARTITIONS.keys() == set(RunStatus)
    assert [Run.open(status, store).status for status in RunStatus] == list(RunStatus)


@pytest.mark.parametrize("status", ENDED)
def test_a_flow_run_ends_in_the_state_of_the_page(status, store) -> None:
    name, _, kind = promised()[status][0].partition(", of the type ")
    state = state_of(Run.open(status, store))
    assert (state.name, state.type.value) == (name, (kind or name).upper())
    assert state.message


@pytest.mark.parametrize("status", ENDED)
def test_a_command_ends_with_the_exit_code_of_the_page(
    status, store, tmp_path, monkeypatch, capsys
) -> None:
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "rows.parquet")
    # The flow alone is replaced, by one whose run ended so.
    monkeypatch.setattr(flow_calls, "call_flow", lambda *_: result_of(Run.open(status, store)))
    words = ["train", str(tmp_path / "rows.parquet"), "-p", "key", "--trainer", "shutil:copy"]
    assert main([*words, "--run-id", "r"]) == int(promised()[status][1])
    assert capsys.readouterr().out.startswith(f"{status.value}  {status.value} in ")


@pytest.mark.parametrize("status", ENDED)
def test_the_event_of_its_end_names_the_status(status, store, monkeypatch) -> None:
    sent = []
    monkeypatch.setattr(announcement, "emit_event", lambda **event: sent.append(event))
    announcement.announce(Run.open(status, store))
    [event] = sent
    assert event["resource"]["partwise.status"] == event["payload"]["status"] == status.value
    assert event["payload"]["counts"] == Run.open(status, store).counts


@pytest.mark.parametrize("status", [RunStatus.FAILURE, RunStatus.CANCELLED])
def test_a_pipeline_that_a_stage_ends_is_told_of_once(status, store, monkeypatch) -> None:
    def carry_out(arguments):
        return result_of(Run.open(status, store))

    sent = []
    monkeypatch.setattr(announcement, "emit_event", lambda **event: sent.append(event))
    monkeypatch.setattr(model_pipeline, "carry_out", carry_out)
    state = model_pipeline.flow._end_of({"run_id": "night", "cluster": ""})
    assert state.type.value in ("FAILED", "CANCELLED")
    [event] = sent
    assert event["resource"]["prefect.resource.id"] == "partwise.run.night"
    assert event["resource"]["partwise.kind"] == event["payload"]["kind"] == "pipeline"
    assert event["resource"]["partwise.status"] == event["payload"]["status"] == status.value
    assert f"partwise runs show {status} " in event["payload"]["text"] or status == "CANCELLED"


@pytest.mark.parametrize(
    ("deployment", "sent_to", "told"),
    [("nightly", "on-demand", 1), ("nightly", "nightly", 0), (None, "on-demand", 0)],
)
def test_a_deployment_whose_script_works_in_a_pool_is_told_of_once(
    deployment, sent_to, told, store, monkeypatch
) -> None:
    class Client:
        def read_flow_runs(self, flow_run_filter, limit):
            assert flow_run_filter.parent_flow_run_id.any_ == [BEGUN]
            [asked] = flow_run_filter.deployment_id.any_
            return [1] if asked == IDS[sent_to] else []

    begun = SimpleNamespace(id=BEGUN, deployment_id=IDS.get(deployment))
    monkeypatch.setattr(announcement, "current_flow_run", lambda: begun)
    monkeypatch.setattr(announcement, "get_client", lambda **_: nullcontext(Client()))
    monkeypatch.setattr(announcement, "_deployment", lambda: "run-script/nightly")
    sent = []
    monkeypatch.setattr(announcement, "emit_event", lambda **event: sent.append(event))
    monkeypatch.setattr(run_script, "carry_out", lambda _: Run.open("FAILURE", store))
    run_script.flow._end_of({"run_id": "FAILURE", "cluster": "work-pool/p"})
    assert [each["resource"]["partwise.status"] for each in sent] == ["FAILURE"] * told


def test_the_list_of_runs_shows_each_status_and_counts_each_partition(store, capsys) -> None:
    assert main(["runs", "list", "--store", store.url]) == 0
    heads, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heads[2:8] == ["STATUS", "PARTITIONS", "DONE", "SKIPPED", "FAILED", "CANCELLED"]
    assert {line[0]: line[2] for line in lines} == {status: status for status in RunStatus}
    for line in lines:
        assert int(line[3]) == sum(map(int, line[4:8])) == len(PARTITIONS[RunStatus(line[0])])
    assert main(["runs", "list", "--store", store.url, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {record["status"] for record in records} == set(RunStatus)


@pytest.mark.parametrize("status", RunStatus)
def test_a_run_is_shown_with_its_status_and_what_to_do_next(status, store, capsys) -> None:
    run = Run.open(status, store)
    assert main(["runs", "show", status, "--store", store.url]) == 0
    assert capsys.readouterr().out.startswith(f"{status}  {status}")
    assert next_command(run)[0].startswith("partwise ")
    label = status.replace("_", " ")
    assert f'<span class="status {status}">{label}</span>' in render_report(run)


@pytest.mark.parametrize("status", [*RunStatus, *PartitionStatus])
def test_a_status_has_a_colour(status) -> None:
    # Those that no ledger has yet.
    if status not in (PartitionStatus.PENDING, PartitionStatus.RUNNING):
        assert status in STYLES


@pytest.mark.parametrize("status", RunStatus)
def test_a_pipeline_is_as_its_worst_stage(status, store) -> None:
    worst, good = Run.open(status, store), Run.open(RunStatus.SUCCESS, store)
    pipeline = Pipeline("p", training=good, export=worst, validation=good, inference=good)
    assert pipeline.status is status
    assert pipeline.message.startswith(f"{status}: ")


class TestSkipped:
    def test_it_takes_all_partitions_and_at_least_one(self) -> None:
        assert run_status({"SKIPPED": 3}, None) is RunStatus.SKIPPED
        assert run_status({"SKIPPED": 3, "DONE": 1}, None) is RunStatus.SUCCESS
        assert run_status({"SKIPPED": 3, "FAILED": 1}, None) is RunStatus.FAILURE
        assert run_status({"SKIPPED": 3}, CANCELLED) is RunStatus.CANCELLED
        assert run_status({}, None) is RunStatus.SUCCESS

    def test_its_reasons_stand_everywhere(self, store, capsys) -> None:
        run = Run.open("SKIPPED", store)
        assert run.summary is not None
        assert run.summary.message == (
            "SKIPPED: 2 partitions (2 SKIPPED). Nothing was made: 2 x too few rows."
        )
        assert state_of(run).message == run.summary.message
        assert "2 x too few rows" in render_report(run)
        assert main(["runs", "show", "SKIPPED", "--store", store.url]) == 0
        assert "  skipped     2 x too few rows\n" in capsys.readouterr().out
        assert main(["runs", "show", "SKIPPED", "--store", store.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["message"] == run.summary.message

    def test_inference_and_export_by_it_say_why_there_is_no_model(self, store) -> None:
        source, run = open_source(pa.table({"key": ["a"]})), Run.open("SKIPPED", store)
        why = r"'SKIPPED' \(SKIPPED\) has no model: every partition was skipped \(2 x too few rows"
        with pytest.raises(ModelNotFoundError, match=why):
            models_of_call(InferCall(source, "key", "SKIPPED", run_id="r"), store)
        with pytest.raises(ModelNotFoundError, match=why):
            prepare_export(ExportCall("SKIPPED", run_id="r"), source, run)
