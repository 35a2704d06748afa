"""The ONNX graph of a LightGBM model: inputs, trees, and what becomes of their sum.

How objectives turn the score s into a prediction (LightGBM's `ConvertOutput` in
src/objective/*.hpp; a random forest first divides s by the number of iterations, `GBDT::Predict`
in src/boosting/gbdt_prediction.cpp):

    regression, regression_l1, huber, fair, quantile, mape, lambdarank, rank_xendcg   s
    the same with reg_sqrt                                                            sign(s) s^2
    poisson, gamma, tweedie                                                           exp(s)
    binary, multiclassova                                       1 / (1 + exp(-sigmoid * s))
    cross_entropy                                                       1 / (1 + exp(-s))
    cross_entropy_lambda                                                log(1 + exp(s))
    multiclass                                                          softmax over the classes
    none, or a function of the user's                 s: LightGBM's `predict` gives no more then
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from partwise.errors import ExportRefused
from partwise.exports.lightgbm.trees import ZERO, LightGBMTrees
from partwise.exports.onnx.tree_ensemble import DOMAIN, DOMAIN_VERSION, tree_ensemble_node
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import Signature, Tensor

PROBABILITIES, LABEL, PREDICTION = "probabilities", "label", "prediction"
DOUBLE: Final = "float64"

_AS_IT_IS = (
    "regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank",
    "rank_xendcg", "custom", "none", "",
)  # fmt: skip
_EXPONENTIAL = ("poisson", "gamma", "tweedie")
_SIGMOID = ("binary", "multiclassova", "cross_entropy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a score becomes a prediction."""

    function: Literal["identity", "signed_square", "exp", "sigmoid", "softmax", "log1p_exp"]
    steepness: float = 1.0
    """Of a sigmoid."""


def objective_of(trees: LightGBMTrees) -> str:
    """Return the objective's name, such as "binary"; empty where it was a function."""
    return trees.objective.partition(" ")[0]


def link_of(trees: LightGBMTrees) -> Link:
    """Return how the model turns scores into predictions.

    Raises:
        ExportRefused: Its objective is not known.
    """
    name = objective_of(trees)
    words = trees.objective.split()[1:]
    values = dict(word.split(":", 1) for word in words if ":" in word)
    if name in _AS_IT_IS:
        return Link(function="signed_square" if "sqrt" in words else "identity")
    if name in _EXPONENTIAL:
        return Link(function="exp")
    if name in _SIGMOID:
        return Link(function="sigmoid", steepness=float(values.get("sigmoid", 1.0)))
    if name == "multiclass":
        return Link(function="softmax")
    if name == "cross_entropy_lambda":
        return Link(function="log1p_exp")
    raise ExportRefused(
        f"The objective {name!r} of this LightGBM model is not known, so its scores cannot be "
        "turned into predictions: export it as native."
    )


def write_graph(trees: LightGBMTrees, signature: Signature, opset: int, file_path: str) -> None:
    """Write a model as ONNX.

    Args:
        trees: Of the model.
        signature: What the file takes and gives.
        opset: The version of ONNX' default operators.
        file_path: Where to.
    """
    from onnx import helper

    graph = _Graph({tensor.name for tensor in (*signature.inputs, *signature.outputs)})
    features = _clean_features(graph, trees, _feature_matrix(graph, signature))
    scores = graph.name("scores")
    graph.nodes.append(tree_ensemble_node(trees.ensemble(), features, scores))
    if trees.is_average:
        scores = graph.add("Div", scores, graph.constant(np.float64(trees.n_iterations)))
    predictions = _linked(graph, link_of(trees), scores)
    _add_outputs(graph, signature, predictions, is_of_second_class=trees.n_targets == 1)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "lightgbm",
            [_value_info(tensor) for tensor in signature.inputs],
            [_value_info(tensor) for tensor in signature.outputs],
            graph.constants,
        ),
        opset_imports=imports,
        ir_version=helper.find_min_ir_version_for(imports),
    )
    save_onnx(model, signature, file_path)


@dataclass(slots=True)
class _Graph:
    """Nodes and constants, under names that no input or output has."""

    taken: set[str]
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        name, number = wanted, 1
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: int) -> str:
        """Add a node of a default operator, and return the name of its output."""
        from onnx import helper

        output = output or self.name(operator.lower())
        node = helper.make_node(operator, inputs, [output])
        node.attribute.extend(
            helper.make_attribute(name, value) for name, value in attributes.items()
        )
        self.nodes.append(node)
        return output

    def constant(self, values: Any) -> str:
        """Add a constant, and return its name."""
        from onnx import numpy_helper

        name = self.name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def _value_info(tensor: Tensor) -> Any:
    from onnx import TensorProto, helper

    types = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT}
    types |= {"int64": TensorProto.INT64, "string": TensorProto.STRING}
    shape = [size if size is not None else "rows" for size in tensor.shape]
    return helper.make_tensor_value_info(tensor.name, types[tensor.dtype], shape)


