"""Boosters in their library's own format."""

from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.exports.trees.exporter import PREDICTION
from partwise.exports.trees.xgboost import predicted
from partwise.models.export_options import ExportOptions, refuse_native_options
from partwise.models.serdes import SERDES, library_of
from partwise.models.signature import (
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feature_tensors,
    features_of,
    feeds_of_rows,
    matrix_of_feeds,
    type_name,
)
from partwise.trainers.ready.boosting import predict_rows
from partwise.trainers.ready.lightgbm import features_of_booster as lightgbm_features
from partwise.trainers.ready.xgboost import booster_features as xgboost_features


class NativeExporter:
    """Boosters of LightGBM and XGBoost as their libraries write them.

    The file holds no signature; it stands in signature.json beside it.
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        refuse_native_options(options)

    def describe(
        self,
        model: Any,
        rows: pa.Table,
        feeds: Feeds | None,
        options: ExportOptions,
    ) -> ModelDescription:
        """Return the features of a Booster, and its prediction as the library gives it.

        Raises:
            ExportRefusedError: It is not a Booster, an option asks for another file than the
                library's, or a function makes its inputs.
            ColumnError: The rows lack a feature of the model.
        """
        self.check(options)
        if feeds is not None:
            raise ExportRefusedError(
                "The format native takes rows by the model's own feature names: leave "
                "example_inputs= out, or choose onnx."
            )
        library = library_of(model)
        if type(model).__name__ != "Booster" or library not in ("lightgbm", "xgboost"):
            raise ExportRefusedError(
                f"The format native is for Boosters of LightGBM and XGBoost, and this is a "
                f"{type_name(model)}: choose onnx, or train its Booster."
            )
        dtype: Literal["float32", "float64"]
        if library == "lightgbm":
            dtype = "float64"
            names, found = lightgbm_features(model, rows, options.features)
            categories = dict(found)
        else:
            dtype = "float32"
            names, categories = xgboost_features(model, rows, options.features)
        features = features_of(names, categories)
        signature = Signature(
            inputs=feature_tensors(features, dtype, "tensor"),
            outputs=(),
            layout="tensor",
            features=features,
            prediction=PREDICTION,
            model_type=type_name(model),
        )
        tried = self.predict(model, signature, feeds_of_rows(signature, rows.slice(0, 1)))
        output = Tensor(
            name=PREDICTION,
            dtype=str(tried[PREDICTION].dtype),
            shape=(None, *tried[PREDICTION].shape[1:]),
        )
        return ModelDescription(
            signature=signature.model_copy(update={"outputs": (output,)}),
            tolerance=Tolerance(atol=0.0, rtol=0.0),
            # The file is the library's own: what is proved is that it is whole, and can be read.
            is_constant=True,
        )

    def write(
        self,
        model: Any,
        description: ModelDescription,  # noqa: ARG002 (the protocol)
        sample: Feeds,  # noqa: ARG002 (the protocol)
        options: ExportOptions,  # noqa: ARG002 (the protocol)
        file_path: str,
    ) -> None:
        """Write the model with the serde of its library."""
        SERDES[library_of(model) or ""]().write(model, file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the library predicts."""
        predict = partial(predicted, model)
        if library_of(model) == "lightgbm":
            predict = partial(model.predict, num_threads=1)
        matrix = np.ascontiguousarray(matrix_of_feeds(signature, feeds))
        return {PREDICTION: predict_rows(matrix, predict)}
