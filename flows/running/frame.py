"""What is the same around the work of every run: its claim, its cluster, its generation, its end.

Shards, gangs and studies say what they load, and how it is worked on. The order is what makes it
safe. What can be refused is refused before the claim; the claim keeps every other process away;
a generation begins only once the rows are at hand, so that rows that cannot be read leave the run
as it was; the summary is written last, and only by who still holds the claim. A driver that dies in
between leaves a run without an end, which a resume goes on with.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa

from partwise.blocks import LocalCluster
from partwise.choices import OnExisting
from partwise.cluster_calls import ANSWER_S, answer_of, in_time, is_cut_off
from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.engine.driver.packages import build_on_workers
from partwise.engine.driver.preloading import preload_here
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.child import end_marked
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ClusterError, IntegrityError, StoreError
from partwise.flows.orchestration.block_parameters import Cluster
from partwise.flows.orchestration.interruption import (
    CancelRequested,
    interruption_here,
    note_claim,
    note_end,
    note_work,
)
from partwise.flows.orchestration.summary_log import log_summary
from partwise.flows.orchestration.ui_cancel import cancelled_in_ui
from partwise.flows.running.connections import connect
from partwise.outcomes import RunStatus
from partwise.processes.warm_server import Preloaded
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import settle_unchanged
from partwise.runs.documents import execution_token
from partwise.runs.output_types import unfit_types
from partwise.runs.outputs import output_schemas
from partwise.runs.run import Run
from partwise.shuffle.scratch import run_scratch
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.descriptions import Source
from partwise.store.credentials import known_credentials
from partwise.store.signing import signing_keys_text
from partwise.store.store import Store
from partwise.tasks.flow_run import flow_run_id
from partwise.tasks.publish_report import publish_report
from partwise.tasks.steps import run_logger, try_step

if TYPE_CHECKING:
    from distributed import Client, WorkerPlugin

CANCEL_TIMEOUT_S = 2.0
"""For so long a run that is cancelled waits for workers to commit what they have."""


class Planned(Protocol):
    """What the plans of shards, gangs and studies have in common."""

    @property
    def identity(self) -> Identity:
        """What the run is, and stays."""

    @property
    def intent(self) -> Intent:
        """What the call is about to do."""

    @property
    def on_existing(self) -> OnExisting:
        """What becomes of a run that exists."""

    @property
    def environment(self) -> ResolvedEnvironment | None:
        """Packages that come before the workers' own; None: there are none."""


@dataclass(slots=True)
class Clock:
    """Seconds of each stage."""

    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.stages[name] = time.monotonic() - began


