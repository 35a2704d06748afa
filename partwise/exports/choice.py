"""Which exporter writes the models of a library in a format."""

from collections.abc import Callable, Iterable
from typing import Any

from partwise.errors import ExportRefusedError, FunctionError
from partwise.exports.keras.exporter import KerasNativeExporter, KerasOnnxExporter
from partwise.exports.keras.models import INSTEAD_OF_KERAS_2
from partwise.exports.neuron import NeuronExporter
from partwise.exports.protocol import Exporter
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.exports.torch.pt2 import Pt2Exporter
from partwise.exports.torch.torchscript import TorchScriptExporter
from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.exports.trees.native import NativeExporter
from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.models.export_options import ExportOptions, ModelFormat
from partwise.models.serdes import library_of
from partwise.models.signature import type_name
from partwise.trainers import resolve_trainer

EXPORTERS: dict[tuple[ModelFormat, str], Callable[[], Exporter]] = {
    ("onnx", "keras"): KerasOnnxExporter,
    ("onnx", "lightgbm"): LightGBMOnnxExporter,
    ("onnx", "xgboost"): XGBoostOnnxExporter,
    ("onnx", "torch"): TorchOnnxExporter,
    ("torchscript", "torch"): TorchScriptExporter,
    ("pt2", "torch"): Pt2Exporter,
    ("neuron", "torch"): NeuronExporter,
    ("native", "keras"): KerasNativeExporter,
    ("native", "lightgbm"): NativeExporter,
    ("native", "xgboost"): NativeExporter,
}
"""The built-in exporters by format and library."""


def exporter_for(form: ModelFormat, model: Any) -> Exporter:
    """Return the exporter of a model to a format.

    Raises:
        ExportRefusedError: There is none for its type.

    Example:
        >>> exporter_for("onnx", booster)  # doctest: +SKIP
        LightGBMOnnxExporter()
    """
    library = library_of(model) or ""
    if (form, library) in EXPORTERS:
        return EXPORTERS[form, library]()
    formats = [name for name, of in EXPORTERS if of == library]
    instead = f"choose {' or '.join(formats)}" if formats else "pass exporter=, one of your own"
    if type_name(model).split(".")[0] in ("tf_keras", "tensorflow"):
        instead = INSTEAD_OF_KERAS_2
    raise ExportRefusedError(f"A {type_name(model)} cannot be exported to {form}: {instead}.")


def resolve_exporter(exporter: Exporter | str) -> Exporter | None:
    """Return the exporter that a caller gives: itself, or what a named function returns; "": none.

    Raises:
        FunctionError: The name leads nowhere, or to something that is not an exporter.
    """
    if exporter == "":
        return None
    made = resolve_trainer(exporter)() if isinstance(exporter, str) else exporter
    if isinstance(made, type):
        # A class has the methods too.
        raise FunctionError(
            f"exporter={exporter!r} is a class: give an exporter, such as {made.__name__}()."
        )
    if not isinstance(made, Exporter):
        raise FunctionError(
            f"exporter={exporter!r} is a {type(made).__name__}, which lacks describe, write or "
            "predict: give an Exporter, or the name of a function that returns one."
        )
    return made


def check_formats(form: ModelFormat, libraries: Iterable[str], options: ExportOptions) -> None:
    """Refuse, before any work, what would be refused for every model.

    A name that is not a library's stands for models whose libraries are not known.

    Raises:
        ExportRefusedError: There is no exporter for any of them, or each refuses the options.
    """
    known = {library for _, library in EXPORTERS}
    refusals = []
    for library in sorted(libraries):
        found = EXPORTERS.get((form, library))
        if found is None and library in known:
            formats = sorted(name for name, of in EXPORTERS if of == library)
            refusals.append(
                ExportRefusedError(
                    f"Models of {library} cannot be exported to {form}: choose "
                    f"{' or '.join(formats)}."
                )
            )
            continue
        exporter: Any = None if found is None else found()
        if not hasattr(exporter, "check"):
            return
        try:
            exporter.check(options)
        except ExportRefusedError as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise refusals[0]
