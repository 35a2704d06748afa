"""What the driver calls on a Dask worker: run a shard, stop an execution, forget it."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partwise.cluster_calls import this_worker, watch_own_task
from partwise.engine.assignment import Execution, ShardAssignment, ShardReceipt, work_file
from partwise.engine.scaling import cluster_workers, partition_slots
from partwise.engine.worker.child import close_idle_children
from partwise.engine.worker.machine_slots import hold_slot
from partwise.engine.worker.shard_run import execution_folder, open_run, run_on

if TYPE_CHECKING:
    from distributed import Worker

IDLE_S = 300.0
"""An execution of which no task was here for so long is forgotten: its driver may be dead."""

_stopped: set[str] = set()
_at_work: Counter[str] = Counter()
"""Tasks of each execution on this worker, which may have several threads."""
_forgetting: dict[str, threading.Timer] = {}
"""What forgets executions that have no task on this worker now."""
_counting = threading.Lock()
_late: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {}
"""Slots of machines that the driver did not know, by execution and host."""


@dataclass(frozen=True, slots=True)
class DaskHost:
    """A Dask worker as the host of shards."""

    worker: "Worker"

    @property
    def folder(self) -> str:
        """The worker's scratch folder."""
        return str(self.worker.local_directory)

    @property
    def name(self) -> str:
        """Its name on the cluster."""
        return str(self.worker.name)

    @property
    def address(self) -> str:
        """Where Dask reaches it."""
        return str(self.worker.address)

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
        InputError: The machine joined the cluster later, and has too little for any partition.
    """
    execution = assignment.execution
    token = execution.token
    with task_of(token) as is_stopped, held_slot(execution, is_stopped) as gpus:
        return run_on(DaskHost(this_worker()), assignment, is_stopped, gpus)


def end_execution(token: str, dask_worker: "Worker") -> None:
    """Forget an execution on this worker: its children, its files, its stop, runs that it read."""
    if timer := _forgetting.pop(token, None):
        timer.cancel()
    close_idle_children(work_file(token))
    shutil.rmtree(execution_folder(DaskHost(dask_worker), token), ignore_errors=True)
    _stopped.discard(token)
    # With their ledgers. Another execution at work here opens its own once more.
    open_run.cache_clear()
    for known in [known for known in _late if known[0] == token]:
        _late.pop(known, None)


@contextmanager
def task_of(
    token: str, end: Callable[[str, "Worker"], None] = end_execution
) -> Iterator[Callable[[], bool]]:
    """Give a task of an execution what tells whether it is to come to its end.

    Without its driver it is, too: the workers are for others then. As nobody else does, the last of
    its tasks on this worker tidies up by `end`. So it is where no other task comes for `IDLE_S`: of
    a driver that dies meanwhile a worker without a task does not hear, and to one that lives no
    more is lost than time, as each task makes what it does not find.
    """
    worker, is_abandoned = this_worker(), watch_own_task()
    with _counting:
        _at_work[token] += 1
        if timer := _forgetting.pop(token, None):
            timer.cancel()
    try:
        yield lambda: token in _stopped or is_abandoned()
    finally:
        with _counting:
            _at_work[token] -= 1
            if not _at_work[token]:
                del _at_work[token]
                # Under the lock: a driver that has found its scheduler again begins others, which
                # would lose their files.
                if is_abandoned():
                    end(token, worker)
                else:
                    timer = threading.Timer(IDLE_S, _forget_idle, (token, worker, end))
                    timer.daemon = True
                    _forgetting[token] = timer
                    timer.start()


def _forget_idle(token: str, worker: "Worker", end: Callable[[str, "Worker"], None]) -> None:
    with _counting:
        if token not in _at_work:
            end(token, worker)


def held_slot(
    execution: Execution, is_stopped: Callable[[], bool]
) -> AbstractContextManager[tuple[str, ...]]:
    """Hold a slot of this machine for a partition, and give its GPUs."""
    if not execution.limits.slots:
        return nullcontext(())
    from distributed.comm.addressing import get_address_host

    devices = _slots_of(get_address_host(this_worker().address), execution)
    return hold_slot(execution.token, devices, is_stopped)


def _slots_of(host: str, execution: Execution) -> tuple[tuple[str, ...], ...]:
    """Return the GPUs of each slot of a machine."""
    known = execution.limits.slots.get(host) or _late.get((execution.token, host))
    if known is None:
        from distributed import get_client

        # It joined the cluster after the driver had counted.
        options = execution.options
        members = [worker for worker in cluster_workers(get_client()) if worker.host == host]
        slots = partition_slots(members, options.cpus, options.gpus)
        known = _late[execution.token, host] = tuple(slot.gpus for slot in slots)
    return known


def request_stop(token: str) -> None:
    """Have the shards of an execution, on this worker, commit what they have and return."""
    _stopped.add(token)
