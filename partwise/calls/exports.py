"""Calls that export models and prove the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from partwise.calls.call import FUNCTION, HOW, WHERE, CallKind, ExecutedCall, Role
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        ColumnsParameter,
        DataParameter,
        ExampleInputsParameter,
        ExporterParameter,
        FilterParameter,
        SerdeParameter,
        TransformersParameter,
    )


@dataclass(frozen=True, kw_only=True)
class ComparedCall(ExecutedCall):
    """A call that compares exports with their models on rows."""

    data: DataParameter = field(default="", metadata=Role(is_written=False, is_data=True).metadata)
    """Rows that models and files are compared on, some of each partition, as train_models takes
    them. Empty: those of the run whose models or files they are. One model on all rows is compared
    on some."""
    filter: FilterParameter = field(default=(), metadata=WHERE)
    """Rows to keep: (column, op, value) tuples that must all hold, or lists of them. None given,
    nor data: as in that run."""
    columns: ColumnsParameter = field(default=(), metadata=WHERE)
    """Columns to read. None given: all."""
    example_inputs: ExampleInputsParameter = field(default="", metadata=FUNCTION)
    """For PyTorch modules: "package.module:function", a function of (data, model, context) that
    returns the module's inputs of rows, a mapping of names to arrays. Empty: the columns that the
    module's `feature_names_in_` lists, as one matrix. From Python also the function itself."""
    exporter: ExporterParameter = field(default="", metadata=FUNCTION)
    """What writes models of your own kind, such as scikit-learn's: "package.module:function", which
    returns an Exporter. Empty: the built-in one of the library. From Python also an Exporter."""
    validation: ValidationOptions = field(default_factory=ValidationOptions)
    """Tolerances, how many rows."""
    serde: SerdeParameter = ""
    """Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
    "torchscript" and "neuron" run code, so they are read only if named. From Python also a
    serde."""
    trust: bool = field(default=False, metadata=WHERE)
    """Whether the run that is named may have been made by somebody else. Of such a run nothing is
    called and no rows are read that its own call names, unless you say so; what you give here
    instead is not asked about."""


@dataclass(frozen=True)
class ExportCall(ComparedCall):
    """A call of `export_models`."""

    kind: ClassVar[CallKind] = "export"

    training_run_id: str
    """The run of train_models or train_distributed, in the same store, whose models are exported.
    Or "latest", or a pattern such as nightly-*, for the newest that is complete and has a model; a
    resume goes on with the one that it began with.

    The scheduled time can stand in it as in run_id."""
    format: ModelFormat = "onnx"
    """"onnx"; "torchscript" or "pt2" for PyTorch modules; "native", the library's own; "neuron" for
    AWS Neuron, where its SDK is installed."""
    _: KW_ONLY
    options: ExportOptions = field(default_factory=ExportOptions)
    """Opset, layout of the inputs, precision, optimization."""


@dataclass(frozen=True)
class ValidateCall(ComparedCall):
    """A call of `validate_exports`."""

    kind: ClassVar[CallKind] = "validate"

    export_run_id: str
    """The run of export_models, in the same store; "latest" and patterns as in export_models.

    The scheduled time can stand in it as in run_id."""
    _: KW_ONLY
    example_inputs: ExampleInputsParameter = field(default="", metadata=FUNCTION)
    """As export_models was given it. Empty: the function that it was given by name."""
    exporter: ExporterParameter = field(default="", metadata=FUNCTION)
    """As export_models was given it. Empty: that which it was given by name."""
    format: ModelFormat | Literal[""] = field(default="", metadata=Role(is_newer=True).metadata)
    """The format of the exports; needed for "torchscript", "pt2" and "neuron", whose files run code
    when they are read."""


@dataclass(frozen=True)
class TransformersCall(ExecutedCall):
    """A call of `export_transformers`."""

    kind: ClassVar[CallKind] = "export-transformers"

    models: Sequence[TransformersParameter] = field(metadata=HOW)
    """What to export: TransformersExport, mappings of its fields, or tuples of the model's folder,
    its feature and TransformersOptions. In place of a folder, the ID of a model on the hub is
    fetched here, before the run: workers have to share this machine's cache folder of the hub."""
