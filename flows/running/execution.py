"""What every flow does around its step: claim the run, shard the rows, run the shards, complete."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from distributed import Client
from prefect import Task
from prefect.exceptions import TerminationSignal
from prefect.futures import wait
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from partwise.engine.assignment import Execution, ShardAssignment, ShardReceipt, work_file
from partwise.engine.child_process import end_marked
from partwise.engine.credentials import SourceCredentials, StoreCredentials
from partwise.engine.driver import CANCELLED, Driver, Logger
from partwise.engine.limits import Limits, smallest_memory_limit
from partwise.engine.options import ExecutionOptions
from partwise.engine.params import shard_params
from partwise.engine.payload import name_of, pack_work
from partwise.engine.sample import SampleWork, predict, sample_of
from partwise.engine.works import Work
from partwise.errors import InputError, RunExistsError, RunNotFoundError
from partwise.flows.orchestration.progress import listeners
from partwise.flows.running.connections import (
    OpenedStore,
    connect,
    open_cluster,
    open_store,
    slots_per_host,
)
from partwise.flows.running.parameters import ClusterParameter, StoreParameter
from partwise.outcomes import PartitionStatus
from partwise.runs.claim import Claim, Identity, Intent, OnExisting
from partwise.runs.completion import Ending, UnfinishedShard, complete_run, settle_unchanged
from partwise.runs.documents import check_run_id
from partwise.runs.run import Run
from partwise.shuffle.load import read_keys
from partwise.shuffle.plan import ShardedRows, UnsortedShard, check_n_shards, default_n_shards
from partwise.shuffle.scratch import scratch_folder
from partwise.shuffle.shard_cache import open_cache
from partwise.shuffle.shared_folder import SharedFolder, table_bytes
from partwise.shuffle.skew import warnings_of
from partwise.shuffle.write import Division, NullKeys
from partwise.sources.descriptions import Source
from partwise.sources.files.remote_files import credentials_of
from partwise.store.store import Store
from partwise.tasks.load_partitions import load_partitions
from partwise.tasks.publish_report import publish_report

CANCEL_TIMEOUT_S = 10.0
SAMPLE = "-sample"
MOST_GROUPS = 64
"""Prefect task runs of a flow run, at most, besides the one that loads."""


ReadKeys = Callable[[UnsortedShard], pa.Table]
"""Gives the distinct keys of a shard."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that a flow knows before it touches a row."""

    identity: Identity
    store: StoreParameter
    source: Source
    work: Work
    function: Any
    """The user's function or trainer."""
    intent: Intent
    seed: int
    params: Any
    null_keys: NullKeys
    on_existing: OnExisting
    options: ExecutionOptions
    cluster: ClusterParameter
    n_shards: int | None = None
    """That of the training run, which the shards must meet."""
    models: dict[int, pa.Table] | None = None
    check_sharded: Callable[[ShardedRows, ReadKeys], None] | None = None
    """Refuses rows that do not do, once they are sharded."""


@dataclass(slots=True)
class _Clock:
    """Seconds of each stage."""

    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.stages[name] = time.monotonic() - began


