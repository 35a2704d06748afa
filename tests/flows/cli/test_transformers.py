"""`partwise transformers`: what it prints, what it keeps, and what it ends with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from partwise.exports.proof.judge import close_judges
from partwise.flows.cli.transformers_log import print_mismatch
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.report import ExportReport, FileReport, OutputReport
from tests import command_line
from tests.command_line import Ended
from tests.transformers.tiny_checkpoints import save_checkpoint, save_tokenizer

CLASSIFIER = "sequence-classification"
START_S = 120.0


class NoTypesOnnxConfig(OnnxConfig):
    """BERT without the types of its tokens."""

    @property
    def inputs(self):
        tokens = {0: "batch", 1: "sequence"}
        return {"input_ids": tokens, "attention_mask": tokens}


@pytest.fixture(scope="module", autouse=True)
def no_judge_outlives_the_tests() -> Iterator[None]:
    yield
    close_judges()


def partwise(*words: object) -> Ended:
    """Carry out a command of `partwise transformers` in this process."""
    return command_line.partwise("transformers", *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli-transformers")
    save_checkpoint(path / "bert", "bert", CLASSIFIER)
    save_tokenizer(path / "bert")
    return path


@pytest.fixture(scope="module")
def exported(folder) -> Ended:
    return partwise("export", folder / "bert", folder / "onnx", "--feature", CLASSIFIER)


@pytest.fixture
def model(folder, exported) -> Path:
    assert exported.code == 0, exported
    return folder / "onnx" / "model.onnx"


def test_the_log_is_the_one_that_people_know(folder, exported):
    assert exported.code == 0, exported
    assert exported.out == ""
    odd = "values below 0 in 'input_ids', values below 0 in 'token_type_ids'"
    assert [line.strip() for line in exported.err.splitlines()[2:]] == [
        "Validating ONNX model...",
        "-[✓] ONNX model output names match reference model ({'logits'})",
        '- Validating ONNX Model output "logits":',
        "-[✓] (3, 3) matches (3, 3)",
        "-[✓] all values close (scaled: 5e-05)",
        f"- The file refuses {odd}: it would predict otherwise than its model.",
        f"All good, model saved at: {folder / 'onnx' / 'model.onnx'}",
    ]
    assert exported.err.startswith(f"Exporting {folder / 'bert'} for '{CLASSIFIER}' as ONNX...\n")
    assert re.search(r"^Using torch .*, transformers .*, opset 18$", exported.err, re.MULTILINE)


def test_what_serves_the_model_lies_beside_it(folder, model):
    names = {"model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in model.parent.iterdir()} == names
    assert not list(folder.glob(".partwise-*"))


@pytest.mark.slow
def test_a_mismatch_is_told_in_full_and_leaves_nothing(folder):
    words = ["--feature", CLASSIFIER, "--atol", 0, "--rtol", 0, "--json"]
    ended = partwise("export", folder / "bert", folder / "vain" / "onnx", *words)
    assert ended.code == 1
    error = json.loads(ended.out)["error"]
    assert error["type"] == "TransformersMismatchError"
    found = error["report"]["files"][0]["outputs"][0]
    assert found["name"] == "logits"
    assert all(
        re.search(r"differs in \d+ of \d+ values: by .* at most, at", each)
        for each in found["findings"]
    )
    assert ended.err.count("\t\t-[x] ") == len(found["findings"]) > 0
    assert "-[✓] all values close" not in ended.err
    assert "All good" not in ended.err
    assert ended.err.splitlines()[-1] == (
        "error: the export differs from its model in 1 of 1 outputs; nothing was kept."
    )
    assert not (folder / "vain").exists()
    assert not list(folder.glob(".partwise-*"))


def test_an_export_is_checked_again(folder, model):
    ended = partwise("check", model, folder / "bert", "--json", "--preprocessor", "tokenizer")
    assert ended.code == 0, ended
    report = json.loads(ended.out)
    assert report["is_right"] is True
    assert report["feature"] == CLASSIFIER
    assert report["opset"] == 18
    cases = ["one short row", "three rows", "longer rows", "preprocessed", "one long row"]
    assert report["files"][0]["cases"] == cases
    assert ended.err.startswith(f"Feature: {CLASSIFIER}\n")
    assert ended.err.endswith(f"All good: {model}\n")


def test_a_file_of_another_writer_is_checked_without_a_signature(folder, model, tmp_path):
    graph = onnx.load(model)
    del graph.metadata_props[:]
    onnx.save(graph, tmp_path / "foreign.onnx")
    ended = partwise("check", tmp_path / "foreign.onnx", folder / "bert")
    assert ended.code == 0, ended
    assert "partwise did not write it" in ended.err


@pytest.mark.slow
def test_a_file_of_8_bits_is_told_from_one_that_is_exact(folder, tmp_path):
    words = ["--feature", CLASSIFIER, "--quantize", "int8"]
    assert partwise("export", folder / "bert", tmp_path / "int8.onnx", *words).code == 0
    ended = partwise("check", tmp_path / "int8.onnx", folder / "bert")
    assert ended.code == 0, ended
    assert "-[✓] int8 moves it by " in ended.err
    assert "all values close" not in ended.err


def test_a_file_that_fails_differs_as_a_whole(capsys):
    file = FileReport(
        name="model.onnx",
        bytes=1,
        inputs=("input_ids",),
        outputs=(OutputReport(name="logits", shape=(1, 2)),),
        cases=(),
        atol=0,
        rtol=0,
        metrics={},
        findings=("It fails.",),
    )
    found = ExportReport(
        model_type="bert",
        feature="default",
        format="onnx",
        opset=18,
        seconds=1,
        versions={},
        files=(file,),
    )
    print_mismatch(found)
    expected = "error: the export differs from its model as a whole; nothing was kept.\n"
    assert capsys.readouterr().err == expected


def spoil_a_weight(graph: onnx.ModelProto) -> None:
    (weight,) = (each for each in graph.graph.initializer if "classifier.weight" in each.name)
    values = onnx.numpy_helper.to_array(weight) + np.float32(0.25)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))


def rename_the_output(graph: onnx.ModelProto) -> None:
    (last,) = (node for node in graph.graph.node if "logits" in node.output)
    last.output[0] = graph.graph.output[0].name = "scores"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_a_weight, r"\t\t-\[x\] .*'logits'.* differs in .* values: by "),
        (rename_the_output, r"\t-\[x\] The graph's outputs are \['scores'\], where \['logits'\]"),
    ],
)
def test_a_wrong_file_fails_its_check(folder, model, tmp_path, spoil, message):
    graph = onnx.load(model)
    spoil(graph)
    onnx.save(graph, tmp_path / "spoilt.onnx")
    ended = partwise("check", tmp_path / "spoilt.onnx", folder / "bert", "--feature", CLASSIFIER)
    assert ended.code == 1, ended
    assert re.search(message, ended.err), ended.err
    assert "-[✓] all values close" not in ended.err
    last = ended.err.splitlines()[-1]
    assert re.fullmatch(rf"error: .*spoilt\.onnx is not an export of .* for '{CLASSIFIER}'\.", last)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.onnx", "bert"], "There is no file nowhere.onnx"),
        (["bert/config.json", "bert"], "is not an export by its name"),
        (["onnx/model.onnx", "./brt"], "There is no directory ./brt (there is bert)"),
        (["onnx/model.onnx", "bart", "--feature", "seq2seq-lm-with-past"], "no file onnx/prefill"),
        (["bert/text.onnx", "bert"], "bert/text.onnx is broken or no ONNX"),
        (["bert/text.pt2", "bert"], "bert/text.pt2 is broken or no .pt or .pt2"),
    ],
)
def test_what_cannot_be_checked_is_told(folder, model, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    for name in ("text.onnx", "text.pt2"):
        Path("bert", name).write_text("no model")
    if not Path("bart").exists():
        save_checkpoint(Path("bart"), "bart", "seq2seq-lm")
    ended = partwise("check", *words)
    assert ended.code == 2, ended
    assert ended.out == ""
    assert message in ended.err.splitlines()[-1]


def test_the_command_lines_of_the_guides_run(folder, monkeypatch):
    """With `partwise transformers export` in the place of `python -m transformers.onnx`."""
    monkeypatch.chdir(folder)
    words = ["--model=bert", f"--feature={CLASSIFIER}", "--opset", "11", "--atol=1e-4", "old/"]
    ended = partwise("export", *words)
    assert ended.code == 0, ended
    assert "All good, model saved at: old/model.onnx" in ended.err
    assert [entry.version for entry in onnx.load("old/model.onnx").opset_import] == [11]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--framework=pt", "x"], "There is no --framework here: transformers 5 has torch only."),
        (["--cache_dir", "c", "x"], "There is no --cache_dir here: set the environment variable"),
        (["--export_with_transformers", "x"], "There is no --export_with_transformers here"),
        (["x", "y"], "MODEL is given twice: x and --model bert."),
    ],
)
def test_what_a_command_line_of_the_guides_has_too_much_is_said(folder, words, message):
    ended = partwise("export", "-m", "bert", *words)
    assert ended.code == 2, ended
    assert message in ended.err.splitlines()[-1]


def test_an_output_that_is_not_named_is_said():
    ended = partwise("export", "bert")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("error: OUTPUT is missing: name a folder")


def test_a_table_of_all_architectures_is_shown():
    ended = partwise("features")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert len(lines) == 63
    assert lines[1].split()[:3] == ["albert", "ALBERT", "default,"]
    found = json.loads(partwise("features", "--json").out)["architectures"]
    assert sum(len(each["features"]) for each in found) > 240


def test_what_an_architecture_takes_and_gives_is_shown():
    ended = partwise("features", "gpt_neo")
    assert ended.code == 0
    assert "causal-lm-with-past  (AutoModelForCausalLM; opset 18, scaled 5e-05" in ended.out
    assert re.search(r"present\.\{layer\}\.key +0: batch, 2: past_sequence \+ seq", ended.out)
    table = json.loads(partwise("features", "vit", "--json").out)
    (row,) = (each for each in table["features"] if each["feature"] == "image-classification")
    assert row["inputs"] == {"pixel_values": {"0": "batch", "2": "height", "3": "width"}}
    assert row["scaled"] == 5e-5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["features", "gpt-3"], "'gpt-3' is not in the table of architectures; there are albert, "),
        (["export", "bert", "x", "--feature", "poetry"], "There is no feature 'poetry'"),
        (["export", "bert", "x", "--opset", "9"], "Opset 9 is not sufficient for bert"),
        (["export", "bert", "x", "--opset", "0"], "--opset: Input should be greater than or equal"),
        (["export", "bert", "x", "--config", "json"], "'json' does not name a class"),
        (["export", "bert", "x", "--config", "json:dumps"], "'json:dumps' is not an OnnxConfig"),
        (["export", "bert", "x", "--format", "tflite"], 'Invalid value "tflite"'),
    ],
)
def test_bad_input_is_told_in_one_line(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    ended = partwise(*words)
    assert ended.code == 2, ended
    assert ended.out == ""
    last = ended.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not (folder / "x").exists()


def test_an_error_is_an_object_for_machines(folder, monkeypatch):
    monkeypatch.chdir(folder)
    ended = partwise("export", "nowhere/bert", "x", "--json")
    assert ended.code == 2
    error = json.loads(ended.out)["error"]
    assert error["type"] == "CheckpointError"
    assert error["message"].startswith("There is no directory nowhere/bert")


def test_a_config_of_ones_own_says_what_a_model_takes(folder, model, tmp_path):
    """The graph has an input more than this configuration knows, which the check names."""
    words = ["--config", "tests.flows.cli.test_transformers:NoTypesOnnxConfig"]
    words += ["--feature", CLASSIFIER]
    ended = partwise("check", model, folder / "bert", *words)
    assert ended.code == 1, ended
    assert "where ['input_ids', 'attention_mask'] are expected" in ended.err


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(folder, tmp_path):
    shutil.copytree(folder / "bert", tmp_path / "bert")
    words = ["transformers", "export", "bert", "made/onnx", "--feature", CLASSIFIER]
    command = [sys.executable, "-m", "partwise.flows.cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + START_S
        while not list(tmp_path.glob(".partwise-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # The folder is there a moment before what removes it.
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=START_S)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "error: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
