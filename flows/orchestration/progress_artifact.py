"""The progress of a run in Prefect's UI."""

import contextvars
import threading
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from partwise.engine.assignment import ShardProgress
from partwise.engine.driver.shards import Progress
from partwise.flows.orchestration.server_client import NO_ANSWER
from partwise.formatting import counted

ARTIFACT_PAUSE_S = 2.0


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
        except NO_ANSWER:
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
                except NO_ANSWER:
                    return
            if ended:
                return

    def _describe(self, finished: int, failed: int) -> str:
        wrong = f", {failed:,} of them failed" if failed else ""
        return f"{finished:,} of {counted(self._partitions, 'partition')}{wrong}"
