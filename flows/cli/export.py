"""`partwise export`, `validate` and `pipeline`: from trained models to proved files."""

from typing import Annotated

from cyclopts import Parameter

from partwise.calls.exports import ExportCall, ValidateCall
from partwise.calls.pipeline import PipelineCall
from partwise.flows.cli.command import EXPORT, Read, command_of
from partwise.flows.cli.options import TrainerOptions
from partwise.formatting import counted

Target = Annotated[
    str,
    Parameter(
        group=EXPORT,
        help="A folder or URL in which each file is laid out as <partition_id>/model.onnx, with an "
        "index.json, for servers such as Triton.",
    ),
]


def _export(asked: ExportCall, *, to: Target = "") -> int:
    """Carry out the call, and lay the files out where that is asked for."""
    from partwise.flows.cli.flow_calls import call_and_print
    from partwise.runs.layout import check_target
    from partwise.store.store import Store

    if to:
        # Before all else: a target that is refused would be found out once all is exported.
        check_target(Store.parse(to))
    code = call_and_print(asked)
    if to:
        _lay_out(asked.run_id, asked.store, to)
    return code


export = command_of(
    ExportCall,
    "Export every model of a training run, each proved before it is published.",
    group=EXPORT,
    places={"training_run_id": "RUN", "data": "DATA"},
    carry_out=_export,
)

validate = command_of(
    ValidateCall,
    "Prove the files of an export run again: on new rows, or with another onnxruntime.",
    group=EXPORT,
    places={"export_run_id": "RUN", "data": "DATA"},
)

pipeline = command_of(
    PipelineCall,
    "Train, export, validate and infer: four runs under one name.",
    group=EXPORT,
    types={"trainer": Annotated[TrainerOptions, Read(value=TrainerOptions.build)]},
)


def _lay_out(run_id: str, store: str, to: str) -> None:
    from partwise.flows.cli import output
    from partwise.runs.layout import INDEX_FILE, lay_out
    from partwise.runs.run import Run
    from partwise.store.store import Store

    target = Store.parse(to)
    count = lay_out(Run.open(run_id, store), target)
    exports = f"exports of {counted(count, 'partition')}"
    output.print_line(f"laid out the {exports} below {target.url}, see {INDEX_FILE}")
