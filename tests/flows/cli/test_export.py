"""`partwise export`, `validate` and `pipeline`: what they take, refuse and print."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.runs.pipeline import Pipeline
from tests.command_line import Ended, partwise

pytestmark = pytest.mark.slow  # a pipeline of four runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("cli-export")
    x, y = random.normal(size=(2, 120))
    table = pa.table({"store": np.repeat(["s0", "s1", "s2"], 40), "x": x, "y": x * 3 + y})
    pq.write_table(table, path / "rows.parquet")
    return path


@pytest.fixture(scope="module")
def done(folder, cluster) -> Ended:
    """A pipeline from the command line."""
    words = ["pipeline", folder / "rows.parquet", "-p", "store", "--trainer", "xgboost"]
    words += ["--label", "y", "--rounds", "3", "--run-id", "night", "--store", folder / "store"]
    words += ["--input-layout", "columns", "--keep-columns", "x", "--max-failed-fraction", "0.1"]
    words += ["--n-shards", "1"]
    return partwise(*words, "--address", cluster.address, "--shares-filesystem")


def test_a_pipeline_prints_its_four_runs(folder, done):
    assert done.code == 0, done
    assert done.err == ""
    titles = re.findall(r"^(night-\w+)  SUCCESS in", done.out, re.MULTILINE)
    assert titles == ["night-train", "night-export", "night-validate", "night-infer"]
    assert "export_max_abs_diff" in done.out
    said = (
        f"partwise infer {folder}/rows.parquet --partition-by store --training-run-id night-export "
    )
    assert f"next: {said}--format onnx --store" in done.out
    pipeline = Pipeline.open("night", folder / "store")
    assert pipeline.inference.predictions().column_names == ["store", "x", "prediction"]
    assert [tensor.name for tensor in pipeline.export.model("s0").signature.inputs] == ["x"]


def test_exports_are_laid_out_in_a_folder(folder, done, cluster):
    words = ["export", "night-train", "--to", folder / "served", "--store", folder / "store"]
    words += ["--run-id", "again", "--address", cluster.address, "--shares-filesystem"]
    ended = partwise(*words)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1].startswith("laid out the exports of 3 partitions below ")
    index = json.loads((folder / "served" / "index.json").read_text())
    models = [folder / "served" / entry["model"] for entry in index["partitions"]]
    assert [model.name for model in models] == ["model.onnx"] * 3
    assert all(model.exists() for model in models)


@pytest.mark.parametrize(
    ("to", "message"),
    [("/proc/nowhere", "/proc/nowhere"), ("taken", "is not one of ours; choose an empty folder")],
)
def test_a_folder_that_will_not_do_is_refused_before_any_work(folder, done, to, message):
    (folder / "taken").mkdir(exist_ok=True)
    (folder / "taken" / "index.json").write_text('{"mine": 1}')
    words = ["export", "night-train", "--run-id", "vain", "--store", folder / "store"]
    ended = partwise(*words, "--to", folder / to)
    assert ended.code == 1, ended
    assert message in ended.err
    assert not (folder / "store" / "runs" / "vain").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["export", "nowhere"], 2, "There is no run 'nowhere'"),
        (["export", "night-train", "--format", "pickle"], 2, "pickle"),
        (["export", "night-infer"], 2, "is of the kind 'infer'; --training-run-id names"),
        (["export", "night-train", "--opset", "0"], 2, "--opset: "),
        (["export", "night-train", "nothere.parquet"], 2, "nothere.parquet"),
        (["export", "night-train", "--run-id", "night-train"], 2, "train"),
        (["export", "night-train", "--seed", "3"], 2, "--seed"),
        (
            ["export", "night-train", "--format", "pt2"],
            2,
            "xgboost.*cannot be exported to pt2: choose",
        ),
        (["validate", "night-train"], 2, "pass the ID|export_run_id names a run"),
        (["export", "night-train", "--format", "torchscript"], 2, "cannot be exported to torch"),
        (["export", "night-train", "--precision", "int8"], 2, "int8"),
    ],
)
def test_mistakes_are_one_line(folder, done, cluster, words, code, message):
    words = [*words, "--store", folder / "store", "--address", cluster.address]
    ended = partwise(*words, "--shares-filesystem")
    assert ended.code == code, ended
    last = ended.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert re.search(message, last), last
    assert "Traceback" not in ended.err
