"""What one sees of a run while it works: a bar in a terminal, now and then a line elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefect.logging import get_run_logger
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from partwise.tasks.partitions.assignment import ShardProgress
from partwise.tasks.partitions.driver import Progress, ProgressListener

FIRST_LINE_S = 10.0
LONGEST_PAUSE_S = 320.0

_Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


class TerminalBar:
    """A progress bar over partitions."""

    def __init__(self, bar: Bar, run_id: str, partitions: int) -> None:
        self._bar = bar
        self._task = bar.add_task(run_id, total=partitions, note="")

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Move the bar."""
        notes = []
        if progress.kept:
            notes.append(f"{progress.kept:,} kept")
        if progress.failed:
            notes.append(f"[red]{progress.failed:,} failed[/red]")
        self._bar.update(self._task, completed=progress.finished, note=", ".join(notes))


class Lines:
    """A line of a log after ten seconds, then after pauses that double up to five minutes.

    Args:
        logger: Where the lines go.
        run_id: Begins each line.
        partitions: How many there are.
        clock: Seconds since whenever.
    """

    def __init__(
        self,
        logger: _Logger,
        run_id: str,
        partitions: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._run_id = run_id
        self._partitions = partitions
        self._clock = clock
        self._began = clock()
        self._pause_s = FIRST_LINE_S
        self._next = self._began + self._pause_s

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Write a line when it is time."""
        now = self._clock()
        if now < self._next:
            return
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._next = now + self._pause_s
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        self._logger.info(
            "Run %s: %s of %s partitions after %.0f s%s.",
            self._run_id,
            f"{progress.finished:,}",
            f"{self._partitions:,}",
            now - self._began,
            failed,
        )


@contextmanager
def listeners(run_id: str, partitions: int) -> Iterator[list[ProgressListener]]:
    """Give whoever is to hear of a run's progress: a bar in a terminal, else the run's log."""
    if not sys.stderr.isatty():
        yield [Lines(get_run_logger(), run_id, partitions)]
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield [TerminalBar(bar, run_id, partitions)]
