"""What is logged while a command works, as plain lines on stderr."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from partwise.flows.cli.output import tell

FLOWS = Path(__file__).parents[1]


@contextmanager
def shown(name: str) -> Iterator[None]:
    """Show what a logger is given, for the time of the block; of "partwise" also its news."""
    logger, handler = logging.getLogger(name), _Lines()
    level = logger.level
    if name == "partwise":
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def plain_news() -> Iterator[None]:
    """Show as plain lines on stderr what partwise logs, and what its flows log."""
    from partwise.flows.orchestration.direct import runs_directly
    from partwise.tasks.direct_lines import LOGGER, chosen_level

    level = chosen_level() or logging.WARNING
    if not runs_directly():
        from partwise.flows.cli import prefect_log

        prefect_log.quieten()
        level = prefect_log.chosen_level()
    with ExitStack() as stack:
        stack.enter_context(shown("partwise"))
        if level > logging.INFO:
            stack.enter_context(shown(LOGGER))
        yield


def server_of_runs() -> AbstractContextManager[None]:
    """Use the server that PREFECT_API_URL or the profile names, but not one that is away."""
    from partwise.flows.orchestration.direct import runs_directly

    if runs_directly():
        return nullcontext()
    from partwise.flows.cli.prefect_log import prefect_server

    return prefect_server()


class _Lines(logging.Handler):
    """Writes to stderr as it is at that moment: a progress bar replaces it for a time."""

    def emit(self, record: logging.LogRecord) -> None:
        from partwise.flows.orchestration.summary_log import is_summary

        # Prefect logs under the same name as flows do, and the files of flows are in this folder.
        if record.name.startswith("prefect") and not Path(record.pathname).is_relative_to(FLOWS):
            return
        if is_summary(record):
            return  # the command prints it
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        tell(f"{prefix}{record.getMessage()}")
