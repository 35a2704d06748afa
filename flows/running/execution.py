"""What every flow does around its step: claim the run, shard the rows, run the shards, complete."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from distributed import Client, WorkerPlugin
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run

from partwise.cluster_calls import ANSWER_S, in_time
from partwise.engine.assignment import Execution, ShardAssignment, ShardReceipt, work_file
from partwise.engine.child_process import end_marked
from partwise.engine.cluster_watch import ClusterWatch, Logger
from partwise.engine.credentials import Credentials, SigningKeys
from partwise.engine.driver import Driver
from partwise.engine.ending import describe_ending
from partwise.engine.limits import smallest_memory_limit
from partwise.engine.packages import build_on_workers
from partwise.engine.params import shard_params
from partwise.engine.payload import name_of, pack_work
from partwise.engine.plan import Plan
from partwise.engine.sample import predict, sample_of
from partwise.engine.scaling import partition_slots
from partwise.flows.orchestration.interruption import note_work
from partwise.flows.orchestration.progress import listeners, told_every
from partwise.flows.orchestration.summary_log import log_summary
from partwise.flows.running.connections import (
    connect,
    open_cluster,
    open_store,
    workers_at_most,
)
from partwise.flows.running.parameters import ClusterParameter, StoreParameter
from partwise.formatting import counted, duration
from partwise.outcomes import CANCELLED, RunStatus
from partwise.runs.claim import Claim, Intent
from partwise.runs.completion import complete_run, settle_unchanged
from partwise.runs.run import Run
from partwise.shuffle.load import read_keys
from partwise.shuffle.plan import ShardedRows
from partwise.shuffle.scratch import run_scratch
from partwise.shuffle.shard_cache import open_cache
from partwise.shuffle.shared_folder import SharedFolder
from partwise.shuffle.size_warnings import warnings_of
from partwise.sources.descriptions import Source
from partwise.store.credentials import known_credentials
from partwise.store.signing import is_configured, signing_keys_text
from partwise.store.store import Store
from partwise.tasks.load_partitions import load_partitions
from partwise.tasks.publish_report import publish_report
from partwise.tasks.run_shards import step_of
from partwise.tasks.steps import await_steps, begin_step, run_logger, run_step, try_step

CANCEL_TIMEOUT_S = 2.0
"""For so long a run that is cancelled waits for workers to commit what they have."""
MOST_GROUPS = 64
"""Prefect task runs of a flow run, at most, besides the one that loads."""


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


def execute(plan: Plan, store: StoreParameter, cluster: ClusterParameter) -> Run:
    """Carry out a plan, and return the run as it then stands in the store.

    The order is what makes it safe. Whatever can be refused is refused before the claim; the claim
    keeps every other process away; a generation begins only once the rows are sharded, so that rows
    that cannot be read leave the run as it was; the summary is written last, and only by who still
    holds the claim.

    Args:
        plan: What is to be done.
        store: The artifact store, as the caller names it.
        cluster: The Dask cluster, likewise.
    """
    opened_store, chosen_cluster = open_store(store), open_cluster(cluster)
    plan = plan.as_sample(opened_store)
    clock, logger, identity = Clock(), run_logger(), plan.identity
    payload = pack_work(plan.work, name_of(plan.function))
    opened_store.check_writable()
    with ExitStack() as stack:
        claim = stack.enter_context(Claim(opened_store, identity, plan.on_existing, flow_run.id))
        if settled := settle_if_done(claim, plan.intent, clock):
            return settled
        token = secrets.token_hex(6)
        directory = stack.enter_context(run_scratch()) / "shared"
        directory.mkdir()
        with clock.stage("cluster"):
            # Called once the client has left: it ends child processes that outlived their worker.
            stack.callback(end_marked, token)
            client = stack.enter_context(connect(chosen_cluster))
            watch = stack.enter_context(
                ClusterWatch(client, identity.run_id, plan.options.silence_s, logger)
            )
            give_keys(client, opened_store, plan.source)
        if plan.environment is not None:
            with clock.stage("environment"):
                build_on_workers(client, plan.environment)
        options = plan.options
        slots = partition_slots(
            workers_at_most(chosen_cluster, client), options.partition_cpus, options.partition_gpus
        )
        n_shards = plan.choose_n_shards(claim, len(slots))
        folder = SharedFolder(
            directory,
            opened_store,
            identity.run_id,
            token,
            shared=chosen_cluster.shares_filesystem,
        )
        stack.callback(folder.close)
        with clock.stage("load"):
            sharded = _load(plan, n_shards, client, folder, stack, watch)
        limits = options.limits_on(slots)
        memory = smallest_memory_limit(client, limits)
        _announce(plan, sharded, folder, len(slots), memory, logger)
        totals = {"all_rows": sharded.rows, "all_partitions": sharded.partitions}
        remark = None
        if plan.options.sample is not None:
            remark = partial(predict, sharded=sharded, slots=len(slots))
            sharded = sample_of(sharded, plan.options.sample)
        elif plan.choose is not None:
            sharded = plan.choose(sharded)
        params = shard_params(plan.params, identity.key_columns, n_shards, directory)
        chosen = sharded.partitions if sharded.only is None else len(sharded.only)
        note_work()
        claim.begin(n_shards=n_shards, intent=plan.intent, partitions=chosen)
        if reason := claim.why_nothing_counts(plan.intent):
            logger.warning("Run %s: %s", identity.run_id, reason)
        execution = Execution(
            token=token,
            run_id=identity.run_id,
            kind=identity.kind,
            generation=claim.generation,
            store=opened_store,
            key_columns=identity.key_columns,
            seed=plan.seed,
            training_run_id=identity.training_run_id,
            reads=plan.reads,
            compatible=claim.compatible,
            options=options,
            limits=limits,
            work=folder.write(work_file(token), payload),
            environment=plan.environment,
            is_signed=is_configured(),
            **totals,
        )
        assignments = plan.assign(execution, sharded, folder, params)
        with clock.stage(identity.kind):
            driver, receipts = _drive(client, execution, assignments, sharded, watch)
        for sentence in (text for receipt in receipts for text in receipt.damaged):
            logger.warning("Run %s: %s", identity.run_id, sentence)
        with clock.stage("complete"):
            ending = describe_ending(
                driver,
                receipts,
                sharded,
                lambda shard: read_keys(folder, identity.key_columns, shard, sharded.only),
                started_at=clock.started_at,
                stages=clock.stages,
                remark=remark,
            )
            run = complete_run(claim, ending)
        return publish_run(run)


def settle_if_done(claim: Claim, intent: Intent, clock: Clock) -> Run | None:
    """Return the run where a resume of it has nothing to do; None where it has."""
    if not claim.is_settled(intent):
        return None
    note_work()
    claim.begin(n_shards=0, intent=intent)
    run_logger().info(
        "Run %s: nothing changed, all partitions are done; 0 to run.", claim.identity.run_id
    )
    return publish_run(settle_unchanged(claim, clock.started_at))


def publish_run(run: Run) -> Run:
    """Have the run's report and artifacts made; without them it is complete all the same."""
    if run.summary is not None and run.status is RunStatus.SKIPPED:
        run_logger().warning("Run %s: %s", run.run_id, run.summary.message)
    try_step(publish_report, run)
    log_summary(run_logger(), run)
    return run


