"""How flow runs end on a worker: by a mistake, or suspended and resumed as in Prefect's UI."""

from uuid import UUID

import pytest
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.states import Suspended

from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.flows.operations.project import Production, processes_of, wait_until


def lines_of(production: Production, flow_run: UUID) -> list[str]:
    """What the UI shows as the log of a flow run."""
    chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run]))
    return [log.message for log in production.client.read_logs(log_filter=chosen)]


@pytest.mark.slow
def test_a_mistake_is_a_sentence_in_the_state_and_the_log(production: Production) -> None:
    trainer = {"kind": "lightgbm", "label": "nope"}
    mistakes = {
        "The label 'nope' is missing": ("train-models/train", {"run_id": "m", "trainer": trainer}),
        "no file or directory": ("map-partitions/map", {"run_id": "m", "data": "nope.parquet"}),
        "There is no run 'nope'": (
            "run-inference/infer",
            {"run_id": "m", "training_run_id": "nope"},
        ),
        "is not a safe name": ("map-partitions/map", {"run_id": "a/b"}),
    }
    asked = {}
    for sentence, (deployment, given) in mistakes.items():
        function = {"function": "mine:first_row"} if deployment == "map-partitions/map" else {}
        parameters = {**production.small("m"), **function, **given}
        asked[sentence] = production.run(deployment, parameters)
    for sentence, flow_run in asked.items():
        state = production.wait(flow_run).state
        assert state is not None
        assert state.name == "Failed"
        assert sentence in (state.message or "")
        # Prefect sends lines every few seconds.
        lines = wait_until(
            lambda flow_run=flow_run, sentence=sentence: [
                line for line in lines_of(production, flow_run) if sentence in line
            ],
            "the log",
        )
        assert not [line for line in lines if "Traceback" in line]
        assert len(lines[-1].splitlines()) == 1


@pytest.mark.slow
def test_a_suspended_flow_run_ends_in_order_and_goes_on_where_it_was(
    production: Production,
) -> None:
    production.forget_words()
    parameters = production.small("suspended", function="mine:wait_for_word")
    flow_run = production.run("map-partitions/map", parameters)
    production.await_words(2)
    # As the buttons of the UI do.
    production.client.set_flow_run_state(flow_run, Suspended())
    wait_until(lambda: not processes_of(flow_run), "the flow run to end", timeout_s=60)
    assert production.state(flow_run) == "Suspended"
    run = Run.open("suspended", production.store)
    assert (run.status, run.counts) == (RunStatus.CANCELLED, {"DONE": 1, "CANCELLED": 7})

    (production.folder / "go").touch()
    production.client.resume_flow_run(flow_run)
    ended = production.wait(flow_run)
    assert ended.state is not None
    assert ended.state.name == "Completed", ended.state
    run = Run.open("suspended", production.store)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": 8})
    assert (run.generation, run.kept, run.executed) == (2, 1, 7)
    lines = lines_of(production, flow_run)
    assert "suspended: what is done is kept, and Resume goes on with the rest" in lines
    assert not [line for line in lines if "Traceback" in line or "Error" in line]
    production.forget_words()
