"""What one sees of a run while it works: a bar in Prefect's UI and in a terminal, and log lines."""

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from partwise.engine.assignment import ShardProgress
from partwise.engine.driver.cluster_watch import Logger
from partwise.engine.driver.shards import Progress, ProgressListener
from partwise.flows.orchestration.notebook import NotebookLine, is_notebook
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger

FIRST_LINE_S = 10.0
LONGEST_PAUSE_S = 320.0
MOST_KINDS = 20
"""Kinds of failures, and of remarks, that are shown one by one."""


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
    """A line of a log after ten seconds, then after pauses that double up to five minutes."""

    def __init__(
        self,
        logger: Logger,
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


class KindLines:
    """A line of a log for each kind of failure, and of remark on partitions, when first seen."""

    def __init__(self, logger: Logger, run_id: str) -> None:
        self._logger = logger
        self._run_id = run_id
        self._failures: set[str] = set()
        self._remarks: set[str] = set()

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Write a line for each failure or remark of a new kind."""
        for failure in news.failures:
            if failure.fingerprint in self._failures or len(self._failures) > MOST_KINDS:
                continue
            self._failures.add(failure.fingerprint)
            if len(self._failures) > MOST_KINDS:
                self._logger.warning("Run %s: more kinds of failures follow.", self._run_id)
                continue
            self._logger.warning(
                "Run %s: partition %s failed: %s: %s",
                self._run_id,
                failure.sample,
                failure.error_type,
                " ".join(failure.message.split())[:300],
            )
        for remark in news.remarks:
            if remark.kind in self._remarks or len(self._remarks) >= MOST_KINDS:
                continue
            self._remarks.add(remark.kind)
            text = " ".join(remark.text.split())
            self._logger.warning("Run %s: partition %s %s", self._run_id, remark.sample, text)


@contextmanager
def told_every(interval_s: float, run_id: str, describe: Callable[[], str]) -> Iterator[None]:
    """Write a line every so often about what takes long, also while no news comes.

    An empty line from `describe`: there is nothing to say.
    """
    logger, ended = run_logger(), threading.Event()

    def tell() -> None:
        while not ended.wait(interval_s):
            if text := describe():
                logger.info("Run %s: %s.", run_id, text)

    # Prefect finds its settings in the context.
    teller = threading.Thread(
        target=contextvars.copy_context().run, args=(tell,), daemon=True, name="partwise-teller"
    )
    teller.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def listeners(run_id: str, partitions: int) -> Iterator[list[ProgressListener]]:
    """Give whoever is to hear of a run's progress: Prefect's UI, the log, a bar in a terminal."""
    logger = run_logger()
    chosen: list[ProgressListener] = [KindLines(logger, run_id)]
    with ExitStack() as stack:
        if not is_direct():
            from prefect.runtime import flow_run

            from partwise.flows.orchestration.progress_artifact import ProgressArtifact

            artifact = ProgressArtifact(f"{flow_run.flow_name}-progress", partitions)
            stack.callback(artifact.close)
            chosen.append(artifact)
        if sys.stderr.isatty():
            bar = stack.enter_context(_terminal_bar())
            yield [*chosen, TerminalBar(bar, run_id, partitions)]
        elif is_notebook():
            yield [*chosen, NotebookLine(run_id, partitions)]
        else:
            yield [*chosen, Lines(logger, run_id, partitions)]


def _terminal_bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
