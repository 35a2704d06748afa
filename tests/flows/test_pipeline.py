"""Rows in, proved exports and predictions out: four runs under one name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.calls.pipeline import PipelineCall
from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    ExportRefusedError,
    FunctionError,
    InputError,
    RunExistsError,
    RunFailedError,
    RunIdError,
    RunNotFoundError,
)
from partwise.flows import export_models, model_pipeline
from partwise.flows.cli.main import main
from partwise.flows.running.earlier_call import EarlierCall
from partwise.outcomes import RunStatus
from partwise.planning.refusals import check_stages
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.trainers import Best, LightGBMTrainer, Tuned
from partwise.tuning.space import randint
from tests.flows.export_functions import fit_some_wrong

TRAINER = LightGBMTrainer(label="y", features=("x", "z"), rounds=5, min_rows=20)
STAGES = ["p-train", "p-export", "p-validate", "p-infer"]


def table(keys: int = 4, shift: float = 0.0) -> pa.Table:
    chance = np.random.default_rng(3)
    key = np.repeat(np.arange(keys), 60)
    x, z = chance.normal(size=(2, len(key)))
    return pa.table(
        {"k": key, "x": x, "z": z, "y": x - z * key + shift, "row": np.arange(len(key))}
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pq.write_table(table(), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.mark.slow
def test_a_pipeline_is_four_runs_and_a_resume_runs_what_changed(data, tmp_path, cluster):
    settings = {"run_id": "v1.0", "store": tmp_path, "cluster": cluster, "keep_columns": ["row"]}
    settings |= {"execution": ExecutionOptions(n_shards=1)}
    done = model_pipeline(data, "k", TRAINER, **settings)
    assert [run.run_id for run in done.runs] == [f"v1.0{stage[1:]}" for stage in STAGES]
    assert done.status is RunStatus.SUCCESS
    assert [run.executed for run in done.runs] == [4, 4, 4, 4]
    assert done.inference.document.training_run_id == "v1.0-export"
    assert done.inference.predictions().num_rows == 240
    assert repr(Pipeline.open("v1.0", tmp_path)) == "Pipeline('v1.0', SUCCESS)"

    with pytest.raises(RunExistsError, match=r"v1\.0-train"):
        model_pipeline(data, "k", TRAINER, **settings)
    again = model_pipeline(data, "k", TRAINER, on_existing_artifacts="resume", **settings)
    assert [run.executed for run in again.runs] == [0, 0, 0, 0]

    # One partition changes, and with it its model, its export and its predictions.
    rows = table()
    y = np.where(rows["k"].to_numpy() == 2, rows["y"].to_numpy() * 2, rows["y"].to_numpy())
    pq.write_table(rows.set_column(3, "y", pa.array(y)), data)
    changed = model_pipeline(data, "k", TRAINER, on_existing_artifacts="resume", **settings)
    assert [run.executed for run in changed.runs] == [1, 1, 1, 1]
    assert changed.status is RunStatus.SUCCESS


@pytest.mark.slow
def test_the_failure_budget_is_a_gate_between_stages(data, tmp_path, cluster):
    settings = {"run_id": "p", "store": tmp_path, "cluster": cluster}
    strict = ExecutionOptions(max_failed=0, max_retries=0, n_shards=1)
    with pytest.raises(RunFailedError, match="p-export") as caught:
        model_pipeline(data, "k", fit_some_wrong, execution=strict, **settings)
    assert caught.value.run.run_id == "p-export"
    with pytest.raises(RunNotFoundError):
        Run.open("p-validate", tmp_path)

    lenient = ExecutionOptions(max_failed=1, max_retries=0, n_shards=1)
    done = model_pipeline(
        data, "k", fit_some_wrong, execution=lenient, on_existing_artifacts="resume", **settings
    )
    assert done.status is RunStatus.PARTIAL_FAILURE
    assert done.training.executed == 0
    assert done.export.counts == {"DONE": 3, "FAILED": 1}
    assert done.validation.counts == {"DONE": 3, "SKIPPED": 1}
    assert done.inference.counts == {"DONE": 3, "SKIPPED": 1}
    failed = done.export.partitions.filter(pc.equal(done.export.partitions["status"], "FAILED"))
    assert failed["k"].to_pylist() == [3]
    assert "1 FAILED, 2 SKIPPED on the way" in done.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "torchscript"}, "choose native or onnx"),
        ({"exporter": "tests.flows.export_functions:missing"}, "missing"),
        ({"predict": "tests.flows.export_functions:missing"}, "missing"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_first(
    data, tmp_path, prefect_server, arguments, message
):
    # Without a cluster, which training would start.
    for trainer in (TRAINER, Tuned(TRAINER, space={"num_leaves": randint(2, 8)}, trials=2)):
        with pytest.raises((ExportRefusedError, FunctionError), match=message):
            model_pipeline(data, "k", trainer, run_id="p", store=tmp_path / "store", **arguments)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("length", [55, 56, 57, 58, 60])
def test_a_name_of_which_those_of_the_stages_are_too_long_is_refused_first(
    tmp_path, length, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"k": ["a"], "x": [1.0], "y": [1.0]}), "rows.parquet")
    run_id = "p" * length
    call = PipelineCall("rows.parquet", "k", TRAINER, run_id=run_id, store="store")
    if length == 55:
        check_stages(call)
        return
    message = f"The pipeline '{run_id}' has {length} characters, and .*give a name of at most 55"
    with pytest.raises(RunIdError, match=message):
        model_pipeline(**vars(call))
    words = ["pipeline", "rows.parquet", "-p", "k", "--trainer", "lightgbm", "--label", "y"]
    assert main([*words, "--run-id", run_id, "--store", "store"]) == 2
    assert "at most 55" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_a_candidate_whose_models_nobody_knows_yet_is_not_refused():
    best = Best((TRAINER, "tests.flows.export_functions:fit_some_wrong"), metric="rmse")
    call = PipelineCall("rows.parquet", "k", best, format="torchscript")
    check_stages(call)
    with pytest.raises(ExportRefusedError):
        check_stages(replace(call, trainer=TRAINER))


@pytest.mark.parametrize(
    ("null_keys", "partitions"), [("keep", 2), pytest.param("drop", 1, marks=pytest.mark.slow)]
)
def test_a_frame_in_memory_goes_all_the_way(null_keys, partitions, tmp_path, cluster):
    rows = table(2)
    rows = rows.set_column(0, "k", pc.if_else(pc.equal(rows["k"], 1), None, rows["k"]))
    settings = {"null_keys": null_keys, "store": tmp_path, "cluster": cluster}
    settings |= {"execution": ExecutionOptions(n_shards=1)}
    done = model_pipeline(rows, "k", TRAINER, inference_data=rows, **settings)
    assert done.run_id.startswith("pipeline-")
    assert done.status is RunStatus.SUCCESS
    assert [run.counts for run in done.runs] == [{"DONE": partitions}] * 4
    assert done.inference.predictions().num_rows == 60 * partitions
    # The rows are gone, and what was held out of them can be told all the same.
    assert EarlierCall.of(done.training).trainer == TRAINER
    with pytest.raises(InputError, match="rows in memory, which are gone: pass data="):
        export_models(done.training.run_id, store=tmp_path, cluster=cluster)


@pytest.mark.slow
def test_models_of_codes_in_csv_are_exported_and_used_by_them(tmp_path, cluster):
    rows = table(2).to_pandas()
    rows.assign(k=rows["k"].map("0{}".format)).to_csv(tmp_path / "rows.csv", index=False)
    settings = {"store": tmp_path, "cluster": cluster, "execution": ExecutionOptions(n_shards=1)}
    done = model_pipeline(str(tmp_path / "rows.csv"), "k", TRAINER, **settings)
    assert [run.counts for run in done.runs] == [{"DONE": 2}] * 4
    assert set(done.inference.predictions()["k"].to_pylist()) == {"00", "01"}
