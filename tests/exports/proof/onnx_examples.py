"""Small ONNX models, right ones and wrong ones, and what they have to give."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.verdict import Case, Expectation
from partwise.exports.protocol import Tolerance
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import Feature, Signature, Tensor, feature_tensors

OPSET = 18
FEATURES = tuple(Feature(name=name) for name in "abc")
WEIGHTS = np.array([[1.0, 0.5], [2.0, -1.0], [-3.0, 0.25]], np.float32)
ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


@dataclass(frozen=True)
class Example:
    """A model with what it is expected to be; `given` changes the file, `expected` stays."""

    graph: onnx.GraphProto
    expectation: Expectation
    cases: list[Case]
    opset: int = OPSET

    def save(self, path: Path, **options) -> str:
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(self.graph, opset_imports=domains, ir_version=10)
        save_onnx(model, self.expectation.signature, str(path), **options)
        return str(path)

    def expecting(self, **changes) -> "Example":
        return replace(self, expectation=replace(self.expectation, **changes))


def signature(*outputs: Tensor, features=FEATURES, **options) -> Signature:
    return Signature(
        inputs=feature_tensors(features, "float32", "tensor"),
        outputs=outputs,
        layout="tensor",
        features=features,
        prediction=outputs[0].name,
        model_type="tests.Linear",
        **options,
    )


def expectation(signature: Signature, **options) -> Expectation:
    tolerance = Tolerance(atol=1e-6, rtol=1e-5)
    return Expectation(
        format="onnx", signature=signature, tolerance=tolerance, opset=OPSET, **options
    )


def value(name: str, dtype: int, shape: list) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def linear(
    weights=WEIGHTS, batch="N", outputs=("prediction", "slope"), names=None, n_features=3
) -> Example:
    """Two linear functions of three features, each an output of its own."""
    kind = {np.float32: onnx.TensorProto.FLOAT, np.float64: onnx.TensorProto.DOUBLE}
    dtype = kind[weights.dtype.type]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["features", f"weights_{place}"], [name])
            for place, name in enumerate(outputs)
        ],
        "linear",
        [value("features", dtype, [batch, n_features])],
        [value(name, dtype, [batch, 1]) for name in names or sorted(outputs)],
        [
            numpy_helper.from_array(weights[:, place : place + 1].copy(), f"weights_{place}")
            for place in range(2)
        ],
    )
    tensors = [Tensor(name=n, dtype="float32", shape=(None, 1)) for n in ("prediction", "slope")]
    return Example(graph, expectation(signature(*tensors)), linear_cases())


def wide() -> Example:
    """A linear function of 400 features, whose weights are large enough to stand beside it."""
    weights = np.linspace(-1, 1, 400, dtype=np.float32)[:, None]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["features", "weights"], ["prediction"])],
        "wide",
        [value("features", onnx.TensorProto.FLOAT, ["N", 400])],
        [value("prediction", onnx.TensorProto.FLOAT, ["N", 1])],
        [numpy_helper.from_array(weights, "weights")],
    )
    features = tuple(Feature(name=f"f{place}") for place in range(400))
    expected = signature(
        Tensor(name="prediction", dtype="float32", shape=(None, 1)), features=features
    )
    rows = np.random.default_rng(0).normal(size=(20, 400)).astype(np.float32)
    # Sums of 400 numbers differ by their order.
    case = Case(name="rows", feeds={"features": rows}, expected={"prediction": rows @ weights})
    return Example(
        graph, replace(expectation(expected), tolerance=Tolerance(atol=1e-4, rtol=1e-5)), [case]
    )


def linear_cases() -> list[Case]:
    def case(name: str, rows: np.ndarray) -> Case:
        given = rows @ WEIGHTS
        expected = {"prediction": given[:, :1], "slope": given[:, 1:]}
        return Case(name=name, feeds={"features": rows}, expected=expected)

    return [
        case("held-out rows", ROWS),
        case("one row", ROWS[:1]),
        case("empty batch", ROWS[:0]),
    ]


def classifier(weights=WEIGHTS, labels=("no", "yes")) -> Example:
    """Probabilities of two classes, and the label of the likelier one, as text."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["features", "weights"], ["margins"]),
            helper.make_node("Softmax", ["margins"], ["probabilities"], axis=1),
            helper.make_node("ArgMax", ["probabilities"], ["codes"], axis=1, keepdims=0),
            helper.make_node("Gather", ["labels", "codes"], ["label"]),
        ],
        "classifier",
        [value("features", onnx.TensorProto.FLOAT, ["N", 3])],
        [
            value("label", onnx.TensorProto.STRING, ["N"]),
            value("probabilities", onnx.TensorProto.FLOAT, ["N", 2]),
        ],
        [
            numpy_helper.from_array(weights, "weights"),
            helper.make_tensor(
                "labels", onnx.TensorProto.STRING, [2], [label.encode() for label in labels]
            ),
        ],
    )
    margins = ROWS @ WEIGHTS
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    label = np.array(["no", "yes"], object)[probabilities.argmax(axis=1)]
    case = Case(
        name="held-out rows",
        feeds={"features": ROWS},
        expected={"label": label, "probabilities": probabilities},
    )
    tensors = (
        Tensor(name="label", dtype="string", shape=(None,)),
        Tensor(name="probabilities", dtype="float32", shape=(None, 2)),
    )
    expected = expectation(signature(*tensors, class_labels=("no", "yes")))
    expected = replace(
        expected, signature=expected.signature.model_copy(update={"prediction": "probabilities"})
    )
    return Example(graph, expected, [case])


