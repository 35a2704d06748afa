"""Inputs that no training has seen: no file of a network differs from its model there unnoticed.

Each module is exported, proved, guarded where it has to be, and then run on inputs that are not
those of the proof.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import helper

from partwise.errors import InputError, IntegrityError
from partwise.exports.onnx.guards import add_guards
from partwise.exports.proof.guarding import judge_and_guard
from partwise.exports.proof.judge import close_judges
from partwise.exports.proof.judge_process import examine
from partwise.exports.proof.odd_inputs import make_odd_cases
from partwise.exports.proof.probes import make_probes
from partwise.exports.proof.verdict import Case, Expectation, Verdict
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.guards import GUARDS_KEY, Guard, guards_of_metadata, to_metadata
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import Tensor
from tests.lazily import Lazily
from tests.thoroughness import quick_and_slow

onnxruntime, torch = Lazily("onnxruntime"), Lazily("torch")
models, functional = Lazily("tests.exports.torch_models"), Lazily("torch.nn.functional")

EXPORTER = TorchOnnxExporter()
RANDOM = np.random.default_rng(0)
MATRIX = {"x": RANDOM.normal(size=(20, 6)).astype(np.float32)}
SEQUENCES = {"x": RANDOM.normal(size=(20, 5, 4)).astype(np.float32)}
IMAGES = {"x": RANDOM.normal(size=(20, 2, 6, 6)).astype(np.float32)}
SHOPS = {**MATRIX, "shop": RANDOM.integers(0, 10, size=20)}
MASKED = {**MATRIX, "shop": RANDOM.integers(0, 2, size=(20, 6)).astype(bool)}


@pytest.fixture(scope="module", autouse=True)
def judges_end_with_the_tests() -> Iterator[None]:
    yield
    close_judges()


def of_layers(function, *layers) -> "torch.nn.Module":
    return models.OfLayers(function, *layers)


def recurrent(layer) -> "torch.nn.Module":
    last = torch.nn.Linear(8, 1)
    return of_layers(lambda layers, x: layers[1](layers[0](x)[0][:, -1]), layer, last)


def linear(function) -> "torch.nn.Module":
    return of_layers(lambda layers, x: layers[0](function(x)), torch.nn.Linear(6, 2))


def layers(*found) -> "torch.nn.Module":
    return torch.nn.Sequential(*found)


NAN, HUGE, NEGATIVE = "NaN in 'x'", "values above", "values below 0 in 'shop'"
MODULES = {
    "mlp": (lambda: layers(torch.nn.Linear(6, 8), torch.nn.ReLU()), MATRIX, ()),
    "lstm": (lambda: recurrent(torch.nn.LSTM(4, 8, batch_first=True)), SEQUENCES, (NAN, HUGE)),
    "argmax": (lambda: of_layers(lambda _, x: x.argmax(1)), MATRIX, (NAN,)),
    "logcumsumexp": (lambda: of_layers(lambda _, x: x.logcumsumexp(1)), MATRIX, (HUGE,)),
    "in place": (lambda: linear(lambda x: x.mul_(2).add_(1)), MATRIX, ()),
    "embedding": (
        lambda: of_layers(lambda layers, x, i: x[:, :3] + layers[0](i), torch.nn.Embedding(12, 3)),
        SHOPS,
        (NEGATIVE,),
    ),
    "one hot": (
        lambda: of_layers(lambda _, x, i: x[:, :1] * functional.one_hot(i, 10)),
        SHOPS,
        (NEGATIVE, "values above 9 in 'shop'"),
    ),
    "whole numbers as numbers": (
        lambda: of_layers(lambda layers, x, i: layers[0](x) + i[:, None].float(), linear(abs)),
        SHOPS,
        (),
    ),
    "mask": (lambda: of_layers(lambda _, x, i: torch.where(i, x, -x)), MASKED, ()),
}
SLOW = {
    "gru": (lambda: recurrent(torch.nn.GRU(4, 8, batch_first=True)), SEQUENCES, (NAN, HUGE)),
    "rnn": (lambda: recurrent(torch.nn.RNN(4, 8, batch_first=True)), SEQUENCES, ()),
    "lstm both ways": (
        lambda: of_layers(
            lambda layers, x: layers[0](x)[0],
            torch.nn.LSTM(4, 8, batch_first=True, bidirectional=True),
        ),
        SEQUENCES,
        (NAN, HUGE),
    ),
    "amax": (lambda: of_layers(lambda _, x: x.amax(1)), SEQUENCES, (NAN,)),
    "sign": (lambda: linear(torch.sign), MATRIX, (NAN,)),
    "sort": (lambda: of_layers(lambda _, x: x.sort(1).values), MATRIX, (NAN,)),
    "rfft": (
        lambda: of_layers(lambda _, x: torch.view_as_real(torch.fft.rfft(x)).flatten(1)),
        MATRIX,
        (NAN, HUGE),
    ),
    "interpolate": (
        lambda: of_layers(
            lambda _, x: functional.interpolate(x, scale_factor=2, mode="bilinear").mean((2, 3))
        ),
        IMAGES,
        (HUGE,),
    ),
    "convolution": (
        lambda: layers(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten()),
        IMAGES,
        (),
    ),
    "attention": (
        lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        SEQUENCES,
        (HUGE,),
    ),
    "normalized": (lambda: layers(torch.nn.LayerNorm(6), torch.nn.Linear(6, 1)), MATRIX, (HUGE,)),
    "where": (lambda: of_layers(lambda _, x: torch.where(x > 0, x * 2, x - 1)), MATRIX, ()),
    "clamp": (lambda: of_layers(lambda _, x: x.clamp(-1, 1)), MATRIX, ()),
    "NaN to zero": (lambda: of_layers(lambda _, x: torch.nan_to_num(x)), MATRIX, ()),
    "softmax": (lambda: layers(torch.nn.Linear(6, 3), torch.nn.Softmax(1)), MATRIX, ()),
    "to whole numbers": (
        lambda: of_layers(lambda _, x: (10 * x).to(torch.int64)),
        MATRIX,
        (),
    ),
    "bag": (
        lambda: of_layers(
            lambda layers, x, i: layers[0](i[:, None]) + x[:, :3], torch.nn.EmbeddingBag(12, 3)
        ),
        SHOPS,
        (NEGATIVE,),
    ),
    "in place, a part": (
        lambda: of_layers(lambda _, x: torch.cat([x[:, :1].zero_(), x], 1)),
        MATRIX,
        (),
    ),
}
QUICK = {"mlp", "lstm", "argmax", "embedding", "mask"}
ALL = quick_and_slow(QUICK, MODULES | SLOW)


class Proved:
    """A module with its file and what the proof says."""

    def __init__(self, name: str, folder: Path) -> None:
        torch.manual_seed(0)
        make, self.feeds, self.refused = (MODULES | SLOW)[name]
        self.model = make()
        self.path = str(folder / "model.onnx")
        options = ExportOptions()
        self.description = EXPORTER.describe(
            self.model, pa.table({"a": [1.0]}), self.feeds, options
        )
        few = {key: values[:4] for key, values in self.feeds.items()}
        EXPORTER.write(self.model, self.description, few, options, self.path)
        signature = self.description.signature
        self.expectation = Expectation(
            format="onnx", signature=signature, tolerance=self.description.tolerance
        )
        made = make_probes(self.description, self.feeds).cases
        self.cases = [
            Case(name=key, feeds=feeds, expected=self.predict(feeds))
            for key, feeds in {"held-out rows": self.feeds, **made}.items()
        ]
        self.cases += make_odd_cases(signature, self.feeds, self.predict)

    def predict(self, feeds):
        return EXPORTER.predict(self.model, self.description.signature, feeds)

    def prove(self) -> Verdict:
        return judge_and_guard(self.path, self.expectation, self.cases)


@pytest.mark.parametrize("name", ALL)
def test_no_file_differs_unnoticed_on_inputs_that_no_training_has_seen(name, tmp_path):
    proved = Proved(name, tmp_path)
    before = {key: values.copy() for key, values in proved.feeds.items()}
    verdict = proved.prove()
    assert [finding.message for finding in verdict.findings] == []
    for key, values in proved.feeds.items():
        np.testing.assert_array_equal(values, before[key])  # whatever a module does in place
    notes = " ".join(verdict.notes)
    assert all(text in notes for text in proved.refused), notes
    assert bool(proved.refused) == ("The file refuses" in notes), notes
    model = OnnxModel.from_file(proved.path)
    for kind, value in {"f": np.nan, "i": -1}.items():
        for key in [key for key, values in proved.feeds.items() if values.dtype.kind == kind]:
            _differs_nowhere(proved, model, key, value)


def _differs_nowhere(proved: Proved, model: OnnxModel, key: str, value) -> None:
    """One odd value at a place of its own: the file gives what the module gives, or refuses."""
    feeds = {name: values[:7].copy() for name, values in proved.feeds.items()}
    feeds[key].reshape(7, -1)[5, -1] = value
    try:
        expected = proved.predict(feeds)
    except (IndexError, RuntimeError):
        expected = None
    try:
        given = model.run(feeds)
    except InputError:  # a guard
        return
    assert expected is not None, f"{value} in {key}: the module raises, the file predicts"
    for name, values in expected.items():
        np.testing.assert_allclose(given[name], values, rtol=1e-3, atol=1e-5)


def test_a_guard_leaves_the_other_bits_alone_and_fails_in_words(tmp_path):
    proved = Proved("mlp", tmp_path)
    plain = OnnxModel.from_file(proved.path).run(proved.feeds)["output"]
    guards = [
        Guard(input="x", refuses="nan"),
        Guard(input="x", refuses="above", limit=4.0),
        Guard(input="x", refuses="below", limit=-4.0),
    ]
    assert add_guards(proved.path, guards, proved.description.signature)
    model = OnnxModel.from_file(proved.path)
    assert model.guards == tuple(guards)
    found = model.run(proved.feeds)["output"]
    np.testing.assert_array_equal(found.view(np.uint32), plain.view(np.uint32))
    for n_rows in (0, 1):
        assert len(model.run({"x": MATRIX["x"][:n_rows]})["output"]) == n_rows
    for value, told in ((np.nan, "NaN"), (4.5, "values above 4"), (-np.inf, "values below -4")):
        rows = MATRIX["x"].copy()
        rows[7, 3] = value
        with pytest.raises(InputError, match=f"The model refuses {told} in 'x': its file would"):
            model.run({"x": rows})


def test_guards_of_a_second_round_stand_beside_the_first(tmp_path):
    proved = Proved("mlp", tmp_path)
    signature = proved.description.signature
    for guard in (
        Guard(input="x", refuses="nan"),
        Guard(input="x", refuses="above", limit=4.0),
    ):
        assert add_guards(proved.path, [guard], signature)
    model = OnnxModel.from_file(proved.path)
    assert len(model.guards) == 2
    for value in (np.nan, 5.0):
        with pytest.raises(InputError, match="The model refuses"):
            model.run({"x": np.full((2, 6), value, np.float32)})


def test_text_beside_a_guarded_input_needs_none(tmp_path):
    """As an exporter of one's own may take it."""
    proved = Proved("mlp", tmp_path)
    signature = proved.description.signature
    text = Tensor(name="kind", dtype="string", shape=(None, 1))
    mixed = signature.model_copy(update={"inputs": (*signature.inputs, text)})
    assert add_guards(proved.path, [Guard(input="x", refuses="nan")], mixed)