def give_keys(client: Client, store: Store, *sources: Source, buckets: Sequence[str] = ()) -> None:
    """Give the workers the keys of the store and of what is read, and those that sign."""
    of_rows = [bucket for source in sources for bucket in source.buckets()]
    known = known_credentials([store.url, *of_rows, *buckets])
    plugins: list[WorkerPlugin] = [Credentials(url, keys) for url, keys in known.items()]
    if keys := signing_keys_text():
        plugins.append(SigningKeys(keys))
    for plugin in plugins:
        # The scheduler has them then for all workers; one that hangs gets them when it goes on.
        with suppress(TimeoutError):
            in_time(ANSWER_S, client.register_plugin, plugin)


def _load(
    plan: Plan,
    n_shards: int,
    client: Client,
    folder: SharedFolder,
    stack: ExitStack,
    watch: ClusterWatch,
) -> ShardedRows:
    """Have workers divide the rows into shards, and see that the run can work with them."""
    division = plan.divide(n_shards)
    # Its part files are in use until the run ends: the stack is that of the whole execution.
    cache = stack.enter_context(open_cache(plan.source.description(), division, folder))
    began = time.monotonic()

    def describe() -> str:
        return f"its rows are divided into shards since {duration(time.monotonic() - began)}"

    with told_every(plan.options.report_interval_s, run_logger(), plan.identity.run_id, describe):
        sharded = run_step(
            load_partitions, plan.source, division, client, cache, folder, watch.look
        )
    plan.check_rows(sharded, partial(read_keys, folder, division.key_columns))
    return sharded


def _announce(
    plan: Plan,
    sharded: ShardedRows,
    folder: SharedFolder,
    slots: int,
    memory: int,
    logger: Logger,
) -> None:
    """Log how many rows, partitions and shards there are, and what is odd about them."""
    logger.info(
        "Run %s: %s in %s, %s.",
        plan.identity.run_id,
        counted(sharded.rows, "row"),
        counted(sharded.partitions, "partition"),
        _shards_in_words(sharded),
    )
    for warning in warnings_of(sharded, folder, slots, memory):
        logger.warning("Run %s: %s", plan.identity.run_id, warning)


def _shards_in_words(sharded: ShardedRows) -> str:
    used = len(sharded.shards)
    of_all = "" if used == sharded.n_shards else f"{used} of "
    return f"{of_all}{counted(sharded.n_shards, 'shard')}"


def _drive(
    client: Client,
    execution: Execution,
    assignments: list[ShardAssignment],
    sharded: ShardedRows,
    watch: ClusterWatch,
) -> tuple[Driver, list[ShardReceipt]]:
    """Run all shards, as steps over groups of them."""
    step = step_of(execution.kind)
    with (
        listeners(execution.run_id, sharded.partitions) as heard_by,
        Driver(client, execution, assignments, sharded.partitions, watch, heard_by) as driver,
        told_every(
            execution.options.report_interval_s,
            run_logger(),
            execution.run_id,
            driver.longest,
        ),
    ):
        steps = [begin_step(step, group, driver) for group in driver.groups(MOST_GROUPS)]
        try:
            await_steps(steps)
        except (KeyboardInterrupt, TerminationSignal):
            # Workers commit what they have; the run is then completed as cancelled, not left open.
            driver.stop(CANCELLED, CANCEL_TIMEOUT_S)
        receipts = [receipt for begun in steps for receipt in begun.result()]
    return driver, receipts
