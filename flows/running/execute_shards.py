"""What a run of partitions does: shard the rows, run the shards, complete."""

import time
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from partwise.engine.assignment import Execution, ShardAssignment, ShardReceipt, work_file
from partwise.engine.driver.cluster_watch import Logger
from partwise.engine.driver.ending import describe_ending
from partwise.engine.driver.params import shard_params
from partwise.engine.driver.payload import full_name_of, name_of, pack_work
from partwise.engine.driver.plan import Plan
from partwise.engine.driver.shards import Driver
from partwise.engine.limits import smallest_memory_limit
from partwise.engine.sample import predict, sample_of
from partwise.engine.scaling import partition_slots
from partwise.flows.orchestration.block_parameters import ClusterParameter, StoreParameter
from partwise.flows.orchestration.interruption import interrupts
from partwise.flows.orchestration.progress import listeners, told_every
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_cluster, workers_at_most
from partwise.flows.running.frame import CANCEL_TIMEOUT_S, Frame, publish_run
from partwise.formatting import counted, duration
from partwise.outcomes import CANCELLED
from partwise.runs.completion import complete_run
from partwise.runs.run import Run
from partwise.shuffle.plan import ShardedRows
from partwise.shuffle.shard_cache import open_cache
from partwise.shuffle.shared_folder import SharedFolder
from partwise.shuffle.size_warnings import warnings_of
from partwise.store.signing import is_configured
from partwise.tasks.load_partitions import load_partitions
from partwise.tasks.run_shards import step_of
from partwise.tasks.steps import await_steps, begin_step, run_step, value_of

if TYPE_CHECKING:
    from distributed import Client

MOST_GROUPS = 64
"""Prefect task runs of a flow run, at most, besides the one that loads."""


def execute(plan: Plan, store: StoreParameter, cluster: ClusterParameter) -> Run:
    """Carry out a plan, and return the run as it then stands in the store.

    The order of the steps is that of `partwise.flows.running.frame`.
    """
    opened_store = open_store(store)
    plan = plan.as_sample(opened_store)
    # What cannot be sent is refused here, before the run is claimed.
    payload = pack_work(plan.work, name_of(plan.function))
    identity, options = plan.identity, plan.options
    with Frame(plan, opened_store, open_cluster(cluster, options.gpus)) as frame:
        if settled := frame.settle_if_done():
            return settled
        clock, claim = frame.clock, frame.claim
        # Before the cluster starts: the children of its workers are to find them loaded.
        preloaded = frame.preload(plan.named_modules(), options)
        client = frame.connect(plan.source, silence_s=options.silence_s)
        folder = frame.open_folder(client)
        slots = partition_slots(workers_at_most(frame.cluster, client), options.cpus, options.gpus)
        n_shards = plan.choose_n_shards(claim, len(slots))
        with clock.stage("load"):
            sharded = _load(plan, n_shards, client, folder, frame)
        limits = options.limits_on(slots)
        memory = smallest_memory_limit(client, limits)
        _announce(plan, sharded, len(slots), memory, frame.logger)
        # Before some are chosen: a share of the run's budget is one of all rows.
        totals = {"all_rows": sharded.rows, "all_partitions": sharded.partitions}
        remark = partial(_note, claim.kept_of_other_code(plan.intent))
        if options.sample is not None:
            remark = partial(predict, sharded=sharded, slots=len(slots))
            sharded = sample_of(sharded, options.sample)
        elif plan.choose is not None:
            sharded = plan.choose(sharded)
        params = shard_params(plan.params, identity.key_columns, n_shards, frame.directory)
        chosen = sharded.partitions if sharded.only is None else len(sharded.only)
        frame.begin(n_shards=n_shards, partitions=chosen, keys=sharded.keys, rows=sharded.key_rows)
        # Of a million keys, merging and writing leave Arrow with 90 MiB that it keeps for itself.
        pa.default_memory_pool().release_unused()
        execution = Execution(
            token=frame.token,
            run_id=identity.run_id,
            kind=identity.kind,
            generation=claim.generation,
            store=opened_store,
            key_columns=identity.key_columns,
            seed=plan.seed,
            reads=plan.reads,
            compatible=claim.compatible,
            keeps_done=claim.keeps_done,
            options=options,
            limits=limits,
            work=folder.write(work_file(frame.token), payload),
            work_name=full_name_of(plan.function, *identity.models),
            preloaded=preloaded,
            environment=plan.environment,
            compares_models=plan.compares_models,
            without_model=plan.without_model,
            is_signed=is_configured(opened_store),
            **totals,
        )
        assignments = plan.assign(execution, sharded, folder, params)
        with clock.stage(identity.kind):
            driver, receipts = _drive(client, execution, assignments, sharded, frame)
        for sentence in (text for receipt in receipts for text in receipt.damaged):
            frame.logger.warning("Run %s: %s", identity.run_id, sentence)
        with clock.stage("complete"):
            ending = describe_ending(
                driver,
                receipts,
                sharded,
                started_at=clock.started_at,
                stages=clock.stages,
                remark=remark,
            )
            run = complete_run(claim, ending)
        return publish_run(run)


