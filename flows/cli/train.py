"""`partwise train`, `infer` and `map`: one call of a function per partition."""

from typing import Annotated

from cyclopts import Parameter

from partwise.flows.cli.call_options import CallOptions
from partwise.flows.cli.environment_options import EnvironmentOptions
from partwise.flows.cli.options import (
    RUN,
    InferenceOptions,
    InferredRowOptions,
    InputFiles,
    RowOptions,
    TrainerOptions,
)
from partwise.flows.cli.tuning_options import TuningOptions

Data = Annotated[
    tuple[str, ...],
    Parameter(
        help="Parquet, CSV, JSON lines, ORC, Arrow or Excel files, globs, folders, URLs; "
        "dataset://NAME@VERSION; or a block, files-block/NAME or query-block/NAME."
    ),
]
Output = Annotated[
    str,
    Parameter(
        group=RUN,
        help="Where the rows go as well: a table by its block, table-block/NAME; or dataset://NAME.",
    ),
]
Pickle = Annotated[
    bool,
    Parameter(
        group=RUN,
        help="Let models be pickles where no native format fits. Reading one runs the code in it.",
    ),
]
_CALL = CallOptions()
_ENVIRONMENT = EnvironmentOptions()
_TUNING = TuningOptions()
_INFERRED = InferredRowOptions()


def train(
    data: Data,
    /,
    *,
    trainer: TrainerOptions,
    rows: RowOptions,
    tuning: TuningOptions = _TUNING,
    files: InputFiles = (),
    environment: EnvironmentOptions = _ENVIRONMENT,
    call: CallOptions = _CALL,
    pickle: Pickle = False,
) -> int:
    """Train one model per partition, and keep them as a run."""
    from partwise.calls.partitions import TrainCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    asked = TrainCall(
        trainer=tuning.apply(trainer),
        serde=pickle_serde(pickle),
        **rows.arguments(),
        files=list(files),
        environment=environment.build(),
        **call.arguments("train", data),
    )
    return call_and_print(asked)


def infer(
    data: Data,
    /,
    *,
    inference: InferenceOptions,
    rows: InferredRowOptions = _INFERRED,
    files: InputFiles = (),
    environment: EnvironmentOptions = _ENVIRONMENT,
    call: CallOptions = _CALL,
    pickle: Pickle = False,
    output: Output = "",
) -> int:
    """Infer every partition with its own model of a training run.

    The run keeps the predictions: partwise runs export RUN --what predictions --to FILE writes them
    to a .csv or .parquet file.
    """
    from partwise.calls.partitions import InferCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    asked = InferCall(
        **inference.arguments(),
        serde=pickle_serde(pickle),
        **rows.arguments(),
        files=list(files),
        environment=environment.build(),
        **call.arguments("infer", data),
        output=output,
    )
    return call_and_print(asked)


def map_(
    data: Data,
    /,
    *,
    function: Annotated[
        str,
        Parameter(help="A function of (data, context): package.module:function."),
    ],
    rows: RowOptions,
    files: InputFiles = (),
    environment: EnvironmentOptions = _ENVIRONMENT,
    call: CallOptions = _CALL,
    output: Output = "",
) -> int:
    """Call a function for every partition, and keep what it returns and uploads."""
    from partwise.calls.partitions import MapCall
    from partwise.flows.cli.flow_calls import call_and_print

    asked = MapCall(
        function=function,
        **rows.arguments(),
        files=list(files),
        environment=environment.build(),
        **call.arguments("map", data),
        output=output,
    )
    return call_and_print(asked)