def test_operators_too_old_for_guards_are_left_alone(tmp_path):
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    node = helper.make_node("Abs", ["x"], ["y"])
    graph = helper.make_graph([node], "graph", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    signature = Proved("mlp", tmp_path).description.signature
    path = tmp_path / "old.onnx"
    onnx.save(model, path)
    content = path.read_bytes()
    assert not add_guards(str(path), [Guard(input="x", refuses="nan")], signature)
    assert path.read_bytes() == content


def judged(proved: Proved) -> set[tuple[str, str]]:
    """Return the checks and cases of what the judge finds."""
    verdict = examine(proved.path, proved.expectation, proved.cases, lambda what, case: None)
    return {(finding.check, finding.case) for finding in verdict.findings if finding.case}


def test_a_guard_that_refuses_real_rows_is_a_mistake(tmp_path):
    proved = Proved("mlp", tmp_path)
    guard = Guard(input="x", refuses="above", limit=0.5)
    add_guards(proved.path, [guard], proved.description.signature)
    assert {("guard", "held-out rows"), ("guard", "perturbed rows")} <= judged(proved)


def test_a_guard_that_is_in_the_metadata_alone_is_a_mistake(tmp_path):
    proved = Proved("argmax", tmp_path)
    file = onnx.load(proved.path)
    guard = Guard(input="x", refuses="nan")
    file.metadata_props.add(key=GUARDS_KEY, value=to_metadata([guard]))
    onnx.save(file, proved.path)
    assert judged(proved) == {("values", "NaN in 'x'")}


def test_a_file_that_fails_otherwise_than_by_its_guard_is_told(tmp_path):
    """On an odd case whose matrix has too many columns, which no guard looks at."""
    proved = Proved("mlp", tmp_path)
    add_guards(proved.path, [Guard(input="x", refuses="nan")], proved.description.signature)
    rows = np.full((3, 9), 0, np.float32)
    proved.cases = [Case(name="wide", feeds={"x": rows}, expected={}, kind="odd")]
    assert judged(proved) == {("run", "wide")}


def test_a_difference_on_real_rows_gets_no_guard(tmp_path):
    proved = Proved("argmax", tmp_path)
    held = proved.cases[0]
    wrong = {name: values + 1 for name, values in held.expected.items()}
    proved.cases[0] = Case(name=held.name, feeds=held.feeds, expected=wrong)
    content = Path(proved.path).read_bytes()
    verdict = proved.prove()
    assert {finding.case for finding in verdict.findings} == {"held-out rows", "NaN in 'x'"}
    assert Path(proved.path).read_bytes() == content


def test_a_model_that_raises_where_the_file_does_too_needs_no_guard(tmp_path):
    proved = Proved("embedding", tmp_path)
    raising = [case.name for case in proved.cases if case.raises]
    assert raising == [
        "-9223372036854775808 in 'shop'",
        "-1 in 'shop'",
        "12 in 'shop'",
        "9223372036854775807 in 'shop'",
    ]
    verdict = proved.prove()
    assert verdict.metrics["export_cases_raising"] == 4
    assert guards_of_metadata(
        onnxruntime.InferenceSession(proved.path).get_modelmeta().custom_metadata_map
    ) == (Guard(input="shop", refuses="below", limit=0),)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 200_000])
def test_guards_that_nobody_wrote_are_refused_in_a_sentence(text):
    with pytest.raises(IntegrityError, match="has a form that this release does not know"):
        guards_of_metadata({GUARDS_KEY: text})
