"""`partwise export`, `validate` and `pipeline`: from trained models to proved files."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, default_name_transform

from partwise.flows.cli.call_options import CallOptions, FollowingCallOptions
from partwise.flows.cli.options import ROWS, RUN, InputFiles, Names, RowOptions, TrainerOptions
from partwise.flows.cli.parsing import parse_condition, split_names
from partwise.formatting import counted
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions

EXPORT = Group("Export", sort_key=0)


def _option_name(field: str) -> str:
    """Return the option of a field: `--features` are those of a trainer."""
    return default_name_transform(f"model_{field}" if field == "features" else field)


Export = Annotated[ExportOptions, Parameter(name="*", group=EXPORT, name_transform=_option_name)]
Validation = Annotated[ValidationOptions, Parameter(name="*", group=EXPORT)]
Format = Annotated[
    ModelFormat, Parameter(name="--format", group=EXPORT, help="What models become.")
]
ExampleInputs = Annotated[
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
Trust = Annotated[
    bool,
    Parameter(
        group=RUN,
        help="Use the rows and functions that the run's own call names, though it was made "
        "elsewhere.",
    ),
]
ValidatedFormat = Annotated[
    ModelFormat | Literal[""],
    Parameter(
        name="--format",
        group=EXPORT,
        help="The format of the exports; needed for torchscript, pt2 and neuron, whose files run "
        "code when they are read.",
    ),
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
    Parameter(group=ROWS, help="Columns of the rows to keep with the predictions, such as a date."),
]
_CALL, _FOLLOWING = CallOptions(), FollowingCallOptions()


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class ComparedRowOptions:
    """Which of the rows are compared on."""

    where: Names = ()
    """Rows to keep, such as "price > 0". Given several times, all must hold."""
    columns: Names = ()
    """Columns to read. Default: all."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of a flow.

        Raises:
            InputError: A condition cannot be read.
        """
        return {
            "filter": [parse_condition(text) for text in self.where] or None,
            "columns": split_names(self.columns) or None,
        }


_EXPORT, _VALIDATION = ExportOptions(), ValidationOptions()
_ROWS = ComparedRowOptions()


def export(
    training_run_id: Annotated[str, Parameter(name="RUN", help="The training run.")],
    data: Rows = (),
    /,
    *,
    form: Format = "onnx",
    to: Target = "",
    example_inputs: ExampleInputs = "",
    exporter: ExporterName = "",
    options: Export = _EXPORT,
    validation: Validation = _VALIDATION,
    rows: ComparedRowOptions = _ROWS,
    call: FollowingCallOptions = _FOLLOWING,
    pickle: Pickle = False,
    trust: Trust = False,
) -> int:
    """Export every model of a training run, each proved before it is published."""
    from partwise.calls.exports import ExportCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde
    from partwise.runs.layout import check_target
    from partwise.store.store import Store

    asked = ExportCall(
        training_run_id=training_run_id,
        format=form,
        example_inputs=example_inputs,
        exporter=exporter,
        options=_with_names(options),
        validation=validation,
        serde=pickle_serde(pickle),
        trust=trust,
        **rows.arguments(),
        **call.arguments("export", data),
    )
    if to:
        check_target(Store.parse(to))
    code = call_and_print(asked)
    if to:
        _lay_out(asked.run_id, call.run.store, to)
    return code


def validate(
    export_run_id: Annotated[str, Parameter(name="RUN", help="The export run.")],
    data: Rows = (),
    /,
    *,
    form: ValidatedFormat = "",
    example_inputs: ExampleInputs = "",
    exporter: ExporterName = "",
    validation: Validation = _VALIDATION,
    rows: ComparedRowOptions = _ROWS,
    call: FollowingCallOptions = _FOLLOWING,
    pickle: Pickle = False,
    trust: Trust = False,
) -> int:
    """Prove the files of an export run again: on new rows, or with another onnxruntime."""
    from partwise.calls.exports import ValidateCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    asked = ValidateCall(
        export_run_id=export_run_id,
        example_inputs=example_inputs,
        exporter=exporter,
        validation=validation,
        serde=pickle_serde(pickle),
        format=form,
        trust=trust,
        **rows.arguments(),
        **call.arguments("validate", data),
    )
    return call_and_print(asked)


def pipeline(
    data: Annotated[Names, Parameter(help="Files, globs, folders or URLs to train on.")],
    /,
    *,
    trainer: TrainerOptions,
    rows: RowOptions,
    files: InputFiles = (),
    infer_on: InferOn = (),
    form: Format = "onnx",
    example_inputs: ExampleInputs = "",
    exporter: ExporterName = "",
    predict: Predict = "",
    keep_columns: KeepColumns = (),
    options: Export = _EXPORT,
    validation: Validation = _VALIDATION,
    call: CallOptions = _CALL,
    pickle: Pickle = False,
) -> int:
    """Train, export, validate and infer: four runs under one name."""
    from partwise.calls.pipeline import PipelineCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    built: Any = trainer.build()
    asked = PipelineCall(
        trainer=built,
        inference_data=call.files.of(infer_on) or "",
        format=form,
        example_inputs=example_inputs,
        exporter=exporter,
        predict=predict,
        serde=pickle_serde(pickle),
        keep_columns=split_names(keep_columns),
        options=_with_names(options),
        validation=validation,
        **rows.arguments(),
        files=list(files),
        **call.arguments("pipeline", data),
    )
    return call_and_print(asked)


def _with_names(options: ExportOptions) -> ExportOptions:
    """Return the options with the columns of a,b,c as three."""
    if options.features is None:
        return options
    return options.model_copy(update={"features": tuple(split_names(options.features))})


def _lay_out(run_id: str, store: str, to: str) -> None:
    from partwise.flows.cli.output import console
    from partwise.runs.layout import INDEX_FILE, lay_out
    from partwise.runs.run import Run
    from partwise.store.store import Store

    target = Store.parse(to)
    count = lay_out(Run.open(run_id, store), target)
    console().print(
        f"laid out {counted(count, 'file')} below {target.url}, see {INDEX_FILE}", markup=False
    )
