"""ONNX files: written with their signature, and read without trusting what they name."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from partwise.errors import ExportRefusedError, IntegrityError
from partwise.models import onnx_files
from partwise.models.onnx_files import (
    OnnxContent,
    open_session,
    read_graph,
    read_onnx,
    save_onnx,
)
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import METADATA_KEY, Signature, Tensor

FLOAT = onnx.TensorProto.FLOAT
WEIGHTS = np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)
BIAS = np.linspace(-1, 1, 512, dtype=np.float32)
ROWS = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)
SIGNATURE = Signature(
    inputs=(Tensor(name="x", dtype="float32", shape=(None, 64)),),
    outputs=(Tensor(name="y", dtype="float32", shape=(None, 512)),),
    layout="custom",
    prediction="y",
    model_type="tests.Model",
)


def make_model() -> Any:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    # One with raw bytes and one with a list of numbers, as converters write them.
    weights = [
        numpy_helper.from_array(WEIGHTS, "w"),
        helper.make_tensor("b", FLOAT, [512], BIAS.tolist()),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [None, 64])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, [None, 512])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    save_onnx(make_model(), SIGNATURE, str(folder / "model.onnx"), embedded_bytes=0)
    return folder / "model.onnx"


def predict(content: OnnxContent) -> np.ndarray:
    (found,) = open_session(content).run(None, {"x": ROWS})
    return found


def change(path: Path, **places: str) -> None:
    """Let the model name another place for its weights."""
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = places.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("embedded_bytes", [0, 10**6])
def test_a_model_comes_back_with_its_signature(tmp_path, embedded_bytes):
    file_path = str(tmp_path / "model.onnx")
    save_onnx(make_model(), SIGNATURE, file_path, embedded_bytes)

    content = read_onnx(file_path)

    beside = [] if embedded_bytes else ["model.onnx.data"]
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", *beside]
    assert list(content.files) == beside
    np.testing.assert_allclose(predict(content), ROWS @ WEIGHTS + BIAS, atol=1e-4)
    assert OnnxModel.of_content(content).signature == SIGNATURE
    onnx.checker.check_model(file_path, full_check=True)
    assert onnx.load(file_path).opset_import[0].version == 20


def test_equal_models_give_equal_bytes(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        save_onnx(make_model(), SIGNATURE, str(tmp_path / name / "model.onnx"), embedded_bytes=0)

    for file_name in ("model.onnx", "model.onnx.data"):
        first, second = ((tmp_path / name / file_name) for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def test_a_model_may_be_moved_with_its_weights(path, tmp_path, monkeypatch):
    before = predict(read_onnx(str(path)))
    moved = tmp_path / "elsewhere"
    shutil.move(path.parent, moved)
    monkeypatch.chdir(moved)

    np.testing.assert_array_equal(predict(read_onnx("model.onnx")), before)


def test_a_model_opened_in_place_gives_the_same(path, monkeypatch):
    whole = OnnxModel.from_file(str(path))
    monkeypatch.chdir(path.parent)

    in_place = OnnxModel.in_place("model.onnx")

    assert in_place.content is None
    assert in_place.signature == SIGNATURE
    np.testing.assert_array_equal(in_place.run({"x": ROWS})["y"], whole.run({"x": ROWS})["y"])
    path.with_name("model.onnx.data").unlink()
    with pytest.raises(IntegrityError, match="cannot be opened"):
        OnnxModel.in_place("model.onnx")


def test_what_was_read_needs_its_files_no_more(path):
    content = read_onnx(str(path))
    shutil.rmtree(path.parent)

    np.testing.assert_allclose(predict(content), ROWS @ WEIGHTS + BIAS, atol=1e-4)


def test_a_model_in_one_file_is_read_and_run_without_the_library_that_made_it(
    tmp_path, monkeypatch
):
    """Which takes longer to import than onnxruntime itself."""
    save_onnx(make_model(), SIGNATURE, str(tmp_path / "model.onnx"))
    monkeypatch.setitem(sys.modules, "onnx", None)

    content = read_onnx(str(tmp_path / "model.onnx"))

    assert OnnxModel.of_content(content).signature == SIGNATURE


@pytest.fixture(params=[read_onnx, read_graph])
def reader(request: pytest.FixtureRequest) -> Any:
    """Of a model with its weights, or without."""
    return request.param


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/hostname", "sub/secret", "..", ".", "", "./model.onnx.data"]
)
def test_names_that_lead_out_of_the_folder_are_refused(path, location, reader):
    secret = path.parent.parent / "secret"
    shutil.copy(path.with_name("model.onnx.data"), secret)
    (path.parent / "sub").mkdir()
    shutil.copy(secret, path.parent / "sub" / "secret")
    change(path, location=location)

    with pytest.raises(IntegrityError, match="only a file in the model's own folder is read"):
        reader(str(path))


def link_softly(data: Path, secret: Path) -> None:
    data.symlink_to(secret)


def link_hard(data: Path, secret: Path) -> None:
    data.hardlink_to(secret)


def make_pipe(data: Path, secret: Path) -> None:
    os.mkfifo(data)


def make_folder(data: Path, secret: Path) -> None:
    data.mkdir()


def make_nothing(data: Path, secret: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (link_softly, "cannot be opened"),
        (link_hard, "has 2 hard links"),
        (make_pipe, "is not a regular file"),
        (make_folder, "is not a regular file"),
        (make_nothing, "cannot be opened .No such file"),
    ],
)
def test_weights_that_are_no_file_of_the_folder_are_refused(path, make, said, reader):
    data = path.with_name("model.onnx.data")
    secret = path.parent.parent / "secret"
    shutil.move(data, secret)
    make(data, secret)

    with pytest.raises(IntegrityError, match=said):
        reader(str(path))


def test_weights_that_were_cut_off_are_refused(path, reader):
    data = path.with_name("model.onnx.data")
    data.write_bytes(data.read_bytes()[:-1])

    with pytest.raises(IntegrityError, match="cut off or belongs to another model"):
        reader(str(path))


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-1"), ("offset", "99999999999"), ("length", ""), ("length", "x")]
)
def test_places_that_cannot_be_are_refused(path, key, value, reader):
    change(path, **{key: value})

    with pytest.raises(IntegrityError, match=r"at offset, length|cut off"):
        reader(str(path))


def test_a_place_that_stands_twice_is_refused(path, reader):
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data.add(key="location", value="/etc/hostname")
    path.write_bytes(model.SerializeToString())

    with pytest.raises(IntegrityError, match="says of its tensor 'w' twice"):
        reader(str(path))


def test_weights_anywhere_in_a_model_are_looked_at(path, reader):
    """An attribute of a node of a function is not among a graph's initializers."""
    model = onnx.load(path, load_external_data=False)
    hidden = onnx.TensorProto(name="hidden", data_type=FLOAT, dims=[1])
    hidden.data_location = onnx.TensorProto.EXTERNAL
    hidden.external_data.add(key="location", value="../secret")
    node = helper.make_node("Constant", [], ["c"], value=hidden)
    model.functions.append(helper.make_function("d", "F", [], ["c"], [node], []))
    path.write_bytes(model.SerializeToString())

    with pytest.raises(IntegrityError, match=r"'hidden' that its numbers are in '\.\./secret'"):
        reader(str(path))


