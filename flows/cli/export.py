"""`partwise export`, `validate` and `pipeline`: from trained models to proved files."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import (
    ROWS,
    RUN,
    ClusterOptions,
    FollowingRunOptions,
    LimitOptions,
    Names,
    RowOptions,
    RunOptions,
    TrainerOptions,
    built,
    given,
    parse_condition,
    split_names,
)

if TYPE_CHECKING:
    from partwise.models.export_options import ExportOptions, ValidationOptions

EXPORT = Group("Export", sort_key=0)

Format = Annotated[
    Literal["onnx", "torchscript", "pt2", "native", "neuron"],
    Parameter(group=EXPORT, help="What models become. Default: onnx."),
]
Inputs = Annotated[
    str,
    Parameter(
        group=EXPORT,
        help="For PyTorch modules: what makes their inputs of rows, a function of (data, model, "
        "context): package.module:function.",
    ),
]
ExporterName = Annotated[
    str,
    Parameter(
        name="--exporter",
        group=EXPORT,
        help="What writes models of your own kind: a function that returns an Exporter: "
        "package.module:function.",
    ),
]
Rows = Annotated[
    Names,
    Parameter(help="Rows to compare on: files, globs, folders or URLs. Default: the run's own."),
]
Pickle = Annotated[
    bool,
    Parameter(group=RUN, help="Read models that are pickles, which runs the code in them."),
]
Target = Annotated[
    str,
    Parameter(
        group=EXPORT,
        help="A folder or URL in which each file is laid out as <partition_id>/model.onnx, with an "
        "index.json, for servers such as Triton.",
    ),
]
InferOn = Annotated[
    Names,
    Parameter(group=ROWS, help="Rows to infer with the exports. Default: those trained on."),
]
Predict = Annotated[
    str,
    Parameter(
        group=ROWS,
        help="Your own function of (data, model, context), where the model is the export: "
        "package.module:function. Default: the model's own prediction.",
    ),
]
KeepColumns = Annotated[
    Names,
    Parameter(group=ROWS, help="Columns to keep beside the predictions, such as a date."),
]
_RUN, _FOLLOWING = RunOptions(), FollowingRunOptions()
_LIMITS, _CLUSTER = LimitOptions(), ClusterOptions()


@Parameter(name="*", group=EXPORT)
@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How models are exported."""

    opset: int | None = None
    """The version of ONNX' operators. Default: what the writer was tested with."""
    layout: Annotated[Literal["tensor", "columns"], Parameter(name="--model-inputs")] = "tensor"
    """One matrix of all features, or an input for each column. Default: tensor."""
    precision: Literal["full", "float16", "int8"] = "full"
    """That of the model, or less, judged by a metric (PyTorch modules as ONNX). Default: full."""
    optimization: Literal["none", "basic", "extended", "all"] = "none"
    """How far onnxruntime rewrites the graph before it is stored. Default: none."""

    def build(self) -> "ExportOptions":
        """Return the options of a flow.

        Raises:
            InputError: A number is out of bounds.
        """
        from partwise.models.export_options import ExportOptions

        said = given(vars(self))
        return built(ExportOptions, inputs=said.pop("layout"), **said)


@Parameter(name="*", group=EXPORT)
@dataclass(frozen=True, kw_only=True)
class ValidationSettings:
    """How exports are compared with their models."""

    atol: float | None = None
    """Values may differ by atol + rtol * |expected|. Default: what the arithmetic allows for."""
    rtol: float | None = None
    """See --atol."""
    most_rows: int | None = None
    """Of a partition's rows, so many are compared at most. Default: 1000."""
    max_metric_loss: float | None = None
    """With less precision: how much worse the metric may be, as a fraction. Default: 0.01."""

    def build(self) -> "ValidationOptions":
        """Return the options of a flow.

        Raises:
            InputError: A number is out of bounds.
        """
        from partwise.models.export_options import ValidationOptions

        return built(ValidationOptions, **given(vars(self)))


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class ComparedRowOptions:
    """Which of the rows are compared on."""

    where: Names = ()
    """Rows to keep, such as "price > 0". Given several times, all must hold."""
    columns: Names = ()
    """Columns to read. Default: all."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a flow that say the same.

        Raises:
            InputError: A condition cannot be read.
        """
        return {
            "filter": [parse_condition(text) for text in self.where] or None,
            "columns": split_names(self.columns) or None,
        }


