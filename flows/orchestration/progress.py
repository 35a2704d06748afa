"""What one sees of a run while it works: a bar in Prefect's UI and in a terminal, and log lines."""

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
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
from partwise.tasks.steps import is_direct, run_logger

FIRST_LINE_S = 10.0
LONGEST_PAUSE_S = 320.0
ARTIFACT_PAUSE_S = 2.0
_SERVER_GONE = (httpx.HTTPError, PrefectHTTPStatusError)
MOST_KINDS = 20
"""Kinds of failures that are shown one by one."""


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


class FailureLines:
    """A line of a log for each kind of failure, when it is first seen."""

    def __init__(self, logger: Logger, run_id: str) -> None:
        self._logger = logger
        self._run_id = run_id
        self._seen: set[str] = set()

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Write a line for each failure of a new kind."""
        for failure in news.failures:
            if failure.fingerprint in self._seen or len(self._seen) > MOST_KINDS:
                continue
            self._seen.add(failure.fingerprint)
            if len(self._seen) > MOST_KINDS:
                self._logger.warning("Run %s: more kinds of failures follow.", self._run_id)
                return
            self._logger.warning(
                "Run %s: partition %s failed: %s: %s",
                self._run_id,
                failure.sample,
                failure.error_type,
                " ".join(failure.message.split())[:300],
            )


class LeftoverLines:
    """A line of a log for each way in which partitions left their process changed."""

    def __init__(self, logger: Logger, run_id: str) -> None:
        self._logger = logger
        self._run_id = run_id
        self._seen: set[str] = set()

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Write a line for each new kind."""
        for left in news.leftovers:
            if left.kind in self._seen or len(self._seen) >= MOST_KINDS:
                continue
            self._seen.add(left.kind)
            self._logger.warning(
                "Run %s: partition %s left its process changed: %s. Another process takes its "
                "place after each partition that does so, which takes time: undo it in the "
                "function, or run with isolation='partition'.",
                self._run_id,
                left.sample,
                " ".join(left.text.split())[:300],
            )


@contextmanager
def told_every(
    interval_s: float, logger: Logger, run_id: str, describe: Callable[[], str]
) -> Iterator[None]:
    """Write a line every so often about what takes long, also while no news comes.

    An empty line from `describe`: there is nothing to say.
    """
    ended = threading.Event()

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


class ProgressArtifact:
    """A progress bar over partitions in Prefect's UI, moved every two seconds.

    Without a server the run goes on without it.
    """

    def __init__(self, key: str, partitions: int) -> None:
        self._partitions = partitions
        self._latest: Progress | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            created = create_progress_artifact(0.0, key=key, description=self._describe(0, 0))
        except _SERVER_GONE:
            return
        self._artifact = created if isinstance(created, UUID) else UUID(str(created))
        # Prefect finds its settings in the context.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._follow,), daemon=True
        )
        self._thread.start()

    def update(self, progress: Progress, news: ShardProgress) -> None:  # noqa: ARG002 (the protocol)
        """Take note; the artifact follows on a thread of its own."""
        self._latest = progress

    def close(self) -> None:
        """Show the last state."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        shown = 0
        while True:
            ended = self._end.wait(ARTIFACT_PAUSE_S)
            # Looked at after the wait: so the last state is shown, too, when it ends.
            latest = self._latest
            if latest is not None and latest.finished != shown:
                shown = latest.finished
                try:
                    update_progress_artifact(
                        self._artifact,
                        progress=100.0 * shown / max(1, self._partitions),
                        description=self._describe(shown, latest.failed),
                    )
                except _SERVER_GONE:
                    return
            if ended:
                return

    def _describe(self, finished: int, failed: int) -> str:
        wrong = f", {failed:,} of them failed" if failed else ""
        return f"{finished:,} of {self._partitions:,} partitions{wrong}"


@contextmanager
def listeners(run_id: str, partitions: int) -> Iterator[list[ProgressListener]]:
    """Give whoever is to hear of a run's progress: Prefect's UI, the log, a bar in a terminal."""
    logger = run_logger()
    chosen: list[ProgressListener] = [FailureLines(logger, run_id), LeftoverLines(logger, run_id)]
    with ExitStack() as stack:
        if not is_direct():
            artifact = ProgressArtifact(f"{flow_run.flow_name}-progress", partitions)
            stack.callback(artifact.close)
            chosen.append(artifact)
        if sys.stderr.isatty():
            bar = stack.enter_context(_terminal_bar())
            yield [*chosen, TerminalBar(bar, run_id, partitions)]
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
