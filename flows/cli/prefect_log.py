"""Prefect on the command line: which server is used, and how much of its log is shown.

What Prefect logs of a run (its states, an error's traceback) goes to its UI as always, but not to
the terminal, where the command itself prints how the run ended. Prefect's warnings are shown, and
all that it logs where the user has set a level.

Importing this module imports Prefect, half a second and more: commands do it once their own checks
are done.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import prefect.main  # noqa: F401 (it sets up logging, and would undo what is done to it here)
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from partwise.flows.operations.services import answers

_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
_SENDERS = ("EventsWorker", "APILogWorker", "prefect.events", "prefect._internal")
"""Prefect's loggers that report each event which was not sent when the process ends."""


@contextmanager
def prefect_server() -> Iterator[None]:
    """Use the server that PREFECT_API_URL or the profile names, but not one that is away."""
    quieten()
    url = PREFECT_API_URL.value()
    if not url or answers(url):
        yield
        return
    logging.getLogger(__name__).warning("no answer from the Prefect server at %s", url)
    with temporary_settings(updates={PREFECT_API_URL: None}):
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