def execute(plan: Plan, step: Task[..., list[ShardReceipt]]) -> Run:
    """Carry out a plan, and return the run as it then stands in the store.

    Args:
        plan: What is to be done.
        step: The Prefect task that runs a group of shards.
    """
    opened = open_store(plan.store)
    store, cluster = opened.store, open_cluster(plan.cluster)
    plan = as_sample(plan, store)
    clock = _Clock()
    logger = get_run_logger()
    run_id = plan.identity.run_id
    payload = pack_work(plan.work, name_of(plan.function))
    store.check_writable()
    with ExitStack() as stack:
        claim = stack.enter_context(Claim(store, plan.identity, plan.on_existing, flow_run.id))
        if claim.is_settled(plan.intent):
            claim.begin(n_shards=0, intent=plan.intent)
            logger.info("Run %s: nothing changed, all partitions are done; 0 to run.", run_id)
            return published(settle_unchanged(claim, clock.started_at))
        token = secrets.token_hex(6)
        directory = stack.enter_context(scratch_folder())
        with clock.stage("cluster"):
            stack.callback(end_marked, token)
            client = stack.enter_context(connect(cluster))
            give_keys(client, opened, plan.source)
        n_shards = choose_n_shards(plan, claim, client)
        (directory / "shared").mkdir()
        shared = cluster.shares_filesystem
        shared_folder = SharedFolder(directory / "shared", store, run_id, token, shared=shared)
        stack.callback(shared_folder.close)
        with clock.stage("load"):
            division = divide(plan, n_shards)
            about = plan.source.description()
            cache = stack.enter_context(open_cache(about, division, shared_folder))
            sharded: ShardedRows = load_partitions(
                plan.source, division, client, cache, shared_folder
            )
            check_rows(plan, sharded, partial(read_keys, shared_folder, division.key_columns))
        limits = plan.options.limits(slots_per_host(client))
        announce(plan, sharded, shared_folder, client, limits, logger)
        sharded, remark = take_sample(plan, sharded, client)
        params = shard_params(
            plan.params, plan.identity.key_columns, n_shards, directory / "shared"
        )
        claim.begin(n_shards=n_shards, intent=plan.intent)
        if reason := claim.why_nothing_counts(plan.intent):
            logger.warning("Run %s: %s", run_id, reason)
        execution = Execution(
            token=token,
            run_id=run_id,
            kind=plan.identity.kind,
            generation=claim.generation,
            store=store,
            key_columns=plan.identity.key_columns,
            seed=plan.seed,
            training_run_id=plan.identity.training_run_id,
            compatible=claim.compatible,
            options=plan.options,
            limits=limits,
            work=shared_folder.write(work_file(token), payload),
        )
        assignments = assign(plan, execution, sharded, shared_folder, params)
        with clock.stage(plan.identity.kind):
            driver, receipts = drive(plan, client, execution, assignments, sharded, step)
        with clock.stage("complete"):
            ending = describe_ending(plan, sharded, shared_folder, driver, receipts, clock)
            run = complete_run(claim, replace(ending, remark=remark))
        return published(run)


def published(run: Run) -> Run:
    """Have the run's report and artifacts made; without them it is complete all the same."""
    publish_report(run, return_state=True)
    return run


def choose_n_shards(plan: Plan, claim: Claim, client: Client) -> int:
    """Return the number of shards: the run's own, the training run's, the caller's, or a default.

    Raises:
        InputError: The caller asks for another number than the run has.
    """
    fixed = claim.existing.document.n_shards if claim.existing else plan.n_shards
    wanted = plan.options.n_shards
    if fixed is not None and wanted is not None and wanted != fixed:
        raise InputError(
            f"execution.n_shards is {wanted}, and the run {plan.identity.run_id!r} needs {fixed}, "
            "as it was begun with or as its training run has; leave n_shards out."
        )
    if fixed or wanted:
        return fixed or wanted or 1
    about = plan.source.description()
    slots = sum(client.nthreads().values())
    return default_n_shards(about.rows, about.size_bytes, slots)


def as_sample(plan: Plan, store: Store) -> Plan:
    """Return the plan of a dry run, where the options ask for one: a run beside the one planned."""
    if plan.options.sample is None:
        return plan
    # One that is resumed has its name already.
    run_id = check_run_id(f"{plan.identity.run_id.removesuffix(SAMPLE)}{SAMPLE}")
    refuse_real_run(run_id, store)
    return replace(
        plan,
        identity=replace(plan.identity, run_id=run_id),
        work=SampleWork(work=plan.work),
        on_existing="overwrite",
    )


def refuse_real_run(run_id: str, store: Store) -> None:
    """See to it that a dry run takes the place of no other run.

    Raises:
        RunExistsError: There is a run of this name, and it was no dry run.
    """
    try:
        document = Run.open(run_id, store).read_generation_document()
    except RunNotFoundError:
        return
    call: Any = document.call or document.call_known or {}
    if call.get("arguments", {}).get("execution", {}).get("sample") is None:
        raise RunExistsError(
            f"The dry run would be {run_id!r}, and there is a run of that name which was none: "
            "pass another run_id."
        )


def take_sample(
    plan: Plan, sharded: ShardedRows, client: Client
) -> tuple[ShardedRows, Callable[[pa.Table], str] | None]:
    """Return the partitions to run: all, or those of a dry run with what tells its prediction."""
    if plan.options.sample is None:
        return sharded, None
    slots = sum(client.nthreads().values())
    return sample_of(sharded, plan.options.sample), partial(predict, sharded=sharded, slots=slots)


def give_keys(client: Client, opened: OpenedStore, source: Source) -> None:
    """Give the workers the keys of the store, and of the buckets that rows are read from."""
    if opened.credentials:
        client.register_plugin(StoreCredentials(opened.store.url, opened.credentials))
    for bucket, keys in credentials_of(source.buckets()).items():
        client.register_plugin(SourceCredentials(bucket, keys))


