"""Every number of a file's weights is one of the model's: alterations that no case can show."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from partwise.exports.onnx.guards import add_guards
from partwise.exports.onnx.quantization import as_float16
from partwise.exports.proof.verdict import Verdict
from partwise.exports.proof.weights import initializers, prove_weights
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.guards import Guard
from tests.lazily import Lazily
from tests.thoroughness import quick_and_slow

models, torch = Lazily("tests.exports.torch_models"), Lazily("torch")

EXPORTER = TorchOnnxExporter()
RANDOM = np.random.default_rng(0)
SEQUENCES = {"x": RANDOM.normal(size=(6, 5, 4)).astype(np.float32)}
SHOPS = {"x": RANDOM.integers(0, 3, size=(6, 4))}


MODELS = {
    "linear": lambda: torch.nn.Linear(4, 3),
    "conv": lambda: torch.nn.Conv1d(5, 6, 2),
    "lstm": lambda: models.Taken(torch.nn.LSTM(4, 8, batch_first=True)),
    "two lstms, both ways": lambda: models.Taken(
        torch.nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True)
    ),
    "lstm without bias": lambda: models.Taken(torch.nn.LSTM(4, 8, bias=False, batch_first=True)),
    "gru": lambda: models.Taken(torch.nn.GRU(4, 8, batch_first=True)),
    "rnn": lambda: models.Taken(torch.nn.RNN(4, 8, batch_first=True)),
    "attention": lambda: models.Attention(),
    "encoder": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "norms": lambda: torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)),
    "embedding": lambda: torch.nn.Embedding(50, 3),
    "complex numbers": lambda: models.Turned(),
}
LARGE = {"large": lambda: torch.nn.Linear(4, 1000)}


Write = Callable[..., tuple["torch.nn.Module", str]]


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> Write:
    """Export a model, once for all tests."""

    @cache
    def export(name: str, **options) -> tuple[torch.nn.Module, str]:
        torch.manual_seed(0)
        model = (MODELS | LARGE)[name]()
        for values in model.parameters():
            torch.nn.init.normal_(values)  # torch.onnx leaves biases of zero out
        feeds = SHOPS if name == "embedding" else SEQUENCES
        path = str(tmp_path_factory.mktemp("exported") / "model.onnx")
        given = ExportOptions(**options)
        description = EXPORTER.describe(model, pa.table({"a": [1.0]}), feeds, given)
        EXPORTER.write(model, description, feeds, given, path)
        return model, path

    return export


@pytest.fixture
def written(exports, tmp_path) -> Write:
    """Give a model and a file of it that a test may change."""

    def copied(name: str, **options) -> tuple[torch.nn.Module, str]:
        model, path = exports(name, **options)
        for file in Path(path).parent.iterdir():
            shutil.copy(file, tmp_path)
        return model, str(tmp_path / "model.onnx")

    return copied


def alter(path: str, change) -> None:
    """Let a function change each array of a file's initializers in place, until it says it did."""
    file = onnx.load(path)
    for tensor in file.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if change(values):
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
            onnx.save(file, path)
            return
    raise AssertionError("nothing was changed")


QUICK = {"linear", "lstm", "attention", "embedding", "complex numbers"}
ALL = pytest.mark.parametrize("name", quick_and_slow(QUICK, MODELS))


@ALL
def test_all_weights_of_a_file_are_found_in_its_model(name, written):
    model, path = written(name)
    proof = prove_weights(path, EXPORTER.weights(model))
    assert proof.findings == ()
    assert proof.notes == ()
    assert proof.metrics["export_weights"] == proof.metrics["export_weights_proved"] > 0
    numbers = sum(values.numel() for values in model.parameters())
    # Biases of zero that ONNX wants and a model lacks are not weights of it.
    assert proof.metrics["export_weight_values_proved"] >= numbers


