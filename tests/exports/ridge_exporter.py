"""An exporter as a user may write one: scikit-learn's Ridge, as a product and a sum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import (
    MATRIX,
    Feature,
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feature_tensors,
)

OPSET = 18


@dataclass(frozen=True)
class RidgeExporter:
    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        if type(model).__name__ != "Ridge":
            raise ExportRefusedError(f"A {type(model).__name__} is not a Ridge.")
        features = [Feature(name=str(name)) for name in model.feature_names_in_]
        signature = Signature(
            inputs=feature_tensors(features, "float64", "tensor"),
            outputs=(Tensor(name="prediction", dtype="float64", shape=(None,)),),
            layout="tensor",
            features=tuple(features),
            prediction="prediction",
            model_type="sklearn.linear_model.Ridge",
        )
        return ModelDescription(
            signature=signature, tolerance=Tolerance(atol=1e-12, rtol=1e-12), opset=OPSET
        )

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,
        file_path: str,
    ) -> None:
        from onnx import TensorProto, helper, numpy_helper

        nodes = [
            # Of a vector of weights onnxruntime refuses the product with no rows.
            helper.make_node("MatMul", [MATRIX, "weights"], ["product"]),
            helper.make_node("Squeeze", ["product", "axis"], ["row"]),
            helper.make_node("Add", ["row", "intercept"], ["prediction"]),
        ]
        graph = helper.make_graph(
            nodes,
            "ridge",
            [helper.make_tensor_value_info(MATRIX, TensorProto.DOUBLE, [None, len(model.coef_)])],
            [helper.make_tensor_value_info("prediction", TensorProto.DOUBLE, [None])],
            [
                numpy_helper.from_array(np.reshape(model.coef_, (-1, 1)), "weights"),
                numpy_helper.from_array(np.array([1], np.int64), "axis"),
                numpy_helper.from_array(np.asarray(model.intercept_, np.float64), "intercept"),
            ],
        )
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9
        )
        save_onnx(made, description.signature, file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        return {"prediction": feeds[MATRIX] @ model.coef_ + model.intercept_}


def make() -> RidgeExporter:
    """What `exporter="tests.exports.ridge_exporter:make"` names."""
    return RidgeExporter()
