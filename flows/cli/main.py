"""The command line `partwise`: train, infer and map, look at runs, start and deploy to Prefect.

Exit codes: 0 success, 1 failure, 2 a call that cannot be carried out as it stands, 3 some of the
partitions failed, 130 interrupted, 141 nobody reads the output, 143 ended by SIGTERM. Results go to
stdout; news, warnings and errors to stderr, an error as one line. PARTWISE_DEBUG=1 (or --debug)
shows where it came from.

Where no Prefect server is named, runs need none. With --prefect one is embedded for them.

A command is imported when it is called, or when its own help is printed, so that `partwise --help`
is fast.
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cyclopts import App, CycloptsError

from partwise.errors import (
    ArtifactNotFoundError,
    CatalogNotFoundError,
    DatasetNotFoundError,
    ExportRefusedError,
    InputError,
    PartitionNotFoundError,
    PartwiseError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
    RunNotFoundError,
)
from partwise.flows.cli.exit_codes import (
    BROKEN_PIPE,
    FAILURE,
    INTERRUPTED,
    SUCCESS,
    USAGE,
)
from partwise.flows.cli.parsing import COMMON, describe_wrong_option, in_words_of_the_shell
from partwise.flows.cli.signals import end_by_signals
from partwise.formatting import visible
from partwise.processes.garbage import collect_rarely
from partwise.processes.variables import variables_set
from partwise.redaction import without_secrets

_USAGE_ERRORS = (
    InputError,
    RunExistsError,
    RunNotFoundError,
    PartitionNotFoundError,
    ArtifactNotFoundError,
    DatasetNotFoundError,
    CatalogNotFoundError,
    ExportRefusedError,
)

_DEBUG = "PARTWISE_DEBUG"
_EPHEMERAL_MODE = "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"

_COMMANDS = {
    "train": ("train:train", "Train one model per partition, and keep them as a run."),
    "find-portfolio": (
        "train:find_portfolio",
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
    "run-script": (
        "run_script:run_script",
        "Run a training script or a command as processes on several machines.",
    ),
    "infer": (
        "train:infer",
        "Infer each partition with its model. `runs export` writes the predictions to a file.",
    ),
    "compare": (
        "train:compare",
        "Compare several models of each key, each on the very same rows.",
    ),
    "evaluate": (
        "train:evaluate",
        "See whether the predictions of an inference run came true, key by key.",
    ),
    "promote": (
        "promote:promote",
        "Make models champions of a catalog by a rule, such as those that a comparison found.",
    ),
    "map": ("train:map_", "Call a function for every partition, and keep what it returns."),
    "demo": ("demo:demo", "Train 100 models on a made-up retail table, and forecast with them."),
    "init": (
        "init:init",
        "Make a project of your own: a function with its test, a table, and deployments.",
    ),
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
    "runs": (
        "runs:runs",
        "List runs, look into one, write its predictions to a file, go on with it, tidy it.",
    ),
    "data": ("data:data", "Register rows as versions of a dataset, list, show and compare them."),
    "catalog": (
        "catalog:catalog",
        "Show which model is used for each key; go back, pin, retire and tidy up.",
    ),
    "serve": (
        "serve:serve",
        "Answer over HTTP by the models of a catalog or a run, each key by its own.",
    ),
    "store": (
        "store:stores",
        "Delete old runs that nothing holds or uses, and files that nothing refers to.",
    ),
    "environments": (
        "environments:environments",
        "List the environments that are built on this machine, and remove old ones.",
    ),
    "migrate": (
        "migrate:migrate",
        "Say of programs for Snowflake, AzureML or Ray what to write here in place of each name.",
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

_OLD_COMMANDS = {"run": "run-script"}

_BEGIN_RUNS = (
    *(("train",), ("find-portfolio",), ("train-distributed",), ("tune",), ("run-script",)),
    *(("infer",), ("compare",), ("evaluate",), ("map",), ("export",), ("validate",), ("pipeline",)),
    *(("runs", "resume"), ("runs", "repeat")),
)
"""Commands that begin a run, or go on with one."""
_ASKS = ("--help", "-h")
_NO_WORKERS_HERE = ("--cluster", "--address", "--devices", "--on-existing-artifacts", *_ASKS)
"""Beginnings of options by which a run may start no workers on this machine."""
_LOOK_INTO_STORE = ("runs", "catalog", "data", "store", "doctor")
_STORE_BLOCK = "store-block/"


def _version() -> str:
    from importlib import metadata  # here: it brings what reads mail

    return f"partwise {metadata.version('partwise')}"


app = App(
    name="partwise",
    help="Train, use and look after one model per partition, thousands at a time.\n\n"
    "Runs are Prefect flow runs where PREFECT_API_URL names a server. Where it names none, "
    "--prefect embeds one for the time of a command.",
    version=_version,
    default_parameter=COMMON,
    suppress_keyboard_interrupt=False,
)
for _name, (_place, _help) in _COMMANDS.items():
    app.command(f"partwise.flows.cli.{_place}", name=_name, help=_help)
app.register_install_completion_command(
    help="Have the shell complete commands and options with Tab: bash, zsh and fish."
)


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
        _open_what_is_closed()
        # Otherwise Prefect writes to stderr what it could not log, past all handlers.
        logging.raiseExceptions = False
        end_by_signals()
        collect_rarely()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if Path(".partwise/services.json").exists():
        _use_server_of_up(words)
        _know_the_password()
    debug = bool(os.environ.get(_DEBUG))
    if "--debug" in _own_words(words):
        words.remove("--debug")
        debug = True
    try:
        if words and (now := _OLD_COMMANDS.get(words[0])):
            raise InputError(f"partwise {words[0]} is called partwise {now} now.")
        # On one core it would only keep us from reading the call.
        if arguments is None and _may_start_workers(words) and len(os.sched_getaffinity(0)) > 1:
            _begin_workers()
        # Rich takes a quarter of the time of `partwise --help` to load what reads Markdown.
        app.help_format = "markdown" if words and words[0] in _COMMANDS else "plaintext"
        variables = {_DEBUG: "1" if debug else ""}
        if "--prefect" in _own_words(words):
            words.remove("--prefect")
            variables[_EPHEMERAL_MODE] = "true"
        with variables_set(variables):
            code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        # Here, where a broken pipe is still caught: Python itself would do it as it exits.
        sys.stdout.flush()
        return code if isinstance(code, int) else SUCCESS
    except BrokenPipeError:
        # Whoever read our output is gone; Python would complain once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        # An interrupt in a string that Python executes (so dataclasses are made) has `python -m`
        # end by SIGINT at last, whatever is returned here; the next string has that forgotten.
        eval("None")  # noqa: S307
        return _print_error(error, words)


def _open_what_is_closed() -> None:
    """Have output go nowhere that the shell was told to close, as in `partwise runs list >&-`.

    A file that is opened later would get its number, and with that what children print.
    """
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, number == place)
            setattr(sys, name, os.fdopen(number, "w" if place else "r", encoding="utf-8"))


def _begins_run(words: Sequence[str]) -> bool:
    return any(tuple(words[: len(names)]) == names for names in _BEGIN_RUNS)


def _may_start_workers(words: list[str]) -> bool:
    """Whether a command, as far as its words tell, begins a run by workers of this machine."""
    elsewhere = any(word.startswith(_NO_WORKERS_HERE) for word in _own_words(words))
    return _begins_run(words) and words[0] != "runs" and not elsewhere


def _begin_workers() -> None:
    """Begin the server of workers, which is as long at its imports as we are at reading the call.

    It ends with this process, also where the call is refused.
    """
    from partwise.processes.worker_server import begin_worker_server

    # Who needs it begins it once more, and tells what is wrong with this machine.
    with suppress(OSError, RuntimeError):
        begin_worker_server()


def _own_words(words: list[str]) -> list[str]:
    """Return the words without those behind "--", which are a script's."""
    return words[: words.index("--")] if "--" in words else words


