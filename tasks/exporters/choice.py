"""Which exporter writes the models of a library in a format."""

from collections.abc import Callable
from typing import Any

from partwise.tasks.errors import ExportRefused, FunctionError
from partwise.tasks.exporters.lightgbm import LightGBMOnnxExporter
from partwise.tasks.exporters.native import NativeExporter
from partwise.tasks.exporters.neuron import NeuronExporter
from partwise.tasks.exporters.options import ModelFormat
from partwise.tasks.exporters.protocol import Exporter
from partwise.tasks.exporters.pt2 import Pt2Exporter
from partwise.tasks.exporters.torch import TorchOnnxExporter
from partwise.tasks.exporters.torchscript import TorchScriptExporter
from partwise.tasks.exporters.xgboost import XGBoostOnnxExporter
from partwise.tasks.serdes import library_of
from partwise.tasks.trainers import resolve_trainer

EXPORTERS: dict[tuple[ModelFormat, str], Callable[[], Exporter]] = {
    ("onnx", "lightgbm"): LightGBMOnnxExporter,
    ("onnx", "xgboost"): XGBoostOnnxExporter,
    ("onnx", "torch"): TorchOnnxExporter,
    ("torchscript", "torch"): TorchScriptExporter,
    ("pt2", "torch"): Pt2Exporter,
    ("neuron", "torch"): NeuronExporter,
    ("native", "lightgbm"): NativeExporter,
    ("native", "xgboost"): NativeExporter,
}
"""The built-in exporters by format and library."""


def exporter_for(form: ModelFormat, model: Any) -> Exporter:
    """Return the exporter of a model to a format.

    Raises:
        ExportRefused: There is none for its type.

    Example:
        >>> exporter_for("onnx", booster)  # doctest: +SKIP
        LightGBMOnnxExporter()
    """
    library = library_of(model) or ""
    if (form, library) in EXPORTERS:
        return EXPORTERS[form, library]()
    kind = type(model)
    formats = [name for name, of in EXPORTERS if of == library]
    instead = f"choose {' or '.join(formats)}" if formats else "pass exporter=, one of your own"
    raise ExportRefused(
        f"A {kind.__module__}.{kind.__qualname__} cannot be exported to {form}: {instead}."
    )


def resolve_exporter(exporter: Exporter | str) -> Exporter | None:
    """Return the exporter that a caller gives: itself, or what a named function returns.

    Args:
        exporter: An `Exporter`, "package.module:function", or "" for none.

    Raises:
        FunctionError: The name leads nowhere, or to something that is no exporter.
    """
    if exporter == "":
        return None
    made = resolve_trainer(exporter)() if isinstance(exporter, str) else exporter
    if not isinstance(made, Exporter):
        raise FunctionError(
            f"exporter={exporter!r} is a {type(made).__name__}, which lacks describe, write or "
            "predict: give an Exporter, or the name of a function that returns one."
        )
    return made