@pytest.mark.parametrize("kind", ["complex128", "sparse", "float8"])
def test_a_model_with_numbers_of_any_kind_is_looked_through(kind, written):
    model, path = written("linear")
    model = deepcopy(model)
    unused = {
        "complex128": lambda: torch.ones(3, dtype=torch.complex128),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    }
    model.register_buffer("unused", unused[kind]())
    proof = prove_weights(path, EXPORTER.weights(model))
    assert (proof.findings, proof.notes) == ((), ())


@ALL
def test_a_weight_that_is_one_ulp_off_is_found(name, written):
    model, path = written(name)

    def change(values: np.ndarray) -> bool:
        if values.dtype != np.float32 or values.size < 6:
            return False
        place = values.size - 2
        values.flat[place] = np.nextafter(values.flat[place], np.float32(9))
        return True

    alter(path, change)
    proof = prove_weights(path, EXPORTER.weights(model))
    (finding,) = proof.findings
    assert finding.check == "weights"
    assert proof.metrics["export_weights_proved"] == proof.metrics["export_weights"] - 1


def test_a_row_of_an_embedding_that_no_case_holds_is_told(written):
    model, path = written("embedding")

    def change(values: np.ndarray) -> bool:
        values[41, 2] = np.nextafter(values[41, 2], np.float32(9))
        return True

    alter(path, change)
    proof = prove_weights(path, EXPORTER.weights(model))
    with pytest.raises(
        Exception, match=r"differ from 'weight' in 1 of 150 numbers, first at \(41, 2\), where"
    ) as raised:
        proof.added_to(Verdict()).check()
    assert raised.value.check == "weights"


CHANGES = {
    "two rows swapped": lambda values: values[[1, 0, *range(2, len(values))]],
    "one sign": lambda values: np.where(values == values.max(), -values, values),
    "all by one ulp": lambda values: np.nextafter(values, np.float32(np.inf)),
    "half precision": lambda values: values.astype(np.float16).astype(np.float32),
    "one NaN": lambda values: np.where(values == values.max(), np.nan, values),
    "a row of zeros": lambda values: values * (np.arange(len(values)) != 30)[:, None],
    "reversed": lambda values: values[::-1],
}


@pytest.mark.parametrize("name", CHANGES)
def test_alterations_of_a_table_are_not_taken_for_weights_of_the_model(name, written):
    model, path = written("embedding")

    def change(values: np.ndarray) -> bool:
        values[:] = CHANGES[name](values.copy())
        return True

    alter(path, change)
    proof = prove_weights(path, EXPORTER.weights(model))
    assert proof.metrics["export_weights_proved"] == 0
    # What shares no number with its place is known by the cases, and named here.
    assert bool(proof.findings) == (name not in ("half precision", "reversed"))
    assert "not tensors of the model as it has them" in proof.notes[0]


