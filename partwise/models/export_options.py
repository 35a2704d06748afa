"""How models are exported, and how the exports are proved."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import ExportRefusedError
from partwise.form_schema import FormSettings

ModelFormat = Literal["onnx", "torchscript", "pt2", "native", "neuron"]
EMBEDDED_BYTES = 1_500_000_000
"""Protobuf ends at 2 GiB; weights above this are external data, in a file of their own."""


def format_of(serde: str) -> ModelFormat:
    """Return the format of the files that a serde of this name reads.

    Example:
        >>> format_of("onnx"), format_of("lightgbm")
        ('onnx', 'native')
    """
    match serde:
        case "onnx" | "torchscript" | "pt2" | "neuron":
            return serde
        case _:
            return "native"


class ExportOptions(FormSettings):
    """How a model becomes a file. The defaults suit most runs."""

    model_config = ConfigDict(title="Export options")

    opset: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="The version of ONNX' operators. Default: what the writer was tested with.",
    )
    input_layout: Literal["tensor", "columns"] = Field(
        title="Layout of the inputs",
        default="tensor",
        description='"tensor": one matrix of all features, categories as their codes. "columns": '
        "an input for each column, categories of text as text.",
    )
    features: Annotated[tuple[str, ...], Field(min_length=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="For Boosters that were trained on a matrix without names: the columns of "
        "their features, in the model's order.",
    )
    precision: Literal["full", "float16", "int8"] = Field(
        default="full",
        description='"full": that of the model. "float16" or "int8" (dynamic quantization) for '
        "PyTorch modules as ONNX; judged by a metric, since values do differ.",
    )
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        default="none",
        description="How far onnxruntime rewrites the graph of a PyTorch module before it is "
        'stored; from "extended" on it runs nowhere else.',
    )
    embedded_bytes: int = Field(
        title="Largest embedded weights (bytes)",
        default=EMBEDDED_BYTES,
        ge=0,
        le=EMBEDDED_BYTES,
        description="Weights of more bytes than this stand in a file beside model.onnx.",
    )


class ValidationOptions(FormSettings):
    """How an export is compared with its model."""

    model_config = ConfigDict(title="Validation options")

    atol: Annotated[float, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="Absolute tolerance",
        default=None,
        description="Values may differ by atol + rtol * |expected|. Default: what follows from the "
        "model's own arithmetic.",
    )
    rtol: Annotated[float, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="Relative tolerance",
        default=None,
        description="See the absolute tolerance.",
    )
    most_rows: int = Field(
        default=1000,
        ge=1,
        description="Of a partition's held-out rows, so many are compared at most, evenly spread.",
    )
    max_metric_loss: float = Field(
        title="Metric loss allowed",
        default=0.01,
        ge=0,
        description="For float16 and int8: how much worse the export may be on the held-out rows, "
        "as a fraction of the model's own error.",
    )
    judge_timeout_s: float = Field(
        title="Time limit of the judge",
        default=600.0,
        gt=0,
        description="For so many seconds one file may be loaded, run and compared. A file that "
        "takes longer is refused, and the process that judged it ended.",
    )


def refuse_optimization(options: ExportOptions) -> None:
    """Refuse to optimize a model of trees, which is one operator: there is nothing to rewrite."""
    if options.optimization != "none":
        raise ExportRefusedError(
            f"optimization={options.optimization!r} is for PyTorch modules: a model of trees is "
            "one operator, which onnxruntime does not rewrite. Leave it out."
        )


def refuse_native_options(options: ExportOptions) -> None:
    """Refuse options of a file that a library writes by itself.

    Raises:
        ExportRefusedError: One is given that says more than which features there are.
    """
    given = options.model_dump(exclude_defaults=True, exclude={"features"})
    if given:
        raise ExportRefusedError(
            f"The format native writes the library's own file, so the options {sorted(given)} "
            "mean nothing there: leave them out, or choose onnx."
        )