def test_files_that_are_too_large_are_refused_unread(path):
    model_bytes = path.stat().st_size
    data_bytes = path.with_name("model.onnx.data").stat().st_size

    with pytest.raises(IntegrityError, match=f"has {model_bytes} bytes; {model_bytes - 1} are"):
        read_onnx(str(path), largest_bytes=model_bytes - 1)
    with pytest.raises(IntegrityError, match=r"model\.onnx\.data.* bytes; .* are allowed"):
        read_onnx(str(path), largest_bytes=model_bytes + data_bytes - 1)
    assert read_onnx(str(path), largest_bytes=model_bytes + data_bytes).files


def test_a_graph_too_large_for_protobuf_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_files, "_PROTOBUF_BYTES", 100)

    with pytest.raises(ExportRefusedError, match="ONNX files end at 100"):
        save_onnx(make_model(), SIGNATURE, str(tmp_path / "model.onnx"))
    assert os.listdir(tmp_path) == []


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a model, at no location")

    with pytest.raises(IntegrityError, match="is not an ONNX model"):
        read_onnx(str(tmp_path / "model.onnx"))
    with pytest.raises(IntegrityError, match="onnxruntime does not load"):
        open_session(OnnxContent(model=b"not a model"))


def test_a_model_of_others_has_no_signature():
    def signature_of(model) -> Signature:
        return OnnxModel.of_content(OnnxContent(model=model.SerializeToString())).signature

    model = make_model()
    with pytest.raises(IntegrityError, match="export_models did not write it"):
        signature_of(model)
    model.metadata_props.add(key="partwise.signature", value="{}")
    with pytest.raises(
        IntegrityError, match="has a form that this release does not know: inputs: Field required"
    ):
        signature_of(model)


def test_a_signature_of_a_newer_format_is_refused_and_not_misread():
    signature = Signature(
        inputs=(), outputs=(), layout="custom", prediction="y", model_type="x.Model"
    )
    text = signature.to_json().replace('"format_version":1', '"format_version":2')
    assert Signature.from_metadata({METADATA_KEY: signature.to_json()}) == signature
    with pytest.raises(IntegrityError, match=r"format_version 2: .*Install a newer"):
        Signature.from_metadata({METADATA_KEY: text})
