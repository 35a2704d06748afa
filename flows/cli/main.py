"""The command line `partwise`: train, infer and map, look at runs, start and deploy to Prefect.

Exit codes: 0 success, 1 failure, 2 a call that cannot be carried out as it stands, 3 some of the
partitions failed, 130 interrupted. Results go to stdout; news, warnings and errors to stderr, an
error as one line. PARTWISE_DEBUG=1 (or --debug) shows where it came from.
"""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from partwise.errors import (
    ArtifactNotFoundError,
    DatasetNotFoundError,
    InputError,
    PartitionNotFoundError,
    PartwiseError,
    RunCancelled,
    RunExistsError,
    RunFailed,
    RunNotFoundError,
)
from partwise.flows.cli.input_files import FileOptions, names_block
from partwise.flows.cli.options import (
    RUN,
    ClusterOptions,
    InferenceOptions,
    LimitOptions,
    RowOptions,
    RunOptions,
    TrainerOptions,
)

SUCCESS, FAILURE, USAGE, PARTIAL_FAILURE, INTERRUPTED = 0, 1, 2, 3, 130
BROKEN_PIPE, TERMINATED = 141, 143

_USAGE_ERRORS = (
    InputError,
    RunExistsError,
    RunNotFoundError,
    PartitionNotFoundError,
    ArtifactNotFoundError,
    DatasetNotFoundError,
)

_DATA = (
    "Parquet, CSV, JSON lines, ORC or Arrow files, globs, folders, URLs; dataset://NAME@VERSION; "
    "or a block, file-source/NAME or sql-source/NAME."
)
Data = Annotated[tuple[str, ...], Parameter(help=_DATA)]
_RUN, _LIMITS, _CLUSTER, _FILES = RunOptions(), LimitOptions(), ClusterOptions(), FileOptions()
Output = Annotated[
    str,
    Parameter(
        group=RUN,
        help="Where the rows go as well: a table by its block, sql-table/NAME; or dataset://NAME.",
    ),
]
Pickle = Annotated[
    bool,
    Parameter(
        group=RUN,
        help="Let models be pickles where no native format fits. Reading one runs the code in it.",
    ),
]

app = App(
    name="partwise",
    help="Train, use and look after one model per partition, thousands at a time.",
    version=lambda: f"partwise {metadata.version('partwise')}",
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
)
for _name, _help in (
    ("export", "Export every model of a training run, each proved before it is published."),
    ("validate", "Prove the files of an export run again: on new rows, or a new onnxruntime."),
    ("pipeline", "Train, export, validate and infer: four runs under one name."),
):
    app.command(f"partwise.flows.cli.export:{_name}", name=_name, help=_help)
