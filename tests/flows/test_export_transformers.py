"""Models of transformers exported as the partitions of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    CheckpointError,
    InputError,
    RunNotFoundError,
    UnknownFeatureError,
    UnknownModelTypeError,
)
from partwise.flows import export_transformers, run_inference, validate_exports
from partwise.outcomes import RunStatus
from partwise.runs.layout import lay_out
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.transformers.collection import TransformersExport, read_exports, tabulate
from partwise.transformers.options import TransformersOptions
from partwise.transformers.works import REPORT_FILE
from tests.lazily import Lazily
from tests.transformers.tiny_models import tiny_model

onnxruntime = Lazily("onnxruntime")

pytestmark = pytest.mark.slow  # many models

# All in one process, as each one has to load the libraries first.
ONE = ExecutionOptions(n_shards=1, max_retries=0)
FEATURES = {
    "bert": "sequence-classification",
    "gpt2": "causal-lm",
    "resnet": "image-classification",
}
BESIDE = TransformersOptions(external_data="always")
EXACT = TransformersOptions(atol=0, rtol=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three models of different families, the weights of GPT-2 cut short."""
    folder = tmp_path_factory.mktemp("models")
    for model_type, feature in FEATURES.items():
        tiny_model(model_type, feature).save_pretrained(folder / model_type)
    weights = folder / "gpt2" / "model.safetensors"
    weights.rename(folder / "whole")
    weights.write_bytes((folder / "whole").read_bytes()[:-1000])
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def first(folder: Path, store: Path, cluster) -> Run:
    models = [
        (str(folder / "bert"), "sequence-classification"),
        {"model": str(folder / "gpt2"), "feature": "causal-lm"},
        TransformersExport(
            model=str(folder / "resnet"), feature="image-classification", options=BESIDE
        ),
        {"model": str(folder / "bert"), "name": "exact", "options": EXACT},
    ]
    return export_transformers(models, run_id="hub", store=store, execution=ONE, cluster=cluster)


@pytest.fixture(scope="module")
def resumed(first: Run, folder: Path, store: Path, cluster) -> Run:
    """The run with the weights mended, and with a tolerance that can be met."""
    os.replace(folder / "whole", folder / "gpt2" / "model.safetensors")
    models = [
        (str(folder / "bert"), "sequence-classification"),
        (str(folder / "gpt2"), "causal-lm"),
        (str(folder / "resnet"), "image-classification", BESIDE),
        {"model": str(folder / "bert"), "name": "exact"},
    ]
    return export_transformers(
        models,
        run_id="hub",
        store=store,
        on_existing_artifacts="resume",
        execution=ONE,
        cluster=cluster,
    )


def test_one_that_fails_leaves_the_others_alone(first):
    assert (first.kind, first.status) == ("export-transformers", RunStatus.PARTIAL_FAILURE)
    rows = {row["name"]: row for row in first.partitions.to_pylist()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "bert-sequence-classification": "DONE",
        "exact": "FAILED",
        "gpt2-causal-lm": "FAILED",
        "resnet-image-classification": "DONE",
    }
    assert rows["exact"]["error_type"].endswith("TransformersMismatchError")
    assert rows["exact"]["export_max_abs_diff"] > 0
    assert first.artifacts("exact") == [REPORT_FILE, "log.txt"]
    assert "last_hidden_state" in first.logs("exact")
    assert rows["gpt2-causal-lm"]["error_type"].endswith("CheckpointError")
    assert first.artifacts("gpt2-causal-lm") == ["log.txt"]


def test_the_numbers_of_an_export_are_in_the_ledger(first):
    [row] = (r for r in first.partitions.to_pylist() if r["name"] == "resnet-image-classification")
    assert 0 < row["export_max_abs_diff"] < 1e-3
    assert row["export_opset"] == 18
    assert row["export_bytes"] > 10_000
    assert row["export_cases"] >= 3
    assert 0 < row["export_seconds"] <= row["seconds"]
    report = first.artifact("resnet-image-classification", REPORT_FILE)
    assert (report["model_type"], report["feature"]) == ("resnet", "image-classification")


def test_models_come_out_of_the_run_with_the_weights_beside_them(first):
    assert {"model.onnx", "model.onnx.data"} <= set(first.artifacts("resnet-image-classification"))
    model = first.model("resnet-image-classification")
    pixels = np.random.default_rng(1).normal(size=(2, 3, 64, 64)).astype(np.float32)
    (logits,) = model.run({"pixel_values": pixels}).values()
    assert logits.shape == (2, 3)
    assert np.abs(logits[0] - logits[1]).max() > 0


