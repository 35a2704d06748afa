"""Whether a cluster and its workers are still there, for drivers that wait for them."""

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from partwise.cluster_calls import (
    ANSWER_S,
    RECONNECT_S,
    RESTART_S,
    ask_workers,
    no_answer,
    on_thread,
    scheduler_identity,
)
from partwise.engine.limits import SILENCE_S
from partwise.engine.scaling import other_version, own_version
from partwise.errors import ClusterError
from partwise.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

LOOK_S = 0.5
"""So often the scheduler is asked about the workers; of many workers, less often."""
NO_WORKERS_S = 120.0
"""Without a worker for so long, a run gives up."""
SCHEDULER_S = 30.0
"""Without an answer of the scheduler for so long, a run gives up."""
_LARGEST_STEP_S = 4 * LOOK_S

logger = logging.getLogger(__name__)
Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


class ClusterWatch:
    """Looks at a cluster twice a second, on a thread of its own, so that no other waits for it.

    A worker that is not heard of for a while (stopped, swapping, cut off) is let go: its nanny, if
    that answers, kills it and starts another one in its place, and the scheduler gives its tasks to
    others, as if it had died.
    """

    def __init__(
        self,
        client: "Client",
        run_id: str,
        silence_s: float | None = SILENCE_S,
        log: Logger = logger,
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._silence_s = silence_s
        self._log = log
        self._error: ClusterError | None = None
        self._refusal: ClusterError | None = None
        """Of a worker that came with another version of partwise."""
        self._workers: dict[str, dict[str, Any]] = {}
        self._asked_at = 0.0
        self._last_worker = self._answered = self._connected = time.monotonic()
        self._watched_s = 0.0
        self._heard: dict[str, tuple[float, float]] = {}
        self._let_go: set[str] = set()
        self._folders: dict[str, str] = {}
        """The folder that the last worker of each address has: no two have the same."""
        self._replaced: dict[str, float] = {}
        """When another worker was seen first at an address, as of `time.monotonic`."""
        self._ended = threading.Event()
        self.give_keys: Callable[[], None] = lambda: None
        """Gives the scheduler what it has to have before any task; again where it is another."""
        self._joining = threading.Lock()

    def __enter__(self) -> "ClusterWatch":
        self._asked_at = time.monotonic()
        self._connection = self._client.scheduler_comm
        identity = scheduler_identity(self._client)
        self._scheduler_id: str = identity["id"]
        self._take(identity["workers"], 0.0)
        threading.Thread(target=self._follow, daemon=True, name="partwise-watch").start()
        return self

    def __exit__(self, *exception: object) -> None:
        # Not waited for: it may be in a call that a stopped scheduler does not answer.
        self._ended.set()

    def look(self) -> None:
        """Give up on a cluster that went away; returns at once, unless it has just come back.

        Raises:
            ClusterError: It is gone, and not back within 45 s; its scheduler has not answered
                for half a minute; or it has had no worker for two minutes. A worker has joined it
                that has another version of partwise.
        """
        status, now = self._client.status, time.monotonic()
        if status == "running":
            self._connected = now
            if self._client.scheduler_comm is not self._connection:
                self._join_again()
        # Of many workers the last answer may be older than the connection that was lost.
        elif status == "connecting" and now - max(self._connected, self._answered) < self._limit():
            return
        else:
            raise ClusterError(
                f"The connection to the Dask scheduler is lost ({status}); resume the "
                f"run {self._run_id!r} when the cluster is back."
            )
        if error := self._refusal or self._error:
            raise error

    def _limit(self) -> float:
        """Return for how long a connection that was closed is waited for."""
        # After a silence it is one of a network that is cut, and not of a scheduler that ended.
        return RECONNECT_S if self._connected - self._answered > RECONNECT_S else RESTART_S

    def _join_again(self) -> None:
        """Give a scheduler that was started again what it lacks, before it is sent any task."""
        with self._joining:
            connection = self._client.scheduler_comm
            if connection is self._connection:
                return
            scheduler_id = scheduler_identity(self._client)["id"]
            if scheduler_id != self._scheduler_id:
                self._log.warning(
                    "Run %s: the Dask scheduler was started again: what was lost with it is begun "
                    "once more.",
                    self._run_id,
                )
                self.give_keys()
                self._scheduler_id = scheduler_id
            # Its workers have to come again, too.
            self._answered = self._last_worker = time.monotonic()
            self._error = None
            self._connection = connection

    def clock(self) -> float:
        """Return for how many seconds the cluster has been seen, by which silence is measured.

        While this process was stopped itself, or the scheduler was, nobody could be heard.
        """
        return self._watched_s

    def workers(self) -> dict[str, float]:
        """Return for how many seconds nothing was heard of each worker, by address."""
        return {
            address: self._watched_s - self._heard[address][1] for address in list(self._workers)
        }

    def has_lost(self, address: str, since: float) -> bool:
        """Whether a worker is gone that was there at a moment, as of `time.monotonic`.

        One that has only just come may be missing in what was last seen: that says nothing of it.
        """
        is_gone = address not in self._workers or self.is_another(address, since)
        return self._asked_at > since and is_gone

    def is_another(self, address: str, since: float) -> bool:
        """Whether an address is that of another worker than at a moment, as of `time.monotonic`.

        So it is where a worker that has died is begun again, and has a port that was set.
        """
        return self._replaced.get(address, since) > since

    def let_go(self, address: str, silent_s: float) -> None:
        """Have the work of a worker that has been silent for so long done by others.

        Returns at once.
        """
        if address not in self._workers or address in self._let_go:
            return
        self._let_go.add(address)
        self._log.warning(
            "Run %s: nothing is heard of the worker %s for %s: others take over its work.",
            self._run_id,
            address,
            duration(silent_s),
        )
        threading.Thread(target=self._restart, args=(address,), daemon=True).start()

    def _restart(self, address: str) -> None:
        """Have the nanny of a worker kill it and start another one; else the scheduler drops it."""
        scheduler: Any = self._client.scheduler
        with contextlib.suppress(Exception):
            self._client.sync(
                scheduler.restart_workers,
                workers=[address],
                timeout=ANSWER_S,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"partwise-silence-{time.time()}",
                callback_timeout=3 * ANSWER_S,
            )
        # Of an address that is still there, and still silent, it is tried again.
        self._let_go.discard(address)

    def _follow(self) -> None:
        began = time.monotonic()
        # However many they are, a scheduler that does not answer is asked again, and then given up.
        while not self._ended.wait(max(LOOK_S, min(len(self._workers) / 200, SCHEDULER_S / 3))):
            asked_at = time.monotonic()
            try:
                identity = scheduler_identity(self._client)
            except ClusterError:
                silent_s = time.monotonic() - self._answered
                self._error = no_answer(silent_s) if silent_s > SCHEDULER_S else None
            except Exception:
                # The connection is lost, which its status tells.
                logger.debug("could not look at the cluster", exc_info=True)
            else:
                self._answered = time.monotonic()
                known = dict(self._folders)
                self._take(identity["workers"], self._answered - began)
                # On a thread of its own, as one that hangs at once keeps its answer back. Those
                # that were there before have been asked when they were counted.
                came = [each for each, had in self._folders.items() if known.get(each) != had]
                if came:
                    on_thread("partwise-version", self._refuse_others, came)
                # Last: who reads it, then reads workers that are at least as new.
                self._asked_at = asked_at
            began = time.monotonic()

    def _refuse_others(self, addresses: list[str]) -> None:
        """Give up where one of the workers that have come has another version of partwise."""
        ours = own_version()
        for address, version in ask_workers(self._client, own_version, workers=addresses).items():
            # One without partwise, or that is gone again, answers with an error.
            if isinstance(version, str) and version != ours:
                self._refusal = other_version(f"The Dask worker {address}", version)

    def _take(self, workers: dict[str, dict[str, Any]], step_s: float) -> None:
        # A long step says that this process, or the scheduler, was held up, and not the workers.
        self._watched_s += min(step_s, max(_LARGEST_STEP_S, len(workers) / 50))
        now = time.monotonic()
        for address, worker in workers.items():
            # By the scheduler's clock: only that it has changed counts, and never how old it is.
            seen = float(worker["last_seen"])
            if self._heard.get(address, (0.0, 0.0))[0] != seen:
                self._heard[address] = (seen, self._watched_s)
            folder = worker.get("local_directory", "")
            if self._folders.setdefault(address, folder) != folder:
                self._folders[address], self._replaced[address] = folder, now
        self._workers = workers
        if workers:
            self._last_worker = now
        elif now - self._last_worker > NO_WORKERS_S:
            self._error = ClusterError(
                f"The Dask cluster has had no worker for {NO_WORKERS_S:.0f} s; resume the run "
                f"{self._run_id!r} when it has."
            )
        if self._silence_s is not None:
            for address, silent_s in self.workers().items():
                if silent_s > self._silence_s:
                    self.let_go(address, silent_s)
