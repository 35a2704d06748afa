"""The command line `partwise`: train, infer and map, look at runs, start and deploy to Prefect.

Exit codes: 0 success, 1 failure, 2 a call that cannot be carried out as it stands, 3 some of the
partitions failed, 130 interrupted. Results go to stdout; news, warnings and errors to stderr, an
error as one line. PARTWISE_DEBUG=1 (or --debug) shows where it came from.

A command is imported when it is called, or when its own help is printed, so that `partwise --help`
is fast.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata

from cyclopts import App, CycloptsError

from partwise.errors import (
    ArtifactNotFoundError,
    DatasetNotFoundError,
    InputError,
    PartitionNotFoundError,
    PartwiseError,
    RunCancelled,
    RunExistsError,
    RunNotFoundError,
)
from partwise.flows.cli.exit_codes import (
    BROKEN_PIPE,
    FAILURE,
    INTERRUPTED,
    SUCCESS,
    TERMINATED,
    USAGE,
)
from partwise.flows.cli.parsing import COMMON, describe_wrong_option

_USAGE_ERRORS = (
    InputError,
    RunExistsError,
    RunNotFoundError,
    PartitionNotFoundError,
    ArtifactNotFoundError,
    DatasetNotFoundError,
)

_COMMANDS = {
    "train": ("train:train", "Train one model per partition, and keep them as a run."),
    "find-portfolio": (
        "find_portfolio:find_portfolio",
        "Find on a sample of partitions the few settings that do best together.",
    ),
    "train-distributed": (
        "train_distributed:train_distributed",
        "Train one model on all rows, by ranks that work together.",
    ),
    "tune": (
        "tune:tune",
        "Tune one model on all rows, by trials side by side.",
    ),
    "run": (
        "run:run",
        "Run a training script or a command as processes on several machines.",
    ),
    "infer": ("train:infer", "Infer every partition with its own model of a training run."),
    "map": ("train:map_", "Call a function for every partition, and keep what it returns."),
    "demo": ("demo:demo", "Train 100 models on a made-up retail table, and forecast with them."),
    "export": (
        "export:export",
        "Export every model of a training run, each proved before it is published.",
    ),
    "validate": (
        "export:validate",
        "Prove the files of an export run again: on new rows, or a new onnxruntime.",
    ),
    "pipeline": (
        "export:pipeline",
        "Train, export, validate and infer: four runs under one name.",
    ),
    "transformers": (
        "transformers:transformers",
        "Export models of Hugging Face's transformers, and check such exports.",
    ),
    "runs": ("runs:runs", "List runs, look into one, go on with it, repeat it, tidy it."),
    "data": ("data:data", "Register rows as versions of a dataset, list, show and compare them."),
    "environments": (
        "environments:environments",
        "List the environments that are built on this machine, and remove old ones.",
    ),
    "doctor": (
        "doctor:doctor",
        "See whether this machine, a store and a cluster are fit for work.",
    ),
    "scale": ("scale:scale", "Bring a Dask cluster that runs already to a number of workers."),
    "up": ("services:up", "Start a Prefect server and a worker here, and deploy prefect.yaml."),
    "down": ("services:down", "End the server and the worker that `up` started here."),
    "deploy": (
        "services:deploy",
        "Deploy prefect.yaml to the Prefect server that PREFECT_API_URL names.",
    ),
}
"""Where each command stands in this package, and its line in the list of commands."""

app = App(
    name="partwise",
    help="Train, use and look after one model per partition, thousands at a time.",
    version=lambda: f"partwise {metadata.version('partwise')}",
    default_parameter=COMMON,
    suppress_keyboard_interrupt=False,
)
for _name, (_place, _help) in _COMMANDS.items():
    app.command(f"partwise.flows.cli.{_place}", name=_name, help=_help)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command, and return its exit code.

    Args:
        arguments: The words after `partwise`; None: those of this process.

    Example:
        >>> main(["runs", "list", "--store", "/data/models"])  # doctest: +SKIP
        0
    """
    # Prefect would greet people with a notice that it collects data, and the first time send some.
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if arguments is None:
        # Otherwise Prefect writes to stderr what it could not log, past all handlers.
        logging.raiseExceptions = False
        # By default Python ends at once on SIGTERM, and an embedded server would live on.
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
        # Whoever read our output is gone; Python would complain once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        return _print_error(error)


def _print_error(error: BaseException) -> int:
    """Print an error as one line, and return the exit code for it."""
    match error:
        case CycloptsError():
            command = " ".join(["partwise", *(error.command_chain or ())])
            reason = describe_wrong_option(error) or str(error)
            message, code = f"{reason} See {command} --help.", USAGE
        case RunCancelled() | KeyboardInterrupt():
            message, code = str(error) or "interrupted", INTERRUPTED
        case PartwiseError():
            message, code = str(error), USAGE if isinstance(error, _USAGE_ERRORS) else FAILURE
        case _:
            hint = "PARTWISE_DEBUG=1 shows where it came from"
            message, code = f"{type(error).__name__}: {error} ({hint})", FAILURE
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
