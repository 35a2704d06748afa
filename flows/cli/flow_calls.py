"""Calling a flow from the command line: on which Prefect server, with how much of Prefect's log.

What Prefect logs of a run (its states, an error's traceback) goes to its UI as always, but not to
the terminal, where the command itself prints how the run ended. Prefect's warnings are shown, and
all that it logs where the user has set a level.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prefect.main  # noqa: F401 (it sets up logging, and would undo what is done to it here)
from prefect.exceptions import TerminationSignal
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    get_current_settings,
    temporary_settings,
)

from partwise.datasets.dataset import resolve_references
from partwise.errors import RunCancelled, RunFailed
from partwise.flows.cli.exit_codes import PARTIAL_FAILURE, SUCCESS
from partwise.flows.cli.input_files import is_block_name
from partwise.flows.cli.run_output import print_run
from partwise.flows.operations.services import answers
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.runs.documents import check_run_id
from partwise.runs.pipeline import Pipeline
from partwise.sources.opening import OpenedData, open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns

if TYPE_CHECKING:
    from partwise.runs.run import Run

FLOWS = Path(__file__).parents[1]
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
_SENDERS = ("EventsWorker", "APILogWorker", "prefect.events.clients", "prefect._internal")
"""Prefect's loggers that report each event which was not sent when the process ends."""


def call_and_print(flow: str, arguments: Mapping[str, Any]) -> int:
    """Call a flow, print how its run ended, and return the exit code.

    Raises:
        RunFailed: The run ended with FAILURE; it is printed all the same.
        RunCancelled: It was cancelled; it is printed all the same.
        InputError: The call cannot be carried out; no server was started.
    """
    arguments = check_call(arguments)
    with plain_news():
        try:
            run = call_flow(flow, arguments)
        except (RunFailed, RunCancelled) as error:
            if error.run is not None:
                print_run(error.run)
            raise
        except (KeyboardInterrupt, TerminationSignal):
            # Before the run had begun, or for the second time.
            hint = f"partwise runs resume {arguments['run_id']}"
            if flow == "model_pipeline":
                hint = (
                    f"the same with --run-id {arguments['run_id']} --on-existing-artifacts resume"
                )
            raise KeyboardInterrupt(f"interrupted; if the run was begun, {hint} goes on") from None
    for part in run.runs if isinstance(run, Pipeline) else [run]:
        print_run(part)
    return PARTIAL_FAILURE if run.status is RunStatus.PARTIAL_FAILURE else SUCCESS


def check_call(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check run ID, rows and key columns before a server is started, which takes seconds.

    Returns:
        The arguments, with the rows opened: reading the footers of thousands of files takes seconds
        too, and the flow need not do it again.

    Raises:
        InputError: The flow would refuse them.
    """
    check_run_id(arguments["run_id"])
    data = arguments.get("data")
    if not data or (isinstance(data, list) and any(map(is_block_name, data))):
        return arguments  # the rows of an earlier run, or a block that only Prefect's server knows
    found = resolve_references(data, lambda: Store.parse(arguments["store"]))
    opened = OpenedData.of(data, found)
    source = open_source(opened, columns=arguments["columns"], filter=arguments["filter"])
    if arguments.get("partition_by"):
        key_columns(source.schema, arguments["partition_by"])
    return {**arguments, "data": opened}


def pickle_serde(chosen: bool) -> PickleSerde | None:
    """Return the serde that --pickle stands for, or None."""
    return PickleSerde() if chosen else None


def call_flow(name: str, arguments: Mapping[str, Any]) -> "Run | Pipeline":
    """Call the flow of this name, and return its run, or its pipeline of runs.

    Raises:
        RunFailed: It ended with FAILURE.
        RunCancelled: It was cancelled.
    """
    with prefect_server():
        from partwise import flows

        run: Run | Pipeline = getattr(flows, name)(**arguments)
        return run


@contextmanager
def prefect_server() -> Iterator[None]:
    """Use the server that PREFECT_API_URL or the profile names, or an embedded one."""
    quieten()
    url = PREFECT_API_URL.value()
    if url is not None and answers(url):
        yield
        return
    news = logging.getLogger(__name__)
    if url is None:
        news.info("starting Prefect's embedded server; PREFECT_API_URL names one to use instead")
    else:
        news.warning("no answer from the Prefect server at %s: using an embedded one", url)
    chosen: dict[Any, Any] = {PREFECT_API_URL: None, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True}
    with temporary_settings(updates=chosen):
        yield


def quieten() -> None:
    """Have Prefect's console show warnings only; how runs end is printed by the command."""
    level = chosen_level()
    handlers = [*logging.getLogger().handlers, *logging.getLogger("prefect._internal").handlers]
    # Prefect's own, and no handler that somebody else has put there.
    for handler in [h for h in handlers if type(h).__module__ == PrefectConsoleHandler.__module__]:
        for older in [f for f in handler.filters if isinstance(f, _Quiet)]:
            handler.removeFilter(older)
        handler.addFilter(_Quiet(level))


def chosen_level() -> int:
    """Return the level that the user set for Prefect's log, or that of warnings."""
    chosen = get_current_settings().logging
    if "level" in chosen.model_fields_set:
        return logging.getLevelNamesMapping()[chosen.level]
    return logging.WARNING


class _Quiet(logging.Filter):
    """Drops what Prefect logs of a run, and what is below a level."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("partwise"):
            return False  # plain_news shows it
        if record.name.startswith(_SENDERS) and self._level > logging.DEBUG:
            return False
        if not record.name.startswith("prefect"):
            return True
        is_of_run = record.name.startswith(_RUN_LOGGERS) and self._level > logging.INFO
        return record.levelno >= self._level and not is_of_run


@contextmanager
def plain_news() -> Iterator[None]:
    """Show as plain lines on stderr what partwise logs, and what its flows log by Prefect."""
    loggers = [logging.getLogger("partwise")]
    if chosen_level() > logging.INFO:
        loggers.append(logging.getLogger("prefect.flow_runs"))
    level = loggers[0].level
    handler = _Lines()
    loggers[0].setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        loggers[0].setLevel(level)


class _Lines(logging.Handler):
    """Writes to stderr as it is at that moment: a progress bar replaces it for a time."""

    def emit(self, record: logging.LogRecord) -> None:
        # Prefect logs under the same name as flows do, and the files of flows are in this folder.
        if record.name.startswith("prefect") and not Path(record.pathname).is_relative_to(FLOWS):
            return
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        sys.stderr.write(f"{prefix}{record.getMessage()}\n")
        sys.stderr.flush()