def _use_server_of_up(words: list[str]) -> None:
    """Have a command that needs a server use the one that `up` started in this folder, and say so.

    It begins a run, looks into the store of a saved block, or is `doctor`. Whoever names a server,
    or sets PREFECT_API_URL to nothing, has decided otherwise.
    """
    without = {"--prefect", "--versions", *_ASKS} & {*_own_words(words)}
    own = [*_own_words(words)]
    if own and own[0] in _LOOK_INTO_STORE:
        own.append(os.environ.get("PARTWISE_STORE", ""))
    needs_one = (
        _begins_run(words) or words[:1] == ["doctor"] or any(_STORE_BLOCK in word for word in own)
    )
    if not needs_one or without or "PREFECT_API_URL" in os.environ:
        return
    from partwise.flows.cli import output
    from partwise.flows.operations.services import Services, answers
    from partwise.flows.orchestration.direct import may_name_server

    with suppress(PartwiseError):
        services = Services.read(Path.cwd())
        # A process with a mark that only its owner and root can read: a folder of somebody else's,
        # in which one works by chance, names no server.
        if services is None or not services.owns_server or not services.is_alive("server"):
            return
        # One that is starting yet, or hangs, would end a call that needs none.
        if not may_name_server() and answers(services.api_url):
            os.environ["PREFECT_API_URL"] = services.api_url
            output.tell(
                f"using the Prefect server of `partwise up` here, {services.api_url}; "
                "PREFECT_API_URL= does without"
            )


