"""A run and its partitions, with the names that theirs have."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function import (
    partition_context,
)
from partwise.compat.snowflake.stages import stage_store
from partwise.errors import RunCancelledError, RunFailedError, RunNotFoundError
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.key_texts import key_texts
from partwise.runs.ledger import KEY_PREFIX
from partwise.runs.run import Run

if TYPE_CHECKING:
    from partwise.flows.orchestration.started_run import StartedRun

_SHOWN = {PartitionStatus.SKIPPED: PartitionStatus.DONE}
_SHOWN_OF_RUN = {RunStatus.SKIPPED: RunStatus.SUCCESS}


@dataclass(frozen=True)
class StageArtifactsManager:
    """The files of one partition."""

    run: Run
    key: Any

    def list(self) -> list[str]:
        """Return their names."""
        return self.run.artifacts(self.key)

    def get(self, filename: str, read_function: Callable[[str], Any] | None = None) -> Any:
        """Return what `read_function(path)` makes of a file; without it, what pickle does."""
        read = read_function or partition_context.unpickled
        return self.run.artifact(self.key, filename, read)

    def download(self, filename: str, local_dir: str) -> str:
        """Write a file into a folder of this machine, and return its path."""
        path = Path(local_dir, filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.run.read_artifact(self.run.partition_id(self.key), filename)
        path.write_bytes(content)
        return str(path)


@dataclass(frozen=True)
class SinglePartitionDetails:
    """How a partition stands. One that was skipped is shown as DONE: they have no such status."""

    partition_id: str
    status: PartitionStatus
    stage_artifacts_manager: StageArtifactsManager

    @property
    def logs(self) -> str:
        """What the partition wrote.

        Raises:
            RuntimeError: It has not ended.
        """
        if self.status in (PartitionStatus.PENDING, PartitionStatus.RUNNING):
            raise RuntimeError(
                f"The partition {self.partition_id!r} is {self.status.value}: its logs are there "
                "when it has ended."
            )
        files = self.stage_artifacts_manager
        return files.run.logs(files.key)


class DPFRun:
    """A run that is at work, or that was restored.

    Args:
        run_id: Its ID.
        store: Where it is.
        work: The process that works on it; None: it was restored.
    """

    run_id: str

    def __init__(self, run_id: str, store: str, work: "StartedRun[Run] | None" = None) -> None:
        self.run_id = run_id
        self._store = store
        self._work = work

    @classmethod
    def restore_from(cls, run_id: str, stage_name: str) -> Self:
        """Return a run of a stage, only to be read.

        Raises:
            RunNotFoundError: It is not there.
        """
        store = stage_store(stage_name)
        Run.open(run_id, store)
        return cls(run_id, store)

    @property
    def status(self) -> RunStatus:
        """How the run stands; SUCCESS also where all partitions were skipped."""
        status = self._work.status if self._work else Run.open(self.run_id, self._store).status
        return _SHOWN_OF_RUN.get(status, status)

    def wait(self) -> RunStatus:
        """Wait for the end of the run, and return its status; what refuses the call is raised.

        Raises:
            RuntimeError: The run was restored.
            RunExistsError: It exists, and on_existing_artifacts is "error".
            InputError: An argument cannot be used.
        """
        with suppress(RunFailedError, RunCancelledError):
            self._at_work().result()
        return self.status

    def cancel(self) -> None:
        """End the run; what is committed is kept.

        Raises:
            RuntimeError: The run was restored.
        """
        self._at_work().cancel()

    def _at_work(self) -> "StartedRun[Run]":
        if self._work is None:
            raise RuntimeError(
                f"The run {self.run_id!r} was restored, and is only to be read: "
                f"partwise.Run.open({self.run_id!r}, {self._store!r}) can wait and cancel."
            )
        return self._work

    @property
    def partition_details(self) -> dict[str, SinglePartitionDetails]:
        """Each partition by its key as text; none before the rows are loaded.

        That of a null among texts is its partition_id.
        """
        run = self._opened()
        if run is None:
            return {}
        columns = [f"{KEY_PREFIX}{column.name}" for column in run.key_columns]
        details = {}
        rows = run.ledger.select([*columns, "status"]).to_pylist()
        for row, text in zip(rows, key_texts(run.ledger), strict=True):
            values = [row[name] for name in columns]
            status = PartitionStatus(row["status"])
            files = StageArtifactsManager(run, tuple(values) if len(values) > 1 else values[0])
            details[text] = SinglePartitionDetails(text, _SHOWN.get(status, status), files)
        return details

    def get_progress(self) -> dict[str, list[SinglePartitionDetails]]:
        """Return the partitions by their status; only statuses that some have."""
        progress: dict[str, list[SinglePartitionDetails]] = {}
        for each in self.partition_details.values():
            progress.setdefault(each.status.value, []).append(each)
        return progress

    def _opened(self) -> Run | None:
        """Return the run as it stands; None: it has not begun.

        Raises:
            InputError: Of a call that was refused, what refused it.
        """
        if self._work and self._work.status is RunStatus.FAILURE:
            # A refused call has no partitions of its own to tell of, and a loop may wait for them.
            self.wait()
        try:
            return Run.open(self.run_id, self._store)
        except RunNotFoundError:
            return None