def test_what_a_converter_folds_is_counted_and_named(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    model(torch.randn(50, 4))
    feeds = {"x": RANDOM.normal(size=(6, 4)).astype(np.float32)}
    path = str(tmp_path / "model.onnx")
    description = EXPORTER.describe(model, pa.table({"a": [1.0]}), feeds, ExportOptions())
    EXPORTER.write(model, description, feeds, ExportOptions(), path)
    proof = prove_weights(path, {n: v.detach().numpy() for n, v in model.state_dict().items()})
    assert proof.findings == ()
    assert (proof.metrics["export_weights"], proof.metrics["export_weights_proved"]) == (2, 0)
    assert "2 of 2 initializers" in proof.notes[0]
    assert "'module.0.weight'" in proof.notes[0]
    assert "'1.running_mean'" in proof.notes[1]


def test_weights_in_half_precision_are_the_cast_of_the_models(written):
    model, path = written("linear", precision="float16")
    proved = prove_weights(path, EXPORTER.weights(model), as_float16)
    assert proved.metrics["export_weights_proved"] == proved.metrics["export_weights"] == 2
    assert prove_weights(path, EXPORTER.weights(model)).metrics["export_weights_proved"] == 0


def test_what_is_folded_and_halved_may_round_to_what_it_was(tmp_path):
    """A BatchNorm without training changes its neighbour by a factor of 0.999995."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.BatchNorm1d(32))
    feeds = {"x": RANDOM.normal(size=(6, 4)).astype(np.float32)}
    options = ExportOptions(precision="float16")
    path = str(tmp_path / "model.onnx")
    description = EXPORTER.describe(model, pa.table({"a": [1.0]}), feeds, options)
    EXPORTER.write(model, description, feeds, options, path)
    proof = prove_weights(path, EXPORTER.weights(model), as_float16)
    assert proof.findings == ()
    assert proof.metrics["export_weights"] == 2


def test_the_cast_is_that_of_the_tool():
    from onnxruntime.transformers.float16 import convert_np_to_float16

    values = np.array([0, -0.0, 1e-9, -1e-9, 1 / 3, 7e4, -1e30, np.inf, -np.inf, np.nan, 6e-8])
    found = as_float16(values.astype(np.float32))
    wanted = convert_np_to_float16(values.astype(np.float32))
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


def test_weights_beside_the_file_are_mapped_and_proved(written):
    model, path = written("large", embedded_bytes=0)
    found = dict(initializers(path))
    assert any(isinstance(values, np.memmap) for values in found.values())
    proof = prove_weights(path, EXPORTER.weights(model))
    assert proof.metrics["export_weight_values_proved"] == 5000
    data = Path(f"{path}.data")
    content = bytearray(data.read_bytes())
    content[2001] ^= 1
    data.write_bytes(content)
    assert len(prove_weights(path, EXPORTER.weights(model)).findings) == 1


def test_guards_are_no_weights(written):
    model, path = written("linear")
    before = prove_weights(path, EXPORTER.weights(model))
    description = EXPORTER.describe(model, pa.table({"a": [1.0]}), SEQUENCES, ExportOptions())
    assert add_guards(path, [Guard(input="x", refuses="above", limit=9.0)], description.signature)
    assert prove_weights(path, EXPORTER.weights(model)) == before


def test_powers_that_begin_with_one_are_no_normalization_that_was_altered(tmp_path):
    """DETR computes 16 of them beforehand, of which two are 1."""
    values = (10 ** (np.arange(16) // 2 / 2)).astype(np.float32)
    node = onnx.helper.make_node("Identity", ["powers"], ["y"])
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(values, "powers")]
    graph = onnx.helper.make_graph([node], "graph", [], [value], weights)
    path = str(tmp_path / "powers.onnx")
    onnx.save(onnx.helper.make_model(graph), path)
    ones = np.ones(16, np.float32)

    assert prove_weights(path, {"norm": ones}).findings == ()
    ones[3:] = values[3:]
    assert len(prove_weights(path, {"norm": ones}).findings) == 1


@settings(max_examples=60)
@given(data=st.data(), shape=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_tensor_is_found_in_any_order_of_its_axes_but_not_altered(tmp_path_factory, data, shape):
    tensor = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    order = data.draw(st.permutations(range(len(shape))))
    values = tensor.transpose(order).copy(order="C")
    place = data.draw(st.none() | st.integers(0, tensor.size - 1))
    if place is not None:
        values.flat[place] = np.nextafter(values.flat[place], np.float32(9))
    path = str(tmp_path_factory.getbasetemp() / "tensor.onnx")
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["y"])],
        "graph",
        [],
        [value],
        [numpy_helper.from_array(values, "w")],
    )
    onnx.save(onnx.helper.make_model(graph), path)
    found = prove_weights(path, {"other": tensor + 1, "tensor": tensor})
    is_right = place is None
    if tensor.size > 1:
        assert found.metrics["export_weights_proved"] == is_right
        assert bool(found.findings) != is_right