def _know_the_password() -> None:
    """Have Prefect's clients show the password of the server that `up` started in this folder.

    Links to reports in its UI are signed with it. Only where PREFECT_API_URL names that very
    server: nobody else is to know it.
    """
    folder, url = Path.cwd(), os.environ.get("PREFECT_API_URL", "")
    if "PREFECT_API_AUTH_STRING" in os.environ:
        return
    from partwise.flows.operations.services import Services, password_of
    from partwise.reports.links import REPORTS_URL

    # What is wrong with the file is said by the commands that need it.
    with suppress(PartwiseError):
        if secret := password_of(folder, url):
            os.environ["PREFECT_API_AUTH_STRING"] = secret
            services = Services.read(folder)
            if services is not None and services.reports_url is not None:
                os.environ[REPORTS_URL] = services.reports_url


def _print_error(error: BaseException, words: Sequence[str]) -> int:
    """Print an error as one line, and return the exit code for it."""
    match error:
        case CycloptsError():
            command = " ".join(["partwise", *(error.command_chain or ())])
            reason = describe_wrong_option(error) or str(error)
            message, code = f"{reason} See {command} --help.", USAGE
        case RunCancelledError(run=None) | KeyboardInterrupt():
            message = in_words_of_the_shell(str(error)) or _interrupted(words)
            code = INTERRUPTED
        case RunCancelledError() | RunFailedError():
            # It quotes what functions of the user's own raised, word by word.
            message = str(error)
            code = INTERRUPTED if isinstance(error, RunCancelledError) else FAILURE
        case PartwiseError():
            message = in_words_of_the_shell(str(error))
            code = USAGE if isinstance(error, _USAGE_ERRORS) else FAILURE
        case _:
            hint = "PARTWISE_DEBUG=1 shows where it came from"
            message, code = f"{type(error).__name__}: {error} ({hint})", FAILURE
    sys.stderr.write(f"error: {visible(' '.join(without_secrets(message).split()))}\n")
    return code


def _interrupted(words: Sequence[str]) -> str:
    """Return what is to be said where Ctrl-C ended a command that said nothing itself."""
    # Once a run was begun, the command has said how to go on with it.
    if _begins_run(words):
        return "interrupted before anything was begun: there is nothing to go on with"
    return "interrupted"


if __name__ == "__main__":
    sys.exit(main())