class Frame:
    """A run at work: while it is entered, the run is claimed."""

    def __init__(self, plan: Planned, store: Store, cluster: Cluster) -> None:
        self.store, self.cluster = store, cluster
        self.clock, self.logger, self.stack = Clock(), run_logger(), ExitStack()
        self._plan = plan
        self._is_to_end = threading.Event()

    def __enter__(self) -> Self:
        plan = self._plan
        self.store.check_writable()
        with ExitStack() as stack:
            note = self._note_cancels()
            self.claim = stack.enter_context(
                Claim(self.store, plan.identity, plan.on_existing, flow_run_id(), note)
            )
            stack.enter_context(cancelled_in_ui(note))
            self.token = execution_token(self.claim.next_generation, secrets.token_hex(4))
            note_claim()
            # Only now: what fails above gives the claim back.
            self.stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stack.__exit__(kind, error, trace)  # type: ignore[arg-type]
        if error is not None and is_cut_off(error):
            raise ClusterError(
                "The connection to the Dask scheduler was closed, and what the cluster was at is "
                f"lost; resume the run {self._plan.identity.run_id!r}."
            ) from error

    def _note_cancels(self) -> Callable[[], None]:
        """Return what notes, from any thread, that somebody asked for the end of the run."""
        interruption = interruption_here()

        def note() -> None:
            self._is_to_end.set()
            # A call that hangs, and so never looks, is interrupted as one is on Ctrl-C.
            if interruption is not None:
                interruption.begin()

        return note

    def check(self) -> None:
        """Raise what Ctrl-C raises where somebody asked for the end of the run."""
        if self._is_to_end.is_set():
            raise CancelRequested

    def look(self) -> None:
        """See that nobody asked for the end of the run, and that the cluster is there."""
        self.check()
        self.watch.look()

    def settle_if_done(self) -> Run | None:
        """Return the run where a resume of it has nothing to do; None where it has."""
        claim, intent = self.claim, self._plan.intent
        if not claim.is_settled(intent):
            return None
        note_work()
        claim.begin(n_shards=0, intent=intent)
        self.logger.info(
            "Run %s: nothing changed, all partitions are done; 0 to run.", claim.identity.run_id
        )
        return publish_run(settle_unchanged(claim, self.clock.started_at))

    def connect(
        self, *sources: Source, silence_s: float | None, buckets: Sequence[str] = ()
    ) -> "Client":
        """Connect to the cluster, look at it from now on, and give it the keys that it needs.

        `sources` and `buckets` are what workers read; after `silence_s` seconds of silence a worker
        is let go (None: never).
        """
        # Removed last, when all that works in it has ended.
        self.directory = self.stack.enter_context(run_scratch()) / "shared"
        self.directory.mkdir()
        with self.clock.stage("cluster"):
            # Called once the client has left: it ends processes that outlived their worker.
            self.stack.callback(end_marked, self.token)
            client = self.stack.enter_context(connect(self.cluster))
            watch = ClusterWatch(client, self._plan.identity.run_id, silence_s, self.logger)
            self.watch = self.stack.enter_context(watch)
            watch.give_keys = partial(_give_keys, client, self.store, sources, buckets)
            watch.give_keys()
        return client

    def preload(self, modules: tuple[str, ...], options: ExecutionOptions) -> Preloaded:
        """Begin to load what children find loaded, where their workers will be started here."""
        is_plain = options.gpus is None and self._plan.environment is None
        if is_plain and isinstance(self.cluster, LocalCluster):
            return preload_here(modules, options.cpus)
        return Preloaded(modules=modules)

    def open_folder(self, client: "Client") -> SharedFolder:
        """Return the folder for what workers are to see, once they have the run's environment."""
        plan = self._plan
        if plan.environment is not None:
            with self.clock.stage("environment"):
                build_on_workers(client, plan.environment, self.watch)
        folder = SharedFolder(
            self.directory,
            self.store,
            plan.identity.run_id,
            self.token,
            shared=self.cluster.shares_filesystem,
        )
        self.stack.callback(folder.close)
        return folder

    def begin(
        self,
        *,
        n_shards: int,
        partitions: int,
        keys: pa.Table | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        """Begin the generation: from here on the run is changed.

        `n_shards` counts if the run is new. The others are what it is to work on, as `Claim.begin`
        has them.
        """
        note_work()
        self.claim.begin(
            n_shards=n_shards,
            intent=self._plan.intent,
            partitions=partitions,
            keys=keys,
            rows=rows,
        )
        if reason := self.claim.why_nothing_counts(self._plan.intent):
            self.logger.warning("Run %s: %s", self._plan.identity.run_id, reason)
        if kept := self.claim.kept_of_other_code(self._plan.intent):
            self.logger.warning("Run %s: %s", self._plan.identity.run_id, kept)


def publish_run(run: Run) -> Run:
    """Have the run's report and artifacts made; without them it is complete all the same."""
    note_end(run)
    if run.summary is not None and run.status is RunStatus.SKIPPED:
        run_logger().warning("Run %s: %s", run.run_id, run.summary.message)
    try_step(publish_report, run)
    _tell_unfit_types(run)
    # After the report, which the summary names where it is there.
    log_summary(run_logger(), run)
    return run


def _tell_unfit_types(run: Run) -> None:
    """Say at once what would be found out when somebody reads the rows as one table."""
    if run.kind not in ("infer", "map"):
        return
    # The run is complete; who reads its rows learns what is wrong with them.
    with suppress(IntegrityError, StoreError):
        if unfit := unfit_types(run.ledger, output_schemas(run)):
            run_logger().warning(
                "Run %s: the rows of all partitions do not go into one table: %s.",
                *(run.run_id, unfit),
            )


def _give_keys(
    client: "Client", store: Store, sources: Sequence[Source], buckets: Sequence[str]
) -> None:
    """Give the workers the keys of the store and of what is read, and those that sign."""
    of_rows = [bucket for source in sources for bucket in source.buckets()]
    from partwise.engine.driver.credentials import Credentials, SigningKeys

    known = known_credentials([store.url, *of_rows, *buckets])
    plugins: list[WorkerPlugin] = [Credentials(url, keys) for url, keys in known.items()]
    if keys := signing_keys_text(store):
        plugins.append(SigningKeys(store, keys))
    for plugin in plugins:
        # The scheduler has them then for all workers; one that hangs gets them when it goes on.
        with suppress(TimeoutError):
            answer_of(client, partial(in_time, ANSWER_S, client.register_plugin, plugin))