def _feature_matrix(graph: _Graph, signature: Signature) -> str:
    """Return the inputs as one matrix of doubles, categories of text as their codes."""
    from onnx import TensorProto

    if signature.layout != "columns":
        (tensor,) = signature.inputs
        if tensor.dtype == DOUBLE:
            return tensor.name
        return graph.add("Cast", tensor.name, to=TensorProto.DOUBLE)
    columns = [
        _codes(graph, tensor.name, [str(text) for text in feature.categories or ()])
        if tensor.dtype == "string"
        else tensor.name
        for tensor, feature in zip(signature.inputs, signature.features, strict=True)
    ]
    return graph.add("Concat", *columns, axis=1)


def _codes(graph: _Graph, texts: str, categories: Sequence[str]) -> str:
    """Return texts as the places of categories, and NaN where they are none."""
    from onnx import helper, numpy_helper

    codes = graph.name("codes")
    tables = {
        "keys_tensor": np.array(categories, dtype=object),
        "values_tensor": np.arange(len(categories), dtype=np.float64),
        "default_tensor": np.array([np.nan]),
    }
    node = helper.make_node("LabelEncoder", [texts], [codes], domain=DOMAIN)
    node.attribute.extend(
        helper.make_attribute(name, numpy_helper.from_array(table))
        for name, table in tables.items()
    )
    graph.nodes.append(node)
    return codes


def _clean_features(graph: _Graph, trees: LightGBMTrees, features: str) -> str:
    """Make of the features what a TreeEnsemble needs of them (see lightgbm_trees)."""
    if len(trees.categorical):
        is_category = np.zeros((1, trees.n_features), dtype=bool)
        is_category[0, trees.categorical] = True
        # Cut towards zero, as C casts: sign(x) * floor(|x|), since ONNX has no operator for it.
        whole = graph.add("Floor", graph.add("Abs", features))
        whole = graph.add("Mul", graph.add("Sign", features), whole)
        features = graph.add("Where", graph.constant(is_category), whole, features)
    if len(trees.zero_is_missing):
        # |x| <= -1 is never true, so the other columns stay as they are.
        zeros = np.full((1, trees.n_features), -1.0)
        zeros[0, trees.zero_is_missing] = ZERO
        is_zero = graph.add("LessOrEqual", graph.add("Abs", features), graph.constant(zeros))
        features = graph.add("Where", is_zero, graph.constant(np.float64(np.nan)), features)
    return features


def _linked(graph: _Graph, link: Link, scores: str) -> str:
    if link.function == "identity":
        return scores
    if link.function == "signed_square":
        return graph.add("Mul", graph.add("Mul", graph.add("Sign", scores), scores), scores)
    if link.function == "softmax":
        return graph.add("Softmax", scores, axis=1)
    if link.function == "exp":
        return graph.add("Exp", scores)
    one = graph.constant(np.float64(1))
    if link.function == "sigmoid":
        steep = graph.add("Mul", scores, graph.constant(np.float64(-link.steepness)))
        return graph.add("Div", one, graph.add("Add", one, graph.add("Exp", steep)))
    return graph.add("Log", graph.add("Add", one, graph.add("Exp", scores)))


def _add_outputs(
    graph: _Graph, signature: Signature, values: str, is_of_second_class: bool
) -> None:
    """Make the outputs of predictions, one column each, or that of the second of two classes."""
    if signature.class_labels is None:
        (output,) = signature.outputs
        if len(output.shape) == 1:
            graph.add("Squeeze", values, graph.constant(np.array([1])), output=output.name)
        else:
            graph.add("Identity", values, output=output.name)
        return
    if is_of_second_class:
        # As LightGBM's own wrapper makes it, to the last bit.
        first = graph.add("Sub", graph.constant(np.float64(1)), values)
        graph.add("Concat", first, values, axis=1, output=PROBABILITIES)
    else:
        graph.add("Identity", values, output=PROBABILITIES)
    labels = signature.class_labels
    # Of equal probabilities the first is taken, as by numpy.argmax.
    if labels == tuple(range(len(labels))):
        graph.add("ArgMax", PROBABILITIES, axis=1, keepdims=0, output=LABEL)
    else:
        place = graph.add("ArgMax", PROBABILITIES, axis=1, keepdims=0)
        is_text = isinstance(labels[0], str)
        known = graph.constant(np.array(labels, dtype=object if is_text else np.int64))
        graph.add("Gather", known, place, axis=0, output=LABEL)
