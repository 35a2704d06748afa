"""Calls from a notebook: a line that follows the run, how it ended, and what went wrong.

A cell with a line of a log for each shard is one that nobody reads. The log of a flow run in
Prefect's UI has all lines, as ever.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from partwise.formatting import counted

if TYPE_CHECKING:
    from partwise.engine.assignment import ShardProgress
    from partwise.engine.driver.shards import Progress

LIVE_LINE_S = 1.0
"""So often a line is written anew."""
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and bool(kernel.IPKernelApp.initialized())


class LiveLine:
    """A line below a cell, which is replaced by the next one."""

    def __init__(self, text: str) -> None:
        from IPython.display import display

        show: Any = display
        self._shown = show({"text/plain": text}, raw=True, display_id=True)

    def show(self, text: str) -> None:
        """Replace it; from any thread."""
        self._shown.update({"text/plain": text}, raw=True)


class NotebookLine:
    """How far a run is, at most once a second."""

    def __init__(self, run_id: str, partitions: int) -> None:
        self._run_id = run_id
        self._partitions = partitions
        self._began = self._shown_at = time.monotonic()
        self._line = LiveLine(f"{run_id}: 0 of {counted(partitions, 'partition')}")

    def update(self, progress: "Progress", news: "ShardProgress") -> None:  # noqa: ARG002 (the protocol)
        """Replace the line when it is time, and when all is done."""
        now = time.monotonic()
        is_over = progress.finished >= self._partitions
        if now - self._shown_at < LIVE_LINE_S and not is_over:
            return
        self._shown_at = now
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        self._line.show(
            f"{self._run_id}: {progress.finished:,} of {counted(self._partitions, 'partition')} "
            f"after {now - self._began:.0f} s{failed}"
        )


@contextmanager
def quiet_notebook() -> Iterator[None]:
    """Have a notebook show warnings and how a run ended, and no other line of its log.

    Whoever has set PREFECT_LOGGING_LEVEL gets the lines of that level.
    """
    if not is_notebook() or _level_is_chosen():
        yield
        return
    import prefect.main  # noqa: F401 (it sets up logging, and would undo what is done to it here)
    from prefect.logging.handlers import PrefectConsoleHandler

    quiet = _Quiet()
    of_prefect = [
        handler
        for name in (None, "prefect", *_RUN_LOGGERS)
        for handler in logging.getLogger(name).handlers
        if isinstance(handler, PrefectConsoleHandler)
    ]
    for handler in of_prefect:
        handler.addFilter(quiet)
    try:
        yield
    finally:
        for handler in of_prefect:
            handler.removeFilter(quiet)


def _level_is_chosen() -> bool:
    from prefect.settings import get_current_settings

    return "level" in get_current_settings().logging.model_fields_set


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        from partwise.flows.orchestration.summary_log import is_summary

        is_of_run = record.name.startswith(_RUN_LOGGERS)
        return not is_of_run or record.levelno >= logging.WARNING or is_summary(record)
