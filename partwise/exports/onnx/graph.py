"""ONNX graphs that are written node by node: their names, constants, inputs and file."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.tree_ensemble import DOMAIN, DOMAIN_VERSION
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import Signature, Tensor


class Graph:
    """Nodes and constants, under names that no input or output has."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._taken = {tensor.name for tensor in (*signature.inputs, *signature.outputs)}
        self.nodes: list[Any] = []
        """Each an `onnx.NodeProto`."""
        self._constants: list[Any] = []
        self._names_of_constants: dict[Any, str] = {}

    def name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: int) -> str:
        """Add a node of a default operator, and return the name of its output."""
        from onnx import helper

        output = output or self.name(operator.lower())
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, values: Any) -> str:
        """Add a constant, or find an equal one, and return its name."""
        from onnx import numpy_helper

        array = np.asarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        # Of two equal ones, one that is altered would have the other for its proof.
        if array.dtype == object or key not in self._names_of_constants:
            self._names_of_constants[key] = self.name("constant")
            name = self._names_of_constants[key]
            self._constants.append(numpy_helper.from_array(array, name))
        return self._names_of_constants[key]

    def cast(self, values: str, dtype: Literal["float32", "float64", "int64"]) -> str:
        """Add a cast, and return the name of its output."""
        return self.add("Cast", values, to=_number_of(dtype))

    def add_output(self, output: Tensor, values: str) -> None:
        """Make an output of a matrix: of its only column where the output has one axis."""
        if len(output.shape) == 1:
            self.add("Squeeze", values, self.constant(np.array([1])), output=output.name)
        else:
            self.add("Identity", values, output=output.name)

    def feature_matrix(self, dtype: Literal["float32", "float64"]) -> str:
        """Add what makes one matrix of the inputs, and return its name.

        Categories of text become their codes, NaN where they are none.
        """
        if self._signature.layout != "columns":
            (tensor,) = self._signature.inputs
            return tensor.name if tensor.dtype == dtype else self.cast(tensor.name, dtype)
        pairs = zip(self._signature.inputs, self._signature.features, strict=True)
        columns = [
            self._codes(tensor.name, [str(text) for text in feature.categories or ()], dtype)
            if tensor.dtype == "string"
            else tensor.name
            for tensor, feature in pairs
        ]
        return self.add("Concat", *columns, axis=1)

    def _codes(self, texts: str, categories: Sequence[str], dtype: str) -> str:
        """Add what makes of texts the places of categories, and NaN where they are none."""
        from onnx import helper, numpy_helper

        codes = self.name("codes")
        tables = {
            "keys_tensor": np.array(categories, dtype=object),
            "values_tensor": np.arange(len(categories), dtype=dtype),
            "default_tensor": np.array([np.nan], dtype=dtype),
        }
        node = helper.make_node("LabelEncoder", [texts], [codes], domain=DOMAIN)
        node.attribute.extend(
            helper.make_attribute(name, numpy_helper.from_array(table))
            for name, table in tables.items()
        )
        self.nodes.append(node)
        return codes

    def save(self, name: str, opset: int, file_path: str) -> None:
        """Write the graph as a file, with the signature in its metadata."""
        from onnx import helper

        imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
        model = helper.make_model(
            helper.make_graph(
                self.nodes,
                name,
                [_value_info(tensor) for tensor in self._signature.inputs],
                [_value_info(tensor) for tensor in self._signature.outputs],
                self._constants,
            ),
            opset_imports=imports,
            ir_version=helper.find_min_ir_version_for(imports),
        )
        save_onnx(model, self._signature, file_path)


def refuse_names(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Refuse names of inputs that a graph cannot have, in which no two values share one.

    Raises:
        ExportRefusedError: An input has the name of an output, or none.
    """
    taken = [tensor.name for tensor in outputs]
    if unfit := [each.name for each in inputs if each.name in taken or not each.name]:
        raise ExportRefusedError(
            f"{unfit[0]!r} cannot be the name of an input, since outputs are named "
            f"{' and '.join(taken)} and no name is empty: rename it. Columns have no names in the "
            'file with input_layout="tensor".'
        )


def _value_info(tensor: Tensor) -> Any:
    from onnx import helper

    shape = [size if size is not None else "rows" for size in tensor.shape]
    return helper.make_tensor_value_info(tensor.name, _number_of(tensor.dtype), shape)


def _number_of(dtype: str) -> int:
    """Return ONNX' number of a type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(object if dtype == "string" else dtype)))
