"""The work of a node: one Dask task that holds a slot, starts ranks, watches them, and ends them.

It knows its worker only as a `Host`, so that a test can run a node in its own process. What the
driver says meanwhile comes by `tell_nodes`, which a worker answers while its slots are busy.
"""

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from partwise.cluster_calls import this_worker, watch_own_task
from partwise.engine.host import Host
from partwise.engine.worker.child import end_marked
from partwise.engine.worker.packages import packages_variables
from partwise.engine.worker.scratch import own_scratch
from partwise.engine.worker.tasks import DaskHost
from partwise.environments.building import BuiltEnvironment, open_environment
from partwise.gangs.environment import gang_environment, rank_environment
from partwise.gangs.events import EventKind, GangEvent
from partwise.gangs.logs import RankLog
from partwise.gangs.node_bundle import upload_node
from partwise.gangs.ports import reserve_port
from partwise.gangs.rank_process import RankProcess
from partwise.gangs.rank_settings import RankSettings
from partwise.gangs.spec import GangSpec, RankEnd
from partwise.outcomes import PartitionStatus
from partwise.peers import family_of
from partwise.processes.warm_server import Preloaded
from partwise.processes.worker_server import user_variables
from partwise.runs.checkpoints import CHECKPOINTS, signing_scope
from partwise.runs.documents import run_path
from partwise.shuffle.shared_folder import fetch
from partwise.store.credentials import all_credentials
from partwise.store.signing import given_key

LOOK_S = 0.05
MEASURE_S = 0.2
TELL_S = 0.25
"""So often new lines of logs are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAssignment:
    """One node of an attempt of a gang."""

    spec: GangSpec
    number: int
    attempt: int

    @property
    def mark(self) -> str:
        """What names the node on its worker, and stands in the environment of its processes."""
        return f"{gang_mark(self.spec.token)}{self.attempt}:{self.number}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a node says of itself when it holds its slot."""

    addresses: tuple[tuple[str, int], ...]
    """Host and reserved port of each of its ranks."""
    exchange: tuple[str, int]
    """Where the exchange listens; of other nodes than the first without meaning."""
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the driver tells each node when all have joined."""

    addresses: tuple[tuple[str, int], ...]
    exchange: tuple[str, int]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStop:
    """How the ranks of a node are to be ended."""

    reason: str
    settle_s: float
    """For so long they are left alone, to end by themselves."""
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """What became of a node's ranks."""

    ends: tuple[RankEnd, ...]
    errors: Mapping[int, bytes]
    """The exceptions of ranks that failed, pickled."""


@dataclass(slots=True)
class _Control:
    """What the driver has sent a node so far."""

    news: threading.Event = field(default_factory=threading.Event)
    start: Start | None = None
    stop: NodeStop | None = None


_controls: dict[str, _Control] = {}


def gang_mark(token: str) -> str:
    """Return what all marks of a gang's processes begin with."""
    return f"gang-{token}:"


def gang_topic(token: str, attempt: int) -> str:
    """Return the topic of an attempt's events."""
    return f"gang-{token}-{attempt}"


def run_node(assignment: NodeAssignment) -> NodeEnd | None:
    """Hold a slot, and run ranks in it when the driver says so; None: it never did.

    Raises:
        StoreError: The store refused to take the logs and the model.
        OSError: There is no port, or no disk.
    """
    from distributed.comm.addressing import get_address_host

    worker = this_worker()
    address = get_address_host(worker.address)
    return run_node_on(DaskHost(worker), address, assignment, watch_own_task())


def tell_nodes(token: str, attempt: int, told: Start | NodeStop) -> None:
    """Have the nodes of an attempt, on this worker, start or end their ranks; the first counts."""
    prefix = f"{gang_mark(token)}{attempt}:"
    for mark, control in list(_controls.items()):
        if not mark.startswith(prefix):
            continue
        # It is said again and again, as answers get lost, and must not change under way.
        if isinstance(told, Start):
            control.start = control.start or told
        else:
            control.stop = control.stop or told
        control.news.set()


def sweep_gang(token: str, attempt: int, folders: list[str]) -> None:
    """End what is left on this machine of nodes whose workers were lost."""
    end_marked(f"{gang_mark(token)}{attempt}:")
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def run_node_on(
    host: Host, address: str, assignment: NodeAssignment, is_abandoned: Callable[[], bool]
) -> NodeEnd | None:
    """Run a node on a host."""
    control = _controls[assignment.mark] = _Control()
    with contextlib.ExitStack() as stack:
        stack.callback(_controls.pop, assignment.mark, None)
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(
                prefix="gang-", dir=own_scratch(host.folder), ignore_cleanup_errors=True
            )
        )
        return _NodeRun(host, address, assignment, control, is_abandoned, folder).run()


