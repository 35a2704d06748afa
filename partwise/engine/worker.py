"""What the driver calls on a Dask worker: run a shard, stop an execution, forget it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import Worker, get_worker

from partwise.engine.assignment import ShardAssignment, ShardReceipt, work_file
from partwise.engine.child_process import close_idle_children
from partwise.engine.shard_run import execution_folder, run_on

_stopped: set[str] = set()


@dataclass(frozen=True, slots=True)
class DaskHost:
    """A Dask worker as the host of shards."""

    worker: Worker

    @property
    def folder(self) -> str:
        """The worker's scratch folder."""
        return str(self.worker.local_directory)

    @property
    def name(self) -> str:
        """Its name on the cluster."""
        return str(self.worker.name)

    def log_event(self, topic: str, message: dict[str, Any]) -> None:
        """Send the clients that follow the topic a message."""
        self.worker.log_event(topic, message)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Have the worker's loop call a function."""
        loop = self.worker.loop
        # `call_later` alone is not safe on a thread that is not the loop's.
        loop.add_callback(loop.call_later, seconds, function)


def run_shard(assignment: ShardAssignment) -> ShardReceipt:
    """Work on one shard until every partition of it has a committed row, or the run is stopped.

    Executing it twice, even at the same time, is safe: each execution writes under a token of its
    own, and goes on from what is committed.

    Raises:
        StoreError: The store refused to take a segment.
        RunBusyError: The run ended without this execution.
        ClusterError: Child processes die here without running anything.
    """
    token = assignment.execution.token
    return run_on(DaskHost(get_worker()), assignment, lambda: token in _stopped)


def request_stop(token: str) -> None:
    """Have the shards of an execution, on this worker, commit what they have and return."""
    _stopped.add(token)


def end_execution(token: str, dask_worker: Worker) -> None:
    """Forget an execution on this worker: its children, its files, its stop.

    Args:
        token: The execution's.
        dask_worker: Given by Dask, by this name.
    """
    close_idle_children(work_file(token))
    shutil.rmtree(execution_folder(DaskHost(dask_worker), token), ignore_errors=True)
    _stopped.discard(token)