_EXPORT, _VALIDATION, _ROWS = ExportSettings(), ValidationSettings(), ComparedRowOptions()
_FILES = FileOptions()


def export(
    training_run_id: Annotated[str, Parameter(name="RUN", help="The training run.")],
    data: Rows = (),
    /,
    *,
    form: Annotated[Format, Parameter(name="--format")] = "onnx",
    to: Target = "",
    inputs: Inputs = "",
    exporter: ExporterName = "",
    settings: ExportSettings = _EXPORT,
    validation: ValidationSettings = _VALIDATION,
    rows: ComparedRowOptions = _ROWS,
    files: FileOptions = _FILES,
    run: FollowingRunOptions = _FOLLOWING,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Export every model of a training run, each proved before it is published."""
    from partwise.flows.cli.main import pickle_serde, run_flow
    from partwise.runs.layout import check_target
    from partwise.store.store import Store

    arguments = {
        "training_run_id": training_run_id,
        "format": form,
        "data": files.of(data),
        "inputs": inputs,
        "exporter": exporter,
        "options": settings.build(),
        "validation": validation.build(),
        "serde": pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("export"),
        "execution": limits.build(),
        "cluster": cluster.build(),
    }
    if to:
        check_target(Store.parse(to))
    code = run_flow("export_models", arguments)
    if to:
        _lay_out(arguments["run_id"], run.store, to)
    return code


def validate(
    export_run_id: Annotated[str, Parameter(name="RUN", help="The export run.")],
    data: Rows = (),
    /,
    *,
    inputs: Inputs = "",
    exporter: ExporterName = "",
    validation: ValidationSettings = _VALIDATION,
    rows: ComparedRowOptions = _ROWS,
    files: FileOptions = _FILES,
    run: FollowingRunOptions = _FOLLOWING,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Prove the files of an export run again: on new rows, or with another onnxruntime."""
    from partwise.flows.cli.main import pickle_serde, run_flow

    arguments = {
        "export_run_id": export_run_id,
        "data": files.of(data),
        "inputs": inputs,
        "exporter": exporter,
        "validation": validation.build(),
        "serde": pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("validate"),
        "execution": limits.build(),
        "cluster": cluster.build(),
    }
    return run_flow("validate_exports", arguments)


def pipeline(
    data: Annotated[Names, Parameter(help="Files, globs, folders or URLs to train on.")],
    /,
    *,
    trainer: TrainerOptions,
    rows: RowOptions,
    files: FileOptions = _FILES,
    infer_on: InferOn = (),
    form: Annotated[Format, Parameter(name="--format")] = "onnx",
    inputs: Inputs = "",
    exporter: ExporterName = "",
    predict: Predict = "",
    keep_columns: KeepColumns = (),
    settings: ExportSettings = _EXPORT,
    validation: ValidationSettings = _VALIDATION,
    run: RunOptions = _RUN,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Train, export, validate and infer: four runs under one name."""
    from partwise.flows.cli.main import pickle_serde, run_flow

    arguments = {
        "data": files.of(data),
        "trainer": trainer.build(),
        "inference_data": files.of(infer_on) or "",
        "format": form,
        "inputs": inputs,
        "exporter": exporter,
        "predict": predict,
        "serde": pickle_serde(pickle),
        "keep_columns": split_names(keep_columns),
        "options": settings.build(),
        "validation": validation.build(),
        **rows.arguments(),
        **run.arguments("pipeline"),
        "execution": limits.build(),
        "cluster": cluster.build(),
    }
    return run_flow("model_pipeline", arguments)


def _lay_out(run_id: str, store: str, to: str) -> None:
    from partwise.flows.cli.report import console
    from partwise.runs.layout import INDEX_FILE, lay_out
    from partwise.runs.run import Run
    from partwise.store.store import Store

    target = Store.parse(to)
    count = lay_out(Run.open(run_id, store), target)
    console().print(f"laid out {count:,} files below {target.url}, see {INDEX_FILE}", markup=False)
