"""What exporters of trees have in common, whichever library trained the model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.graph import refuse_names
from partwise.models.export_options import ExportOptions, refuse_optimization
from partwise.models.signature import (
    Feature,
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feature_tensors,
    matrix_of_feeds,
    type_name,
)

PREDICTION, LABEL, PROBABILITIES = "prediction", "label", "probabilities"

DEFAULT_OPSET = 21
"""Of the same release as the TreeEnsemble."""

OPSETS = range(13, 24)
"""From the first whose operators take these arguments, to the last that onnxruntime 1.23 knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeModel:
    """What a model takes and gives.

    A regression, ranking or survival model gives "prediction", shape (n,), or (n, targets) of
    several targets; a classifier "label", shape (n,), and "probabilities", shape (n, classes).
    """

    dtype: Literal["float32", "float64"]
    """In which the library computes."""
    n_features: int
    n_targets: int
    labels: tuple[int, ...] | tuple[str, ...] | None
    """What the columns of probabilities stand for; None: there are none."""
    gives_labels: bool
    """Whether its own `predict` gives labels, where there are probabilities too."""

    def signature(
        self,
        model: Any,
        features: tuple[Feature, ...],
        feeds: Feeds | None,
        options: ExportOptions,
    ) -> Signature:
        """Return the signature of an export.

        Raises:
            ExportRefusedError: The feeds are not a matrix of its features, or an input cannot have
                its name.
        """
        outputs, prediction, column = self._outputs()
        inputs = (
            feature_tensors(features, self.dtype, options.input_layout)
            if feeds is None
            else (self._given_matrix(feeds),)
        )
        refuse_names(inputs, outputs)
        return Signature(
            inputs=inputs,
            outputs=outputs,
            layout=options.input_layout if feeds is None else "custom",
            features=features if feeds is None else (),
            prediction=prediction,
            prediction_column=column,
            class_labels=self.labels,
            model_type=type_name(model),
        )

    def _outputs(self) -> tuple[tuple[Tensor, ...], str, int | None]:
        """Return the outputs, which of them is the prediction, and its column."""
        if self.labels is None:
            targets = () if self.n_targets == 1 else (self.n_targets,)
            output = Tensor(name=PREDICTION, dtype=self.dtype, shape=(None, *targets))
            return (output,), PREDICTION, None
        of_labels = "string" if type(self.labels[0]) is str else "int64"
        outputs = (
            Tensor(name=LABEL, dtype=of_labels, shape=(None,)),
            Tensor(name=PROBABILITIES, dtype=self.dtype, shape=(None, len(self.labels))),
        )
        if self.gives_labels:
            return outputs, LABEL, None
        return outputs, PROBABILITIES, 1 if self.n_targets == 1 else None

    def _given_matrix(self, feeds: Feeds) -> Tensor:
        types = ("float32", "float64") if self.dtype == "float64" else ("float32",)
        for name, values in feeds.items():
            fits = values.ndim == 2 and values.shape[1] == self.n_features
            if len(feeds) == 1 and fits and values.dtype.name in types:
                return Tensor(name=name, dtype=values.dtype.name, shape=(None, self.n_features))
        shapes = {name: f"{values.dtype} {values.shape}" for name, values in feeds.items()}
        raise ExportRefusedError(
            f"A model of {self.n_features} features takes one input of {' or '.join(types)} and "
            f"shape (n, {self.n_features}), but the inputs function gave {shapes}."
        )


class TreeExporter(ABC):
    """Writes the models of one library as ONNX, in the numbers in which it computes itself."""

    LIBRARY: ClassVar[str]

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        self._opset(options)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the library itself gives. See `Exporter.predict`."""
        matrix = matrix_of_feeds(signature, feeds)
        if not len(matrix):  # LightGBM gives no shape for no rows, and scikit-learn refuses them
            return signature.outputs_of_no_rows()
        if signature.class_labels is None:
            return {PREDICTION: self._predict(model, matrix)}
        probabilities, labels = self._classify(model, matrix)
        kind = signature.outputs[0].dtype
        return {
            LABEL: labels.astype(object if kind == "string" else kind),
            PROBABILITIES: probabilities,
        }

    def _opset(self, options: ExportOptions) -> int:
        if options.precision != "full":
            raise ExportRefusedError(
                f"A model of trees is not exported in {options.precision}: its thresholds would "
                'move, and rows near them would change sides. Pass precision="full".'
            )
        refuse_optimization(options)
        opset = options.opset or DEFAULT_OPSET
        if opset not in OPSETS:
            raise ExportRefusedError(
                f"{self.LIBRARY} models are not exported with opset {opset}: pass one of "
                f"{OPSETS[0]} to {OPSETS[-1]}, or none for {DEFAULT_OPSET}."
            )
        return opset

    @abstractmethod
    def _predict(self, model: Any, matrix: np.ndarray) -> np.ndarray:
        """Return the predictions of one row or more."""

    @abstractmethod
    def _classify(self, model: Any, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of all classes, and labels, of one row or more."""
