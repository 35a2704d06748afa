"""Calling a flow from the command line: on which Prefect server, and how much Prefect says.

Prefect's own words about a run (its states, an error's traceback) go to its UI as ever, but not to
the terminal, where the command itself says how the run ended. Its warnings pass, and all it says
does where the user chose a level.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import prefect.main  # noqa: F401 (it sets up logging, and would undo what is done to it here)
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    get_current_settings,
    temporary_settings,
)

if TYPE_CHECKING:
    from partwise.runs.pipeline import Pipeline
    from partwise.runs.run import Run

ANSWER_TIMEOUT_S = 3.0
FLOWS = Path(__file__).parents[1]
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
_SENDERS = ("EventsWorker", "APILogWorker", "prefect.events.clients", "prefect._internal")
"""Of Prefect's: they tell of each event that was not sent, or has yet to be as the process ends."""


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


def answers(url: str) -> bool:
    """Whether anything answers at the URL of a Prefect API, be it a refusal."""
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_TIMEOUT_S)
    except httpx.HTTPError:
        return False
    return True


def quieten() -> None:
    """Have Prefect's console say warnings only, and leave the end of runs to us."""
    level = chosen_level()
    consoles = [h for h in logging.getLogger().handlers if isinstance(h, PrefectConsoleHandler)]
    for handler in [*consoles, *logging.getLogger("prefect._internal").handlers]:
        for older in [f for f in handler.filters if isinstance(f, _Quiet)]:
            handler.removeFilter(older)
        handler.addFilter(_Quiet(level))


def chosen_level() -> int:
    """Return the level that a person chose for what Prefect says, else that of warnings."""
    chosen = get_current_settings().logging
    if "level" in chosen.model_fields_set:
        return logging.getLevelNamesMapping()[chosen.level]
    return logging.WARNING


class _Quiet(logging.Filter):
    """Drops what Prefect says of a run, and what is below a level."""

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
        told = record.name.startswith(_RUN_LOGGERS) and self._level > logging.INFO
        return record.levelno >= self._level and not told


@contextmanager
def plain_news() -> Iterator[None]:
    """Show as plain lines on stderr what partwise logs, and what its flows tell Prefect's log."""
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
    """Writes to stderr as it is at that moment: a progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        # Prefect logs its own words under the same name as those of flows, whose files are here.
        if record.name.startswith("prefect") and not Path(record.pathname).is_relative_to(FLOWS):
            return
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        sys.stderr.write(f"{prefix}{record.getMessage()}\n")
        sys.stderr.flush()
