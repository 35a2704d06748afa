"""How a run ended, as the last line of its flow run's log: for callers from Python, and the UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise.errors import PartwiseError
from partwise.formatting import visible
from partwise.reports.summary import summary_text

if TYPE_CHECKING:
    import logging

    from partwise.engine.driver.cluster_watch import Logger
    from partwise.runs.run import Run

BEGINNING = "How it ended:\n"


def log_summary(logger: Logger, run: Run) -> None:
    """Log the lines that the command line prints at the end of a run."""
    try:
        text = summary_text(run)
    except PartwiseError as error:
        # The run is complete; who reads it next learns what is wrong with the store.
        text = f"{run!r}; no summary could be made: {error}"
    logger.info("%s%s", BEGINNING, visible(text, "\n"))


def is_summary(record: logging.LogRecord) -> bool:
    """Whether a record is that of `log_summary`."""
    return record.getMessage().startswith(BEGINNING)
