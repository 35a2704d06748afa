"""What the run of a gang does: place the ranks, run the gang, complete."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.engine.assignment import work_file
from partwise.engine.driver.payload import pack_work
from partwise.engine.scaling import cluster_workers
from partwise.flows.orchestration.block_parameters import ClusterParameter, StoreParameter
from partwise.flows.orchestration.gang_lines import GangLines
from partwise.flows.orchestration.interruption import allow, interrupts
from partwise.flows.orchestration.progress import told_every
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_cluster
from partwise.flows.running.frame import CANCEL_TIMEOUT_S, Frame, publish_run
from partwise.formatting import counted
from partwise.gangs.driver import GangDriver
from partwise.gangs.errors import GangFailedError
from partwise.gangs.ledger import commit_ranks
from partwise.gangs.placement import Placement
from partwise.gangs.plan import GangPlan
from partwise.gangs.resume_point import resume_point
from partwise.gangs.spec import GangSpec, RankEnd
from partwise.gangs.work import GangPayload, StagedWork
from partwise.outcomes import CANCELLED, RunStatus, Stop
from partwise.ranks.staging import rank_source
from partwise.runs.claim import Claim
from partwise.runs.kinds import RANK
from partwise.runs.run import Run
from partwise.runs.unfinished import Standing
from partwise.shuffle.shared_folder import SharedFolder, StagedFile
from partwise.store.signing import is_configured
from partwise.tasks.run_gang import run_gang_step
from partwise.tasks.steps import await_steps, begin_step, run_logger

if TYPE_CHECKING:
    from distributed import Client


def execute_gang(plan: GangPlan, store: StoreParameter, cluster: ClusterParameter) -> Run:
    """Carry out the plan of a gang, and return the run as it then stands in the store.

    The order of the steps is that of `partwise.flows.running.frame`; the ledger is written when all
    ranks have ended.
    """
    identity = plan.identity
    # What cannot be sent is refused here, before the run is claimed.
    pack_work(plan.work, plan.name)
    with Frame(plan, open_store(store), open_cluster(cluster)) as frame:
        if settled := frame.settle_if_done():
            return settled
        clock, claim, logger = frame.clock, frame.claim, frame.logger
        for warning in plan.warnings:
            logger.warning("Run %s: %s", identity.run_id, warning)
        # What an attempt will go on from is refused here where it is not there.
        earlier = claim.resumable_generations(plan.intent)
        for why in resume_point(frame.store, identity.run_id, earlier, plan.resume_from).refused:
            logger.warning("Run %s: a checkpoint does not count: %s", identity.run_id, why)
        # Which workers are lost, the gang decides: one that runs no rank is none of its business.
        client = frame.connect(*plan.sources.values(), silence_s=None, buckets=plan.buckets)
        placement = plan.place(cluster_workers(client))
        if plan.check_workers is not None:
            plan.check_workers(client, [node.worker for node in placement.nodes])
        folder = frame.open_folder(client)
        with clock.stage("load"):
            payload = _stage_payload(plan, folder, client, frame)
        spec = _specify(plan, claim, frame.token, placement, payload)
        keys = pa.table({RANK: pa.array(range(spec.world_size), pa.int64())})
        frame.begin(n_shards=1, partitions=spec.world_size, keys=keys)
        ranks = (
            f"{counted(spec.world_size, 'rank')} on {counted(len(spec.nodes), 'worker')}, "
            f"CPUs of each: {spec.threads}."
        )
        logger.info("Run %s: %s", identity.run_id, placement.why or ranks)
        with clock.stage("gang"):
            ends, stopped, cause = _drive(client, spec, frame)
        run = commit_ranks(
            claim,
            ends,
            spec.world_size,
            stopped=stopped,
            started_at=clock.started_at,
            stages=clock.stages,
        )
        run.cause = cause
        return publish_run(run)


def _stage_payload(
    plan: GangPlan, folder: SharedFolder, client: "Client", frame: Frame
) -> StagedFile:
    """Make the work and the rows of a gang reachable for its ranks."""
    work = plan.work
    payload = GangPayload(
        work=work.staged(folder) if isinstance(work, StagedWork) else work,
        sources={
            name: rank_source(source, folder, client, name, frame.look)
            for name, source in plan.sources.items()
        },
        params=plan.params,
    )
    content = pack_work(payload, plan.name)
    return folder.write(work_file(frame.token), content)


def _specify(
    plan: GangPlan, claim: Claim, token: str, placement: Placement, payload: StagedFile
) -> GangSpec:
    """Return what the gang is asked to do, in the generation that is about to begin."""
    return GangSpec(
        token=token,
        run_id=plan.identity.run_id,
        generation=claim.next_generation,
        store=claim.store,
        nodes=placement.nodes,
        payload=payload,
        shares_gpus=plan.shares_gpus,
        packages=plan.environment,
        modules=plan.modules,
        threads=placement.threads,
        gpus=placement.gpus,
        seed=plan.seed,
        options=plan.options,
        resumable=claim.resumable_generations(plan.intent),
        resume_from=plan.resume_from,
        is_signed=is_configured(claim.store),
    )


def _drive(
    client: "Client", spec: GangSpec, frame: Frame
) -> tuple[Sequence[RankEnd], Stop | None, BaseException | None]:
    """Run the gang as one step.

    Returned are how its ranks ended; why it was stopped; and what the rank that is to blame raised.
    """
    logger, options = run_logger(), spec.options
    size, since = spec.world_size, datetime.now(UTC)
    # All ranks run, or none does.
    frame.claim.tell(
        lambda: Standing(generation=spec.generation, running=size, begun={0: (size, -1, since)})
    )
    driver = GangDriver(client, spec, frame.watch, GangLines(logger, spec.run_id))
    step = begin_step(run_gang_step, driver, spec.world_size)
    with told_every(options.report_interval_s, spec.run_id, driver.longest):
        try:
            await_steps([step], check=frame.check)
        except interrupts():
            # The ranks have their grace; the run is then completed as cancelled, not left open.
            allow(options.grace_s)
            driver.stop(CANCELLED)
            await_steps([step], options.grace_s + CANCEL_TIMEOUT_S)
    try:
        ends: Any = step.result()
        return ends, None, None
    except GangFailedError as failed:
        stopped = failed.stopped or Stop(RunStatus.FAILURE, str(failed).rstrip("."))
        return failed.ends, stopped, failed.__cause__