def _note(text: str, _: pa.Table) -> str:
    """Return what to report besides, whatever became of the partitions."""
    return text


def _load(
    plan: Plan,
    n_shards: int,
    client: "Client",
    folder: SharedFolder,
    frame: Frame,
) -> ShardedRows:
    """Have workers divide the rows into shards, and see that the run can work with them."""
    division = plan.divide(n_shards)
    # Its part files are in use until the run ends: the stack is that of the whole execution.
    cache = frame.stack.enter_context(open_cache(plan.source.description(), division, folder))
    began = time.monotonic()

    def describe() -> str:
        return f"its rows are divided into shards since {duration(time.monotonic() - began)}"

    with told_every(plan.options.report_interval_s, plan.identity.run_id, describe):
        sharded = run_step(
            load_partitions, plan.source, division, client, cache, folder, frame.look
        )
    plan.check_rows(sharded)
    return sharded


def _announce(
    plan: Plan,
    sharded: ShardedRows,
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
    only = plan.source.selection.only
    if only is not None and (without := len(only.hashes) - sharded.partitions):
        logger.warning(
            "Run %s: %s of the %s chosen have no rows.",
            plan.identity.run_id,
            f"{without:,}",
            counted(len(only.hashes), "key"),
        )
    for warning in warnings_of(sharded, slots, memory):
        logger.warning("Run %s: %s", plan.identity.run_id, warning)


def _shards_in_words(sharded: ShardedRows) -> str:
    used = len(sharded.shards)
    of_all = "" if used == sharded.n_shards else f"{used} of "
    return f"{of_all}{counted(sharded.n_shards, 'shard')}"


def _drive(
    client: "Client",
    execution: Execution,
    assignments: list[ShardAssignment],
    sharded: ShardedRows,
    frame: Frame,
) -> tuple[Driver, list[ShardReceipt]]:
    """Run all shards, as steps over groups of them."""
    step = step_of(execution.kind)
    with (
        listeners(execution.run_id, sharded.partitions) as heard_by,
        Driver(client, execution, assignments, sharded.partitions, frame.watch, heard_by) as driver,
        told_every(execution.options.report_interval_s, execution.run_id, driver.longest),
    ):
        frame.claim.tell(driver.standing)
        steps = [begin_step(step, group, driver) for group in driver.groups(MOST_GROUPS)]
        try:
            await_steps(steps, check=frame.check)
        except interrupts():
            # Workers commit what they have; the run is then completed as cancelled, not left open.
            driver.stop(CANCELLED, CANCEL_TIMEOUT_S)
        receipts = [receipt for begun in steps for receipt in value_of(begun)]
    return driver, receipts
