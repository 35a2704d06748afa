"""One attempt of a gang: its nodes join, start their ranks together, and are followed."""

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partwise.cluster_calls import ask_workers, forget_topic, is_cut_off, result_of
from partwise.engine.driver.cluster_watch import LOOK_S, ClusterWatch
from partwise.engine.failures import Failure, describe_error, fingerprint_failure
from partwise.errors import ClusterError
from partwise.formatting import duration
from partwise.gangs.events import GangEvent
from partwise.gangs.node import (
    Joined,
    NodeAssignment,
    NodeEnd,
    NodeStop,
    Start,
    gang_topic,
    run_node,
    sweep_gang,
    tell_nodes,
)
from partwise.gangs.spec import GangSpec, Node, RankEnd
from partwise.gangs.verdict import is_consequence
from partwise.outcomes import PartitionStatus, Stop

if TYPE_CHECKING:
    from distributed import Client, Future

REPEAT_S = 2.0
"""So often nodes are sent again what they have not confirmed."""
SETTLE_S = 1.0
"""After a rank that seems to have died of another one, for so long the others may show why."""
LATE_S = 10.0
"""A node that is so late to end its ranks counts as lost."""
FIRST_PRIORITY = 1_000_000
"""Above that of all other tasks: slots that are held wait for the others."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class AttemptEnd:
    """How an attempt came to its end."""

    ends: list[RankEnd]
    began: float
    """As of `time.monotonic`."""
    order: list[int]
    """Ranks in the order in which their ends became known."""
    errors: dict[int, bytes] = field(default_factory=dict)
    """Exceptions of ranks, pickled."""
    node_errors: dict[int, BaseException] = field(default_factory=dict)
    """What nodes failed of, by the first of their ranks."""
    lost: set[str] = field(default_factory=set)
    """Workers that are not to be used again."""
    reason: str = ""
    """Why it was ended from outside: stop or time limit."""

    @property
    def is_success(self) -> bool:
        """Whether every rank did what it should."""
        good = (PartitionStatus.DONE, PartitionStatus.SKIPPED)
        return all(end.status in good for end in self.ends)


class Attempt:
    """One attempt at running the ranks of a gang."""

    def __init__(
        self,
        client: "Client",
        watch: ClusterWatch,
        spec: GangSpec,
        number: int,
        stopped: Callable[[], Stop | None],
        listen: Callable[[GangEvent], None],
    ) -> None:
        self._client = client
        self._watch = watch
        self._began = time.monotonic()
        self._spec = spec
        self._number = number
        self._topic = gang_topic(spec.token, number)
        self._stopped = stopped
        self._listen = listen
        self._news: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._futures: dict[int, Future[NodeEnd | None]] = {}
        self._joined: dict[int, Joined] = {}
        self._running: set[int] = set()
        self._lost: dict[int, str] = {}
        self._order: list[int] = []
        self._told: Start | NodeStop | None = None
        self._told_at = 0.0
        self._ending_at = 0.0
        self._reason = ""
        self._looked_at = 0.0
        self._senders: list[threading.Thread] = []

    def wake(self) -> None:
        """Have the attempt look at once whether it is to stop."""
        self._news.put(None)

    def longest(self) -> str:
        """Return a sentence about what the attempt waits for."""
        since = duration(time.monotonic() - self._began)
        nodes, joined = len(self._spec.nodes), len(self._joined)
        if joined < nodes:
            return f"{nodes - joined} of {nodes} workers have not joined the gang since {since}"
        ended = f", {len(self._order)} of them have ended" if self._order else ""
        return f"its {self._spec.world_size} ranks run since {since}{ended}"

    def run(self) -> AttemptEnd:
        """Run the ranks, and wait until all have ended.

        Raises:
            ClusterError: A slot stayed busy for too long, or the cluster is gone.
        """
        # Before the tasks are sent: what a node says of itself is said once.
        self._client.subscribe_topic(self._topic, self._hear)
        try:
            self._submit()
            # And after, as the first wish may be lost with a connection that is closed before they
            # are sent. One that is closed later takes them along, and ends the attempt.
            self._client.subscribe_topic(self._topic, self._hear)
            if self._await_joined():
                self._follow()
            return self._describe()
        finally:
            self._release()

    def _hear(self, event: tuple[float, dict[str, Any]]) -> None:
        self._news.put(event[1])

    def _submit(self) -> None:
        from dask.base import annotate
        from dask.delayed import delayed

        keys = [f"{self._topic}-node-{number}" for number in range(len(self._spec.nodes))]
        tasks = []
        for number, node in enumerate(self._spec.nodes):
            assignment = NodeAssignment(spec=self._spec, number=number, attempt=self._number)
            # Dask must not begin a node again by itself, nor elsewhere: it would look for ranks
            # that are gone. A gang begins again as a whole.
            with annotate(workers=[node.worker], allow_other_workers=False, retries=0):
                run = delayed(run_node, pure=False)
                tasks.append(run(assignment, dask_key_name=keys[number]))
        # All in one message. So of two gangs that need the same slots one is first at every worker;
        # were they sent one by one, each gang could get a part of the slots, and wait for the rest.
        futures = self._client.compute(tasks, priority=FIRST_PRIORITY, optimize_graph=False)
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _: self._news.put(None))
            self._futures[number] = future

    def _await_joined(self) -> bool:
        """Wait until every node holds its slot; False: the attempt is over before."""
        limit_s = self._spec.options.join_timeout_s
        deadline = time.monotonic() + limit_s
        while len(self._joined) < len(self._futures):
            self._wait(deadline)
            if self._stopped() or self._lost or any(f.done() for f in self._futures.values()):
                return False
            if time.monotonic() >= deadline:
                missing = [n for n in self._futures if n not in self._joined]
                workers = ", ".join(self._spec.nodes[n].worker for n in missing)
                raise ClusterError(
                    f"The gang of the run {self._spec.run_id!r} did not come together within "
                    f"{limit_s:g} s: {len(missing)} of {len(self._futures)} "
                    f"workers were busy with other tasks ({workers}). Wait until these have "
                    "ended, or ask for fewer ranks."
                )
        return True

    def _follow(self) -> None:
        """Have the nodes start their ranks, and end these when that is due."""
        spec = self._spec
        self._told = Start(
            addresses=tuple(
                address
                for number in sorted(self._joined)
                for address in self._joined[number].addresses
            ),
            exchange=self._joined[0].exchange,
            # Of this attempt: a rank of an earlier one that lives does not know it.
            key=secrets.token_hex(16),
        )
        limit = spec.options.timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        while pending := [
            number
            for number, future in self._futures.items()
            # One without ranks only lends its slot, and ends when the others have.
            if spec.nodes[number].ranks and number not in self._lost and not future.done()
        ]:
            now = time.monotonic()
            if stop := self._stopped():
                self._end(stop.reason, is_reason=True)
            elif deadline is not None and now >= deadline:
                self._end(f"its time limit of {limit:g} s was over", is_reason=True)
            if self._ending_at and now > self._ending_at + spec.options.grace_s + LATE_S:
                for number in pending:
                    self._lost[number] = "did not end its ranks in time"
                continue
            self._repeat(now)
            self._wait(None if self._ending_at else deadline)
            if self._lost or any(f.status == "error" for f in self._futures.values()):
                self._end("another worker of the gang was lost")

    def _end(self, reason: str, *, settle_s: float = 0.0, is_reason: bool = False) -> None:
        """Have all ranks ended; the first reason counts."""
        if isinstance(self._told, NodeStop):
            return
        self._told = NodeStop(reason=reason, settle_s=settle_s, grace_s=self._spec.options.grace_s)
        self._told_at = 0.0
        self._ending_at = time.monotonic() + settle_s
        self._reason = reason if is_reason else ""

    def _repeat(self, now: float) -> None:
        """Tell the nodes what they should do, again and again until they have confirmed it."""
        everybody_runs = len(self._running) == len(self._futures)
        if isinstance(self._told, Start) and everybody_runs and self._told_at:
            return
        if self._told is not None and now >= self._told_at + REPEAT_S:
            self._told_at = now
            workers = {n.worker for i, n in enumerate(self._spec.nodes) if i not in self._lost}
            self._send(sorted(workers), tell_nodes, self._spec.token, self._number, self._told)

    def _send(self, workers: list[str], function: Callable[..., None], *arguments: Any) -> None:
        """Have workers call a function; not on this thread, as one that hangs never answers."""
        self._senders = [sender for sender in self._senders if sender.is_alive()]

        def send() -> None:
            try:
                ask_workers(self._client, function, *arguments, workers=workers)
            except Exception:
                logger.debug("could not reach the workers of a gang", exc_info=True)

        # Calls to workers that hang would pile up until each has had its limit.
        if len(self._senders) < 8:
            sender = threading.Thread(target=send, daemon=True, name="partwise-gang-send")
            sender.start()
            self._senders.append(sender)

    def _wait(self, deadline: float | None) -> None:
        """Take in what has happened, and wait a moment for that."""
        now = time.monotonic()
        next_look = self._looked_at + LOOK_S
        until = next_look if deadline is None else min(next_look, deadline)
        with_timeout = max(0.0, until - now)
        try:
            message = self._news.get(timeout=with_timeout)
            while True:
                if message is not None:
                    self._take(message)
                message = self._news.get_nowait()
        except queue.Empty:
            pass
        if time.monotonic() >= next_look:
            self._looked_at = time.monotonic()
            self._look_at_cluster()

    def _take(self, message: dict[str, Any]) -> None:
        number = message["node"]
        if joined := message.get("joined"):
            self._joined[number] = Joined(
                addresses=tuple((host, port) for host, port in joined["addresses"]),
                exchange=tuple(joined["exchange"]),
                folder=joined["folder"],
            )
            host = self._joined[number].exchange[0]
            self._listen(GangEvent(kind="joined", attempt=self._number, node=number, host=host))
            return
        event = GangEvent.from_message(message["event"])
        if event.kind == "started":
            self._running.add(number)
        elif event.kind == "ended" and event.rank is not None:
            self._order.append(event.rank)
            if event.error:
                settle_s = SETTLE_S if is_consequence(event.error) else 0.0
                reason = f"rank {event.rank} of {self._spec.world_size} had failed"
                self._end(reason, settle_s=settle_s)
        self._listen(event)

    def _look_at_cluster(self) -> None:
        """Find workers that have died, or of which nothing is heard any more."""
        self._watch.look()
        workers = self._watch.workers()
        longest_s = self._spec.options.silence_s
        for number, node in enumerate(self._spec.nodes):
            if number in self._lost or self._futures[number].done():
                continue
            silent_s = workers.get(node.worker, 0.0)
            if self._watch.has_lost(node.worker, self._began):
                self._lost[number] = "ended, or is out of reach"
            elif silent_s > longest_s:
                self._lost[number] = f"was not heard of for {longest_s:g} s"
                # Another one in its place may be needed to begin again.
                self._watch.let_go(node.worker, silent_s)

    def _release(self) -> None:
        """Leave nothing on the cluster: no task, no process, no folder."""
        try:
            self._client.unsubscribe_topic(self._topic)
            for future in self._futures.values():
                if not future.done():
                    future.cancel(reason="the gang has ended")
            if self._lost:
                self._sweep()
            forget_topic(self._client, self._topic)
        except Exception:
            # The cluster is gone, and with it what would have to be tidied there.
            logger.debug("could not tidy up after a gang", exc_info=True)

    def _sweep(self) -> None:
        folders = [self._joined[number].folder for number in self._lost if number in self._joined]
        lost = {self._spec.nodes[number].worker for number in self._lost}
        # One that is on the machine of a lost worker sees what that has left.
        others = [address for address in self._watch.workers() if address not in lost]
        self._send(others, sweep_gang, self._spec.token, self._number, folders)
        self._senders[-1].join(LATE_S)

    def _describe(self) -> AttemptEnd:
        ended = AttemptEnd(ends=[], began=self._began, order=self._order, reason=self._reason)
        stop = self._stopped()
        for number, node in enumerate(self._spec.nodes):
            future = self._futures[number]
            result: NodeEnd | None = None
            failure: Failure | None = None
            if number in self._lost:
                ended.lost.add(node.worker)
                sentence = f"The Dask worker {node.worker} {self._lost[number]}."
                failure = _loss("WorkerLost", sentence, self._lost[number])
            elif future.done():
                try:
                    result = result_of(future)
                except Exception as error:
                    if future.cancelled() or is_cut_off(error):
                        sentence = "The connection to the Dask scheduler was closed."
                        failure = _loss("SchedulerLost", sentence, sentence)
                    else:
                        failure = describe_error(error)
                        ended.node_errors[node.first_rank] = error
            if result is not None:
                ended.ends += result.ends
                ended.errors |= result.errors
            else:
                ended.ends += self._unknown_ends(node, failure, stop)
        if stop and not self._reason:
            ended.reason = stop.reason
        return ended

    def _unknown_ends(
        self, node: Node, failure: Failure | None, stop: Stop | None
    ) -> list[RankEnd]:
        """Return ends of ranks of which their node reported nothing; no failure: they never ran."""
        reason = stop.reason if stop else "the gang did not come together"
        status = PartitionStatus.CANCELLED if failure is None else PartitionStatus.INTERNAL_ERROR
        return [
            RankEnd(
                rank=rank,
                host=node.worker,
                attempt=self._number,
                status=status,
                failure=failure,
                reason=reason if failure is None else "",
            )
            for rank in range(node.first_rank, node.first_rank + node.ranks)
        ]


def _loss(kind: str, sentence: str, reason: str) -> Failure:
    """Return the failure of ranks that may well have done nothing wrong."""
    fingerprint = fingerprint_failure(kind, reason)
    return Failure(error_type=kind, message=sentence, fingerprint=fingerprint, final=False)