def divide(plan: Plan, n_shards: int) -> Division:
    """Return how the rows are divided."""
    return Division(
        selection=plan.source.selection,
        key_columns=plan.identity.key_columns,
        n_shards=check_n_shards(n_shards),
        null_keys=plan.null_keys,
    )


def announce(
    plan: Plan,
    sharded: ShardedRows,
    shared_folder: SharedFolder,
    client: Client,
    limits: Limits,
    logger: Logger,
) -> None:
    """Say how many rows, partitions and shards there are, and what is odd about them."""
    logger.info(
        "Run %s: %s rows in %s partitions, %d shards.",
        plan.identity.run_id,
        f"{sharded.rows:,}",
        f"{sharded.partitions:,}",
        len(sharded.shards),
    )
    memory = smallest_memory_limit(client, limits)
    for warning in warnings_of(sharded, shared_folder, sum(client.nthreads().values()), memory):
        logger.warning("Run %s: %s", plan.identity.run_id, warning)


def check_rows(plan: Plan, sharded: ShardedRows, read_keys: ReadKeys) -> None:
    """See that the trainer, or the models, can do with the rows.

    Raises:
        ColumnError: A column that the trainer needs has no value at all.
        InputError: Models have no rows.
    """
    if hasattr(plan.function, "check"):
        names = tuple(column.name for column in plan.identity.key_columns)
        plan.function.check(sharded.schema, sharded.empty_columns, names)
    if plan.check_sharded is not None:
        plan.check_sharded(sharded, read_keys)


def assign(
    plan: Plan,
    execution: Execution,
    sharded: ShardedRows,
    shared_folder: SharedFolder,
    params: Mapping[int, str],
) -> list[ShardAssignment]:
    """Return what the workers are handed, a value for each shard."""
    models = {
        number: shared_folder.write(f"models-{number:05d}.arrow", table_bytes(table))
        for number, table in (plan.models or {}).items()
    }
    return [
        ShardAssignment(
            execution=execution,
            shard=shard,
            where=shared_folder.where,
            only=sharded.only,
            params=shared_folder.hand_over(params[shard.number])
            if shard.number in params
            else None,
            models=models.get(shard.number),
        )
        for shard in sharded.shards
    ]


def drive(
    plan: Plan,
    client: Client,
    execution: Execution,
    assignments: list[ShardAssignment],
    sharded: ShardedRows,
    step: Task[..., list[ShardReceipt]],
) -> tuple[Driver, list[ShardReceipt]]:
    """Run all shards, as Prefect task runs over groups of them."""
    with (
        listeners(plan.identity.run_id, sharded.partitions) as heard_by,
        Driver(client, execution, assignments, sharded.partitions, heard_by) as driver,
    ):
        futures = [step.submit(group, driver) for group in driver.groups(MOST_GROUPS)]
        try:
            wait(futures)
        except (KeyboardInterrupt, TerminationSignal):
            driver.stop(CANCELLED)
            wait(futures, timeout=CANCEL_TIMEOUT_S)
        receipts = [receipt for future in futures for receipt in future.result()]
    return driver, receipts


def describe_ending(
    plan: Plan,
    sharded: ShardedRows,
    shared_folder: SharedFolder,
    driver: Driver,
    receipts: Sequence[ShardReceipt],
    clock: _Clock,
) -> Ending:
    """Put together how the execution ended."""
    by_shard = {receipt.shard: receipt for receipt in receipts}
    unfinished = []
    partitions = sum(receipt.partitions for receipt in receipts)
    for shard in sharded.shards:
        receipt = by_shard.get(shard.number)
        if receipt is not None and receipt.complete:
            continue
        keys = read_keys(shared_folder, plan.identity.key_columns, shard, sharded.only)
        partitions += keys.num_rows if receipt is None else 0
        lost = driver.lost.get(shard.number)
        unfinished.append(
            UnfinishedShard(
                shard=shard.number,
                keys=keys,
                status=PartitionStatus.INTERNAL_ERROR if lost else PartitionStatus.CANCELLED,
                reason=lost or driver.stopped or CANCELLED,
            )
        )
    failed = sum(receipt.counts.get(PartitionStatus.FAILED.value, 0) for receipt in receipts)
    return Ending(
        partitions=partitions,
        unfinished=tuple(unfinished),
        stopped=driver.stopped or driver.exceeds_budget(failed),
        rows=sharded.rows,
        dropped_rows=sharded.dropped_rows,
        started_at=clock.started_at,
        stages=clock.stages,
    )