def test_a_resume_redoes_what_has_changed(first, resumed):
    assert resumed.status is RunStatus.SUCCESS
    assert resumed.counts == {"DONE": 4}
    assert (resumed.kept, resumed.executed) == (2, 2)


def test_a_resume_in_another_process_needs_no_arguments(resumed, store):
    command = [sys.executable, "-m", "partwise.flows.cli.main", "runs", "resume", "hub"]
    done = subprocess.run(
        [*command, "--store", str(store)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert Run.open("hub", store).kept == 4


def test_a_run_is_laid_out_for_onnxruntime(resumed, tmp_path):
    assert lay_out(resumed, Store.parse(tmp_path)) == 4
    index = json.loads((tmp_path / "index.json").read_text())
    files = {entry["key"]["name"]: tmp_path / entry["model"] for entry in index["partitions"]}
    session = onnxruntime.InferenceSession(files["gpt2-causal-lm"])
    ids = np.array([[5, 6, 7]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    wanted = {each.name for each in session.get_inputs()}
    (logits, *_) = session.run(None, {name: feeds[name] for name in wanted})
    assert logits.shape == (1, 3, 99)


@pytest.mark.parametrize(
    ("models", "error", "words"),
    [
        ([], InputError, "is empty"),
        ([("{}/bert", "default"), ("{}/bert/", "default")], InputError, r"\[1\] is named 'bert-d"),
        ([("{}/none", "default")], CheckpointError, "'none-default' cannot .* no directory"),
        ([("{}", "default")], CheckpointError, "cannot be exported: .* no config.json"),
        ([("{}/bert", "text")], UnknownFeatureError, "'bert-text' cannot .* choose one of"),
        ([("{}/bert", "causal-lm-with-past")], UnknownFeatureError, "BERT .* has no feature"),
        ([("{}/odd", "default")], UnknownModelTypeError, "'odd-default' .*'mamba'"),
        ([{"model": "{}/bert", "options": {"opset": "x"}}], InputError, r"\[0\].*options.opset"),
        ([("{}/bert", "default", {"foo": 1})], InputError, r"\[0\].*options.foo"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(models, error, words, folder):
    (folder / "odd").mkdir(exist_ok=True)
    (folder / "odd" / "config.json").write_text('{"model_type": "mamba"}')
    text = json.dumps(models).replace("{}/", f"{folder}/").replace('"{}"', f'"{folder}"')
    with pytest.raises(error, match=words):
        tabulate(read_exports(json.loads(text)))


def test_it_is_not_taken_for_exports_of_a_training_run(first, store, cluster):
    with pytest.raises(InputError, match="is one of export_transformers"):
        validate_exports(first.run_id, store=store, cluster=cluster)


@pytest.mark.parametrize("model_format", ["native", "onnx"])
def test_no_inference_takes_it_for_trained_models(first, store, cluster, model_format):
    rows = pa.table({"name": ["bert-sequence-classification"], "x": [1.0]})
    with pytest.raises(InputError, match="'hub' is of the kind 'export-transformers'; training_"):
        run_inference(rows, "name", first.run_id, format=model_format, store=store, cluster=cluster)


def test_a_refusal_comes_before_any_work(folder, store, cluster):
    good, bad = (str(folder / "bert"), "masked-lm"), (str(folder / "bert"), "nothing")
    with pytest.raises(UnknownFeatureError, match="'bert-nothing' cannot be exported"):
        export_transformers([good, bad], run_id="refused", store=store, cluster=cluster)
    with pytest.raises(RunNotFoundError, match="refused"):
        Run.open("refused", store)


def test_prefect_is_told_which_models():
    said = export_transformers.serialize_parameters({"models": [TransformersExport(model="bert")]})
    assert said["models"][0]["model"] == "bert"
    assert said["models"][0]["options"]["format"] == "onnx"


def test_a_collection_is_looked_at_without_torch(folder):
    code = (
        "import sys; from partwise.transformers.collection import read_exports, tabulate;"
        f"print(tabulate(read_exports([({str(folder / 'bert')!r}, 'default')])).num_rows);"
        "sys.exit(not {'torch', 'transformers', 'onnx'}.isdisjoint(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_row_tells_all_that_an_export_is_made_of(folder):
    item = TransformersExport(model=str(folder / "resnet"))
    row = tabulate([item])
    assert tabulate([item]).equals(row)
    assert not tabulate([item.model_copy(update={"options": BESIDE})]).equals(row)
    assert json.loads(row["libraries"][0].as_py())["torch"]
    os.utime(folder / "resnet" / "config.json", (1, 1))
    assert tabulate([item])["files"] != row["files"]