def tree(threshold=0.5, leaves=(10.0, 20.0, 30.0)) -> Example:
    """Of two splits: a <= 0.5 gives 10, else b <= -1 gives 20, else 30; missing goes right."""
    graph = helper.make_graph(
        [
            helper.make_node(
                "TreeEnsembleRegressor",
                ["features"],
                ["prediction"],
                domain="ai.onnx.ml",
                n_targets=1,
                nodes_treeids=[0] * 5,
                nodes_nodeids=[0, 1, 2, 3, 4],
                nodes_featureids=[0, 0, 1, 0, 0],
                nodes_modes=["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
                nodes_values=[threshold, 0.0, -1.0, 0.0, 0.0],
                nodes_truenodeids=[1, 0, 3, 0, 0],
                nodes_falsenodeids=[2, 0, 4, 0, 0],
                nodes_missing_value_tracks_true=[0] * 5,
                nodes_hitrates=[1.0] * 5,
                target_treeids=[0] * 3,
                target_nodeids=[1, 3, 4],
                target_ids=[0] * 3,
                target_weights=list(leaves),
            )
        ],
        "tree",
        [value("features", onnx.TensorProto.FLOAT, ["N", 3])],
        [value("prediction", onnx.TensorProto.FLOAT, ["N", 1])],
    )
    expected = signature(Tensor(name="prediction", dtype="float32", shape=(None, 1)))
    case = Case(name="held-out rows", feeds={"features": ROWS}, expected=tree_outputs(ROWS))
    return Example(graph, expectation(expected), [case])


TREES = TreeEnsemble(
    dtype="float32",
    comparison="LEQ",
    n_targets=1,
    roots=np.array([0]),
    features=np.array([0, 1]),
    splits=np.array([0.5, -1.0]),
    is_member=np.zeros(2, dtype=bool),
    true_branches=np.array([~0, ~1]),
    false_branches=np.array([1, ~2]),
    missing_tracks_true=np.zeros(2, dtype=bool),
    sets=(),
    leaf_targets=np.zeros(3, dtype=np.int64),
    leaf_weights=np.array([10.0, 20.0, 30.0]),
)
"""Those of `tree`."""


def tree_outputs(rows: np.ndarray) -> dict[str, np.ndarray]:
    right = np.where(rows[:, 1] <= -1.0, 20.0, 30.0)
    return {"prediction": np.where(rows[:, 0] <= 0.5, 10.0, right).astype(np.float32)[:, None]}
