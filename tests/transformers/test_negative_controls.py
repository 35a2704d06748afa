"""Exports that were tampered with: each is found, by a check of its own."""

import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from partwise.exports.proof.judge import judge
from partwise.models.onnx_model import OnnxModel
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.flat_model import run_model
from partwise.transformers.options import TransformersOptions
from partwise.transformers.proof import expect
from tests.transformers.tiny_models import tiny_model

pytestmark = pytest.mark.slow  # many exports


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """A right export with its weights beside it, its folder, and what it has to be."""
    model = tiny_model("bert", "question-answering", one_layer=True)
    config = config_for(model.config, "question-answering")
    folder = tmp_path_factory.mktemp("right")
    options = TransformersOptions(external_data="always")
    report = export(model, config, folder, options)
    return model, config, folder, expect(model, config, options, report.opset)


def _judge(expected, file):
    return judge(str(file), expected.expectation, expected.cases)


@pytest.fixture
def tamper(right, tmp_path):
    """Return a function that changes a copy of the export, and what is found in it then."""
    _, _, folder, expected = right

    def change(how):
        copy = tmp_path / "export"
        shutil.copytree(folder, copy)
        file = copy / "model.onnx"
        model = onnx.load(file, load_external_data=False)
        how(model, copy)
        onnx.save(model, file)
        return _judge(expected, file).findings

    return change


def test_the_export_itself_is_right(right, tamper):
    assert tamper(lambda model, folder: None) == ()


def test_a_corrupt_weight_is_found_in_every_output_that_it_touches(tamper):
    def corrupt(model, folder):
        weights = folder / "model.onnx.data"
        content = np.fromfile(weights, np.float32)
        content[: len(content) // 2] *= 1.5
        content.tofile(weights)

    findings = tamper(corrupt)

    assert {finding.check for finding in findings} == {"values"}
    assert {finding.output for finding in findings} == {"start_logits", "end_logits"}
    assert all(finding.max_difference > 0 and finding.count > 0 for finding in findings)
    assert "differs in" in findings[0].message


def test_outputs_that_were_swapped_are_found(tamper):
    def swap(model, folder):
        names = [output.name for output in model.graph.output]
        for node in model.graph.node:
            for place, name in enumerate(node.output):
                if name in names:
                    node.output[place] = names[1 - names.index(name)]

    findings = tamper(swap)

    assert {finding.check for finding in findings} == {"swapped"}
    assert {finding.output for finding in findings} == {"start_logits", "end_logits"}
    assert "'start_logits' has the values of the output 'end_logits'" in findings[0].message


def test_outputs_in_another_order_are_found(tamper):
    def reverse(model, folder):
        outputs = [*model.graph.output][::-1]
        del model.graph.output[:]
        model.graph.output.extend(outputs)

    assert "outputs" in {finding.check for finding in tamper(reverse)}


def test_a_fixed_batch_is_found(tamper):
    def fix(model, folder):
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[0].dim_value = 2

    findings = tamper(fix)

    assert findings[0].check == "inputs"
    assert "batch is fixed at 2" in findings[0].message


def test_an_input_that_was_dropped_is_found(tamper):
    def drop(model, folder):
        (place,) = (i for i, v in enumerate(model.graph.input) if v.name == "token_type_ids")
        del model.graph.input[place]
        zeros = onnx.numpy_helper.from_array(np.zeros((1, 1), np.int64), "token_type_ids")
        model.graph.initializer.append(zeros)

    findings = tamper(drop)

    assert findings[0].check == "inputs"
    assert "'token_type_ids'" in findings[0].message


def test_another_opset_is_found(tamper):
    def lift(model, folder):
        (entry,) = (entry for entry in model.opset_import if not entry.domain)
        entry.version += 1

    assert "opset" in {finding.check for finding in tamper(lift)}


def test_weights_that_were_cut_off_are_found(tamper):
    def cut(model, folder):
        with (folder / "model.onnx.data").open("r+b") as file:
            file.truncate(1000)

    (finding,) = tamper(cut)

    assert finding.check == "load"
    assert "was cut off" in finding.message


def test_an_export_runs_without_torch_and_where_it_was_moved_to(right, tmp_path):
    model, config, folder, _ = right
    moved = tmp_path / "elsewhere" / "moved"
    shutil.copytree(folder, moved)
    feeds = config.generate_dummy_inputs(config.sizes_for_validation["three rows"], seed=9)
    np.savez(tmp_path / "feeds.npz", **feeds)
    code = (
        "import sys, numpy, onnxruntime\n"
        "feeds = dict(numpy.load(sys.argv[2]))\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "names = [output.name for output in session.get_outputs()]\n"
        "numpy.savez(sys.argv[3], **dict(zip(names, session.run(names, feeds))))\n"
        "assert not {'torch', 'transformers', 'partwise'} & set(sys.modules)\n"
    )
    paths = [moved / "model.onnx", tmp_path / "feeds.npz", tmp_path / "given.npz"]
    subprocess.run([sys.executable, "-c", code, *map(str, paths)], check=True, cwd=tmp_path)

    given = np.load(tmp_path / "given.npz")
    for name, values in run_model(model, config, feeds).items():
        np.testing.assert_allclose(given[name], values, atol=1e-5, rtol=1e-4)


def test_a_second_export_leaves_no_file_of_the_first_one(right, tmp_path):
    model, config, folder, _ = right
    shutil.copytree(folder, tmp_path / "out")
    (tmp_path / "out" / "prefill.onnx").write_bytes(b"of another feature")
    (tmp_path / "out" / "notes.txt").write_text("mine")

    # From a trace, which is sooner made.
    export(model, config, tmp_path / "out", TransformersOptions(opset=17))

    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"model.onnx", "notes.txt"}
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_the_file_names_its_free_axes_and_says_what_it_is(right):
    _, _, folder, _ = right
    content = (folder / "model.onnx").read_bytes()
    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph

    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        assert [dim.dim_param for dim in dims] == ["batch", "sequence"], value.name
    signature = OnnxModel.from_file(str(folder / "model.onnx")).signature
    assert signature.model_type.endswith("BertForQuestionAnswering")
    assert str(folder.parent).encode() not in content
    assert signature.outputs[0].shape == (None, None)
