"""Runs that a call names by "latest" or a pattern: the newest with models, which a resume keeps."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import RunNotFoundError
from partwise.flows import (
    compare_models,
    evaluate_predictions,
    export_models,
    run_inference,
    train_models,
    validate_exports,
)
from partwise.flows.cli.main import main
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer
from tests.flows.inference_functions import fit_mean

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS = 40


def sales(shift: float = 0.0) -> pa.Table:
    x = [float(i % 7) for i in range(ROWS)]
    day = list(range(ROWS))
    columns = {"key": ["a"] * ROWS, "x": x, "day": day, "value": [2 * each + shift for each in x]}
    return pa.table(columns)


@pytest.fixture
def call(cluster, tmp_path) -> dict[str, Any]:
    return {"store": tmp_path / "store", "cluster": cluster}


def train(run_id: str, call: dict[str, Any], trainer: Any = None, data: Any = None) -> Run:
    trainer = trainer or LightGBMTrainer("value", features=["x"], rounds=3)
    return train_models(sales() if data is None else data, "key", trainer, run_id=run_id, **call)


def used_by(run_id: str, call: dict[str, Any]) -> Any:
    """The arguments of a run as they are written down."""
    document = Run.open(run_id, call["store"]).read_generation_document()
    return (document.call or document.call_known or {})["arguments"]


def test_latest_and_patterns_are_the_newest_with_models(call, caplog):
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    for run_id in ("nightly-1", "nightly-2", "other"):
        train(run_id, call)
    # Newer than all, without a model, and of another kind.
    with pytest.raises(Exception, match="FAILURE"):
        train("nightly-bad", call, fit_mean, sales().drop_columns("value"))
    for name, taken in (
        ("latest", "other"),
        ("nightly-*", "nightly-2"),
        ("nightly-?", "nightly-2"),
    ):
        caplog.clear()
        run = run_inference(sales(), "key", name, **call)
        assert run.document.models == (f"run://{taken}",)
        assert used_by(run.run_id, call)["training_run_id"] == taken
        assert f"{name!r} is the run {taken!r} (train, SUCCESS, 1 DONE" in caplog.text
    # As what is asked next, and by a reference.
    run = run_inference(sales(), "key", models="run://nightly-*", fallback=["run://other"], **call)
    assert used_by(run.run_id, call)["models"] == "run://nightly-2"
    with pytest.raises(RunNotFoundError, match=r"'weekly-\*' means the newest run of train_models"):
        run_inference(sales(), "key", "weekly-*", **call)


def test_a_resume_goes_on_with_the_run_that_it_began_with(call, caplog):
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    train("nightly-1", call)
    again = {"run_id": "used", "on_existing_artifacts": "resume", **call}
    run_inference(sales(), "key", "nightly-*", fallback=["run://nightly-*", 0], **again)
    train("nightly-2", call)
    resumed = run_inference(sales(), "key", "nightly-*", fallback=["run://nightly-*", 0], **again)
    assert resumed.document.models == ("run://nightly-1", "run://nightly-1")
    assert (resumed.kept, resumed.executed) == (1, 0)
    assert "the run 'used' goes on with 'nightly-1'" in caplog.text
    # A new run takes the newest.
    assert run_inference(sales(), "key", "nightly-*", **call).document.models == (
        "run://nightly-2",
    )


def test_a_key_without_a_model_has_that_of_the_night_before(call, caplog):
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    both = pa.concat_tables([sales(), sales(1.0).set_column(0, "key", pa.array(["b"] * ROWS))])
    short = pa.concat_tables([sales(), both.slice(ROWS, 2)])
    few = LightGBMTrainer("value", features=["x"], rounds=3, min_rows=20)
    train("nightly-1", call, few, both)
    train("nightly-2", call, few, short)
    train("regions", call, few, both)
    given = {"run_id": "used", "on_missing_model": "previous", "fallback": ["run://regi*"], **call}
    run = run_inference(both, "key", "nightly-*", **given)
    rows = (
        run.predictions(["key", "model_run", "model_level"])
        .group_by("key")
        .aggregate([("model_run", "max"), ("model_level", "max")])
    )
    assert sorted(map(tuple, map(dict.values, rows.to_pylist()))) == [
        ("a", "nightly-2", 0),
        ("b", "nightly-1", 1),
    ]
    assert "have those of run://nightly-1 (1 key)." in caplog.text
    assert used_by("used", call)["fallback"] == ["run://nightly-1", "run://regions"]
    # Whatever was trained since, a resume asks the same runs.
    train("nightly-3", call, few, both)
    resumed = run_inference(both, "key", "nightly-*", on_existing_artifacts="resume", **given)
    assert resumed.document.models == ("run://nightly-2", "run://nightly-1", "run://regions")
    assert (resumed.kept, resumed.executed) == (2, 0)


def test_a_run_of_that_very_name_is_meant(call):
    train("latest", call)
    train("newer", call)
    assert run_inference(sales(), "key", "latest", **call).document.models == ("run://latest",)


@pytest.mark.slow
def test_exports_evaluations_and_comparisons_name_runs_so(call):
    train("nightly-1", call)
    train("nightly-2", call)
    exported = export_models("nightly-*", data=sales(), run_id="nightly-2-onnx", **call)
    assert exported.document.training_run_id == "nightly-2"
    proved = validate_exports("latest", data=sales(), **call)
    assert used_by(proved.run_id, call)["export_run_id"] == "nightly-2-onnx"
    # With a format, the exports are meant.
    used = run_inference(
        sales(), "key", "latest", format="onnx", keep_columns=["day"], run_id="used-1", **call
    )
    assert used.document.models == ("run://nightly-2-onnx",)
    evaluated = evaluate_predictions(
        sales(), inference_run_id="used-*", on="day", label="value", **call
    )
    assert used_by(evaluated.run_id, call)["inference_run_id"] == "used-1"
    compared = compare_models(sales(1.0), "key", ["nightly-1", "latest"], "value", **call)
    assert used_by(compared.run_id, call)["candidates"] == [
        "run://nightly-1@1",
        "run://nightly-2@1",
    ]
    again = {"run_id": compared.run_id, "on_existing_artifacts": "resume", **call}
    train("nightly-3", call)
    resumed = compare_models(sales(1.0), "key", ["nightly-1", "latest"], "value", **again)
    assert used_by(resumed.run_id, call)["candidates"] == ["run://nightly-1@1", "run://nightly-2@1"]


def test_a_command_says_which_run_it_takes(call, capsys, tmp_path: Path):
    pq.write_table(sales(), tmp_path / "new.parquet")
    train("nightly-1", call)
    words = ["infer", str(tmp_path / "new.parquet"), "--partition-by", "key", "--run-id", "used"]
    words += ["--store", str(call["store"]), "--cluster", call["cluster"].address]
    assert main([*words, "--training-run-id", "nightly-*"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("training_run_id='nightly-*' is the run 'nightly-1'") == 1
    assert (
        main([*words, "--training-run-id", "weekly-*", "--on-existing-artifacts", "overwrite"]) == 2
    )
    assert "--training-run-id weekly-* means the newest run" in capsys.readouterr().err