app.command(
    "partwise.flows.cli.transformers:transformers",
    name="transformers",
    help="Export models of Hugging Face's transformers, and check such exports.",
)
app.command(
    "partwise.flows.cli.runs:runs",
    name="runs",
    help="List runs, look into one, go on with it, tidy it.",
)
app.command(
    "partwise.flows.cli.data:data",
    name="data",
    help="Register rows as versions of a dataset, list, show and compare them.",
)
app.command(
    "partwise.flows.operations.doctor:doctor",
    name="doctor",
    help="See whether this machine, a store and a cluster are fit for work.",
)
app.command(
    "partwise.flows.cli.services:up",
    name="up",
    help="Start a Prefect server and a worker here, and deploy prefect.yaml.",
)
app.command(
    "partwise.flows.cli.services:down",
    name="down",
    help="End the server and the worker that `up` started here.",
)
app.command(
    "partwise.flows.cli.services:deploy",
    name="deploy",
    help="Deploy prefect.yaml to the Prefect server that PREFECT_API_URL names.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command, and return its exit code.

    Args:
        arguments: The words after `partwise`; None: those that this process was started with.

    Example:
        >>> main(["runs", "list", "--store", "/data/models"])  # doctest: +SKIP
        0
    """
    # Prefect would greet people with a notice that it collects data, and the first time send some.
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if arguments is None:
        # Else Prefect writes to stderr what it could not log, past all handlers.
        logging.raiseExceptions = False
        # As it is, Python ends without a word, and an embedded server would live on.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = bool(os.environ.get("PARTWISE_DEBUG"))
    if "--debug" in words:
        words.remove("--debug")
        debug = True
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else SUCCESS
    except BrokenPipeError:
        # Whoever read our words has gone; Python would complain once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        return _report(error)


def _report(error: BaseException) -> int:
    """Print an error as one line, and return the exit code for it."""
    match error:
        case CycloptsError():
            command = " ".join(["partwise", *(error.command_chain or ())])
            message, code = f"{error} See {command} --help.", USAGE
        case RunCancelled() | KeyboardInterrupt():
            message, code = str(error) or "interrupted", INTERRUPTED
        case PartwiseError():
            message, code = str(error), USAGE if isinstance(error, _USAGE_ERRORS) else FAILURE
        case _:
            hint = "PARTWISE_DEBUG=1 shows where it came from"
            message, code = f"{type(error).__name__}: {error} ({hint})", FAILURE
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code


@app.command
def train(
    data: Data,
    /,
    *,
    trainer: TrainerOptions,
    rows: RowOptions,
    files: FileOptions = _FILES,
    run: RunOptions = _RUN,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Train one model per partition, and keep them as a run."""
    arguments = {
        "data": files.of(data),
        "trainer": trainer.build(),
        "serde": pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("train"),
        "execution": limits.build(),
        "cluster": cluster.build(),
    }
    return run_flow("train_models", arguments)


@app.command
def infer(
    data: Data,
    /,
    *,
    inference: InferenceOptions,
    rows: RowOptions,
    files: FileOptions = _FILES,
    run: RunOptions = _RUN,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
    output: Output = "",
) -> int:
    """Infer every partition with its own model of a training run."""
    arguments = {
        "data": files.of(data),
        **inference.arguments(),
        "serde": pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("infer"),
        "execution": limits.build(),
        "cluster": cluster.build(),
        "output": output,
    }
    return run_flow("run_inference", arguments)


@app.command(name="map")
def map_(
    data: Data,
    /,
    *,
    function: Annotated[
        str,
        Parameter(help="A function of (data, context): package.module:function."),
    ],
    rows: RowOptions,
    files: FileOptions = _FILES,
    run: RunOptions = _RUN,
    limits: LimitOptions = _LIMITS,
    cluster: ClusterOptions = _CLUSTER,
    output: Output = "",
) -> int:
    """Call a function for every partition, and keep what it returns and uploads."""
    arguments = {
        "data": files.of(data),
        "function": function,
        **rows.arguments(),
        **run.arguments("map"),
        "execution": limits.build(),
        "cluster": cluster.build(),
        "output": output,
    }
    return run_flow("map_partitions", arguments)


@app.command
def demo(directory: str = "demo", /) -> int:
    """Train 100 models on a made-up retail table, and forecast a month with them.

    Args:
        directory: Where the table and the runs are written. A second call resumes them.
    """
    from partwise.flows.cli.calls import plain_news, prefect_server

    with plain_news(), prefect_server():
        from partwise.flows.demo.run_demo import run_demo

        return run_demo(directory)


def run_flow(name: str, arguments: Mapping[str, Any]) -> int:
    """Call a flow, print how its run ended, and return the exit code.

    Raises:
        RunFailed: The run ended with FAILURE; it is printed all the same.
        RunCancelled: It was cancelled; it is printed all the same.
    """
    from partwise.flows.cli.calls import call_flow, plain_news
    from partwise.flows.cli.report import print_run
    from partwise.runs.pipeline import Pipeline

    look_first(arguments)
    from prefect.exceptions import TerminationSignal

    with plain_news():
        try:
            run = call_flow(name, arguments)
        except (RunFailed, RunCancelled) as error:
            if error.run is not None:
                print_run(error.run)
            raise
        except (KeyboardInterrupt, TerminationSignal):
            # Before the run had begun, or for the second time.
            hint = f"partwise runs resume {arguments['run_id']}"
            if name == "model_pipeline":
                hint = (
                    f"the same with --run-id {arguments['run_id']} --on-existing-artifacts resume"
                )
            raise KeyboardInterrupt(f"interrupted; if the run was begun, {hint} goes on") from None
    for part in run.runs if isinstance(run, Pipeline) else [run]:
        print_run(part)
    return PARTIAL_FAILURE if run.status.value == "PARTIAL_FAILURE" else SUCCESS


def look_first(arguments: Mapping[str, Any]) -> None:
    """Look at run ID, source and key columns: to start a server takes seconds, to see a typo none.

    Raises:
        InputError: The flow would refuse them.
    """
    from partwise.datasets.dataset import resolve_references
    from partwise.runs.documents import check_run_id
    from partwise.sources.opening import open_source
    from partwise.store.store import Store
    from partwise.tables.keys.partition_keys import key_columns

    check_run_id(arguments["run_id"])
    data = arguments.get("data")
    if not data or (isinstance(data, list) and any(map(names_block, data))):
        return  # those of an earlier run, or known to Prefect's server
    data = resolve_references(data, lambda: Store.parse(arguments["store"]))
    source = open_source(data, columns=arguments["columns"], filter=arguments["filter"])
    if "partition_by" in arguments:
        key_columns(source.schema, arguments["partition_by"])


def pickle_serde(chosen: bool) -> Any:
    """Return the serde that --pickle stands for, or None."""
    from partwise.models.serdes import PickleSerde

    return PickleSerde() if chosen else None


if __name__ == "__main__":
    sys.exit(main())