class _NodeRun:
    """One node at work."""

    def __init__(
        self,
        host: Host,
        address: str,
        assignment: NodeAssignment,
        control: _Control,
        is_abandoned: Callable[[], bool],
        folder: str,
    ) -> None:
        self._host = host
        self._address = address
        self._assignment = assignment
        self._spec = assignment.spec
        self._node = self._spec.nodes[assignment.number]
        self._control = control
        self._is_abandoned = is_abandoned
        self._folder = folder
        self._ranks: list[RankProcess] = []
        self._told: set[int] = set()
        self._steps_told = 0
        self._stop_seen: float | None = None
        self._topic = gang_topic(self._spec.token, assignment.attempt)
        self._packages = BuiltEnvironment()

    def run(self) -> NodeEnd | None:
        with contextlib.ExitStack() as stack:
            # All machines have it already, but for one that came since.
            self._packages = stack.enter_context(open_environment(self._spec.packages))
            family = family_of(self._address)
            reserved = [stack.enter_context(reserve_port(family)) for _ in range(self._node.ranks)]
            # It listens before anybody knows of it, so that no rank comes too early.
            listener = stack.enter_context(socket.create_server((self._address, 0), family=family))
            joined = Joined(
                addresses=tuple((self._address, one.getsockname()[1]) for one in reserved),
                exchange=listener.getsockname()[:2],
                folder=self._folder,
            )
            self._host.log_event(
                self._topic, {"node": self._assignment.number, "joined": asdict(joined)}
            )
            start = self._await_start()
            if start is None:
                return None
            # Called in reverse: keepers end the ranks, then what has lost its keeper is ended, and
            # then the files of both can go.
            stack.callback(self._remove_files)
            stack.callback(end_marked, self._assignment.mark)
            stack.callback(self._end_ranks)
            for local_rank, port in enumerate(reserved):
                self._start_rank(local_rank, port, listener, start)
            # Of the ranks alone from now on, so that it ends with them.
            listener.close()
            self._tell("started")
            if not self._ranks:
                self._lend()
            self._watch()
            return None if self._is_abandoned() else self._collect()

    def _lend(self) -> None:
        """Hold the slot until the gang has ended: the driver then cancels the task."""
        while self._control.stop is None and not self._is_abandoned():
            time.sleep(LOOK_S)

    def _end_ranks(self) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.close()

    def _remove_files(self) -> None:
        for rank in self._ranks:
            rank.remove_files()

    def _await_start(self) -> Start | None:
        while self._control.start is None:
            if self._control.stop is not None or self._is_abandoned():
                return None
            self._control.news.wait(LOOK_S)
        return self._control.start

    def _start_rank(
        self, local_rank: int, port: socket.socket, listener: socket.socket, start: Start
    ) -> None:
        spec, node = self._spec, self._node
        rank = node.first_rank + local_rank
        directory = os.path.join(self._folder, f"rank-{rank}")
        os.mkdir(directory)
        own_gpus = slice(local_rank * spec.gpus, (local_rank + 1) * spec.gpus)
        log = RankLog(os.path.join(directory, "log"))
        settings = RankSettings(
            token=secrets.token_hex(8),
            directory=directory,
            node_directory=self._folder,
            payload=fetch(spec.payload, spec.store, self._folder),
            rank=rank,
            world_size=spec.world_size,
            local_rank=local_rank,
            local_world_size=node.ranks,
            node_rank=self._assignment.number,
            attempt=self._assignment.attempt,
            addresses=start.addresses,
            exchange_address=start.exchange,
            key=start.key,
            threads=spec.threads,
            gpus=node.gpus if spec.shares_gpus else node.gpus[own_gpus],
            run_id=spec.run_id,
            generation=spec.generation,
            seed=spec.seed,
            store=asdict(spec.store),
            checkpoints=run_path(spec.run_id, CHECKPOINTS) if spec.keeps_checkpoints else "",
            resume_from=spec.resume_from,
            resume_sha256=spec.resume_sha256,
            checkpoint_key=self._checkpoint_key(),
            credentials=all_credentials(),
        )
        descriptors = {"port_fd": port.fileno()}
        if rank == 0:
            descriptors["listener_fd"] = listener.fileno()
        own = rank_environment(spec, settings)
        mark, variables = self._assignment.mark, self._shared_variables()
        self._ranks.append(
            RankProcess(
                settings,
                descriptors,
                mark,
                variables,
                own,
                log,
                port,
                self._packages,
                Preloaded(modules=spec.modules),
            )
        )

    def _shared_variables(self) -> dict[str, str]:
        packages = packages_variables(self._packages)
        return user_variables() | packages | gang_environment(self._spec)

    def _checkpoint_key(self) -> str:
        """Return the key for the ranks, who get no other.

        Raises:
            SignatureError: This worker was not given the run's.
        """
        spec = self._spec
        if not spec.is_signed or not spec.keeps_checkpoints:
            return ""
        root = run_path(spec.run_id, CHECKPOINTS)
        scope = signing_scope(root, spec.generation, self._assignment.attempt)
        return given_key(spec.store).derived(scope).to_text()

    def _watch(self) -> None:
        """Follow the ranks until all have ended, and end them when that is due."""
        measured = told = 0.0
        while True:
            now = time.monotonic()
            # Asked before the logs are read: nothing is written after that.
            running = [rank for rank in self._ranks if not rank.has_ended()]
            # At once where one has ended: of like failures the first that is known is blamed.
            if now >= told + TELL_S or len(running) + len(self._told) < len(self._ranks):
                told = now
                self._tell_logs()
                self._tell_steps()
                self._tell_ends()
            if not running:
                return
            is_due = now >= measured + MEASURE_S
            measured = now if is_due else measured
            for rank in running:
                # One that is new at once: a warm rank may be done before it would be due.
                if is_due or not rank.peak_bytes:
                    rank.measure()
                    rank.end_if_stopped(self._spec.options.silence_s)
            self._end_if_due(running)
            self._control.news.wait(LOOK_S)
            self._control.news.clear()

    def _end_if_due(self, running: list[RankProcess]) -> None:
        stop = self._control.stop
        if stop is None and self._is_abandoned():
            reason = "nobody waits for the gang any more"
            stop = NodeStop(reason=reason, settle_s=0.0, grace_s=self._spec.options.grace_s)
            self._control.stop = stop
        if stop is None:
            return
        if self._stop_seen is None:
            self._stop_seen = time.monotonic()
        since = time.monotonic() - self._stop_seen
        if since < stop.settle_s:
            return
        for rank in running:
            if not rank.was_told_to_end:
                rank.terminate(stop.reason)
            elif since >= stop.settle_s + stop.grace_s:
                rank.kill()

    def _tell(self, kind: EventKind, **fields: Any) -> None:
        event = GangEvent(
            kind=kind,
            attempt=self._assignment.attempt,
            node=self._assignment.number,
            host=f"{socket.gethostname()}/{self._host.name}",
            **fields,
        )
        # A driver out of reach is no reason to stop: `is_abandoned` tells when it is gone.
        with contextlib.suppress(OSError):
            message = {"node": self._assignment.number, "event": event.to_message()}
            self._host.log_event(self._topic, message)

    def _tell_logs(self) -> None:
        for rank in self._ranks:
            if rank.rank not in self._told:
                lines = rank.log.new_lines(ended=rank.exit_code is not None)
                if lines:
                    self._tell("log", rank=rank.rank, lines=tuple(lines))

    def _tell_steps(self) -> None:
        for rank in self._ranks:
            if rank.rank == 0 and (steps := rank.steps()[self._steps_told :]):
                self._steps_told += len(steps)
                self._tell("steps", rank=0, steps=steps)

    def _tell_ends(self) -> None:
        for rank in self._ranks:
            if rank.exit_code is None or rank.rank in self._told:
                continue
            self._told.add(rank.rank)
            failure = rank.failure(rank.outcome())
            error = failure.summary if failure else ""
            self._tell("ended", rank=rank.rank, exit_code=rank.exit_code, error=error)

    def _collect(self) -> NodeEnd:
        """Upload what is kept, and return how the ranks ended."""
        outcomes = [rank.outcome() for rank in self._ranks]
        # Of a gang that has failed elsewhere the model does not count, and may be large.
        with_model = self._control.stop is None
        artifacts = upload_node(
            self._spec,
            self._assignment.number,
            self._assignment.attempt,
            self._ranks,
            outcomes if with_model else [None] * len(outcomes),
        )
        ends, errors = [], {}
        for rank, outcome, kept in zip(self._ranks, outcomes, artifacts, strict=True):
            failure = rank.failure(outcome)
            if rank.ended_because:
                status = PartitionStatus.CANCELLED
            elif failure is not None or outcome is None:
                status = PartitionStatus.FAILED
            else:
                status = PartitionStatus(outcome.status)
            ends.append(
                RankEnd(
                    rank=rank.rank,
                    host=f"{socket.gethostname()}/{self._host.name}",
                    attempt=self._assignment.attempt,
                    status=status,
                    exit_code=rank.exit_code,
                    failure=failure,
                    seconds=rank.seconds,
                    peak_memory_bytes=rank.peak_bytes or None,
                    rows=outcome.rows if outcome else None,
                    metrics=outcome.metrics if outcome else {},
                    steps=rank.steps(),
                    artifacts=kept,
                    reason=rank.ended_because or (outcome.reason if outcome else ""),
                )
            )
            if error := rank.error():
                errors[rank.rank] = error
        return NodeEnd(ends=tuple(ends), errors=errors)
