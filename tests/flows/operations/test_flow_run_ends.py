"""How flow runs end on a worker: by a mistake, or suspended and resumed as in Prefect's UI."""

from typing import Any

import pytest
from prefect.states import Suspended

from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.flows.operations.project import Production, processes_of, wait_until

TREES = {"kind": "lightgbm", "label": "y", "features": ["x"], "rounds": 2, "min_rows": 1}
ONE_WORKER = {"store": "store", "cluster": {"workers": 1}}
CALLS = {
    "gang": (
        "train-distributed/train-distributed",
        {**ONE_WORKER, "data": "rows.parquet", "trainer": "mine:wait_as_ranks"},
    ),
    "study": (
        "tune-model/tune",
        {
            **ONE_WORKER,
            "data": "rows.parquet",
            "trainer": "mine:wait_as_trial",
            "space": {"x": {"kind": "uniform", "low": -1, "high": 1}},
            "metric": "loss",
            "serde": "pickle",
            "trials": 3,
        },
    ),
    "script": (
        "run-script/script",
        {
            "entry_script": "wait.py",
            "source_directory": "job",
            "store": "store",
            "cluster": {"workers": 1},
        },
    ),
    "pipeline": (
        "model-pipeline/pipeline",
        {
            "store": "store",
            "data": "rows.parquet",
            "partition_by": "k",
            "trainer": TREES,
            "format": "native",
            "predict": "mine:wait_to_predict",
            "execution": {"n_shards": 1},
        },
    ),
}
"""A deployment and parameters of each kind of run that is not one of partitions alone."""
WAITS = {"gang": "rank-0", "study": "trial-1", "script": "script", "pipeline": "predict-1"}
"""What each is at when it is suspended; all of them before have done with something."""


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
                line for line in production.lines_of(flow_run) if sentence in line
            ],
            "the log",
        )
        assert not [line for line in lines if "Traceback" in line]
        assert len(lines[-1].splitlines()) == 1


@pytest.mark.slow
def test_gangs_studies_scripts_and_pipelines_are_suspended_and_go_on_too(
    production: Production, shared_cluster: dict[str, Any]
) -> None:
    production.forget_words()
    # Each of its eight runs would start one; that those are ended is seen of the others.
    on_shared = {"pipeline": {"cluster": shared_cluster}}
    job = production.folder / "job"
    job.mkdir()
    (job / "wait.py").write_text(
        f"import sys\nsys.path.insert(0, {str(production.folder)!r})\n"
        "from mine import wait_for_go\nwait_for_go('script')\n"
    )
    asked = {
        name: production.run(
            deployment, {**parameters, **on_shared.get(name, {}), "run_id": f"suspended-{name}"}
        )
        for name, (deployment, parameters) in CALLS.items()
    }
    waiting = production.folder / "waiting"
    for word in WAITS.values():
        wait_until((waiting / word).exists, f"{word} to begin", timeout_s=300)
    for flow_run in asked.values():
        production.client.set_flow_run_state(flow_run, Suspended())
    for name, flow_run in asked.items():
        wait_until(lambda of=flow_run: not processes_of(of), f"the {name} to end")
        assert production.state(flow_run) == "Suspended", name
    for name in ("gang", "study", "script", "pipeline-infer"):
        run = Run.open(f"suspended-{name}", production.store)
        assert run.status == RunStatus.CANCELLED, name
    assert run.counts == {"DONE": 1, "CANCELLED": 7}

    (production.folder / "go").touch()
    for flow_run in asked.values():
        production.client.resume_flow_run(flow_run)
    for name, flow_run in asked.items():
        ended = production.wait(flow_run, timeout_s=300)
        assert ended.state is not None
        assert ended.state.is_completed(), (name, ended.state)
        lines = production.lines_of(flow_run)
        assert "suspended: what is done is kept, and Resume goes on with the rest" in lines
        assert not [line for line in lines if "Traceback" in line or "Error" in line], name
    for name in ("gang", "study", "script", "pipeline-infer"):
        run = Run.open(f"suspended-{name}", production.store)
        assert run.status in (RunStatus.SUCCESS, RunStatus.SKIPPED), name
        assert run.generation == 2, name
    assert (run.kept, run.executed) == (1, 7)
    assert Run.open("suspended-study", production.store).trials.num_rows == 3
    production.forget_words()
