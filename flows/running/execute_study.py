"""What the run of a study does: load the rows, run the trials, complete."""

import pickle
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from partwise.cluster_calls import (
    ask_workers,
    await_one,
    in_time,
    is_cut_off,
    rejoin,
    result_of,
)
from partwise.engine.assignment import Execution, work_file
from partwise.engine.driver.cluster_watch import LOOK_S
from partwise.engine.driver.named_modules import named_modules
from partwise.engine.driver.payload import full_name_of, pack_work
from partwise.engine.driver.shards import FAREWELL_S
from partwise.engine.scaling import Slot, cluster_workers, partition_slots
from partwise.flows.orchestration.block_parameters import Cluster, ClusterParameter, StoreParameter
from partwise.flows.orchestration.interruption import interrupts
from partwise.flows.orchestration.progress import told_every
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_cluster, workers_at_most
from partwise.flows.running.frame import CANCEL_TIMEOUT_S, Frame, publish_run
from partwise.gangs.placement import Placement, place_gangs
from partwise.gangs.work import RankSource
from partwise.outcomes import CANCELLED, Stop
from partwise.processes.warm_server import Preloaded
from partwise.ranks.staging import rank_source
from partwise.runs.claim import Claim
from partwise.runs.run import Run
from partwise.runs.trials import TRIAL
from partwise.shuffle.shared_folder import SharedFolder, StagedFile
from partwise.store.signing import is_configured
from partwise.studies.driver import StudyDriver, StudyEnd, StudySpec
from partwise.studies.gang_trials import GangPlan, GangTrials
from partwise.studies.ledger import Known, complete_study, keep_trials, known_trials
from partwise.studies.plan import StudyPlan
from partwise.studies.trials import Trials
from partwise.studies.worker import end_study, load_rows
from partwise.studies.worker_trials import WorkerTrials
from partwise.tasks.run_study import run_study_step
from partwise.tasks.steps import await_steps, begin_step, run_logger

if TYPE_CHECKING:
    from distributed import Client


def execute_study(plan: StudyPlan, store: StoreParameter, cluster: ClusterParameter) -> Run:
    """Carry out the plan of a study, and return the run as it then stands in the store.

    The order of the steps is that of `partwise.flows.running.frame`; each trial is committed by its
    worker.
    """
    identity = plan.identity
    # What cannot be sent is refused here, before the run is claimed.
    payload = pack_work(plan.work, plan.name)
    with Frame(plan, open_store(store), open_cluster(cluster, plan.options.gpus)) as frame:
        clock, claim, token, logger = frame.clock, frame.claim, frame.token, frame.logger
        known = known_trials(claim, plan.intent)
        has_all = len(known.kept) >= plan.stopping.trials
        if has_all and (settled := frame.settle_if_done()):
            return settled
        function = plan.work.train.function if plan.gang is None else plan.gang.function
        modules = named_modules(function, plan.intent.code_parts)
        preloaded = Preloaded(modules=modules)
        if plan.gang is None:
            preloaded = frame.preload(modules, plan.options)
        client = frame.connect(plan.source, silence_s=plan.options.silence_s)
        places = _find_places(plan, frame.cluster, client)
        folder = frame.open_folder(client)
        # Before machines have rows: where loading fails, those that have some are tidied up too.
        frame.stack.callback(_end_study, client, token)
        with clock.stage("load"):
            rows = _stage_rows(plan, folder, client, frame)
            sources = _stage_sources(plan.gang, folder, client, frame)
        most = plan.search.most((*known.kept, *known.again))
        numbers = known.numbers(int(min(plan.stopping.trials, most)))
        keys = pa.table({TRIAL: pa.array(numbers, pa.int64())})
        frame.begin(n_shards=1, partitions=len(numbers), keys=keys)
        work = folder.write(work_file(token), payload)
        spec = _specify(plan, claim, known, token, places, work, rows, preloaded)
        trials: Trials = WorkerTrials(client, token)
        if plan.gang is not None:
            trials = GangTrials(
                client,
                frame.watch,
                plan.gang,
                places.gangs,
                sources,
                folder,
                spec.execution,
                frame.logger,
            )
        keep_trials(spec.execution, known)
        logger.info(
            "Run %s: %d trials, %d at once; %d were kept from before.",
            identity.run_id,
            plan.stopping.trials,
            spec.slots,
            len(known.kept),
        )
        with clock.stage("tune"):
            end, stopped, cause = _drive(client, spec, trials, frame)
        with clock.stage("complete"):
            run = complete_study(
                claim, end, stopped, started_at=clock.started_at, stages=clock.stages
            )
        run.cause = cause
        return publish_run(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where trials run side by side."""

    slots: Sequence[Slot] = ()
    gangs: Sequence[Placement] = ()


def _find_places(plan: StudyPlan, chosen: Cluster, client: "Client") -> _Places:
    """Find room for trials."""
    if plan.gang is not None:
        workers = cluster_workers(client)
        return _Places(gangs=place_gangs(workers, plan.gang.scaling, plan.max_concurrent))
    cpus, gpus = plan.options.cpus, plan.options.gpus
    return _Places(slots=partition_slots(workers_at_most(chosen, client), cpus, gpus))


def _specify(
    plan: StudyPlan,
    claim: Claim,
    known: Known,
    token: str,
    places: _Places,
    work: StagedFile,
    rows: StagedFile | None,
    preloaded: Preloaded,
) -> StudySpec:
    """Return what the study is asked to do, in the generation that has begun."""
    execution = Execution(
        token=token,
        run_id=plan.identity.run_id,
        kind=plan.identity.kind,
        generation=claim.generation,
        store=claim.store,
        key_columns=plan.identity.key_columns,
        seed=plan.seed,
        compatible=claim.compatible,
        options=plan.options,
        limits=plan.options.limits_on(places.slots),
        work=work,
        work_name=full_name_of(plan.work.train.function, plan.name),
        preloaded=preloaded,
        environment=plan.environment,
        is_signed=is_configured(claim.store),
    )
    room = len(places.gangs or places.slots)
    return StudySpec(
        execution=execution,
        rows=rows,
        fingerprint=plan.intent.source_fingerprint,
        search=plan.search,
        stopping=plan.stopping,
        slots=max(1, min(room, plan.max_concurrent or room)),
        kept=known.kept,
        again=known.again,
    )


def _stage_rows(
    plan: StudyPlan,
    folder: SharedFolder,
    client: "Client",
    frame: Frame,
) -> StagedFile | None:
    """Have each machine of the cluster write the rows to disk; None: ranks of gangs read them."""
    if plan.gang is not None:
        return None
    fragments = rank_source(plan.source, folder, client, check=frame.look)
    staged = folder.write(f"rows-{frame.token}.pkl", pickle.dumps(fragments))
    since = time.monotonic()
    one_each = {worker.host: worker.address for worker in cluster_workers(client)}
    # Not pure: with equal arguments, Dask would take them for one task, on one machine.
    tasks = {
        address: client.submit(
            load_rows, staged, frame.store, frame.token, workers=[address], pure=False, retries=1
        )
        for address in one_each.values()
    }
    # Where a worker went away, or the connection, the first trial on that machine writes the rows.
    for address, task in tasks.items():
        try:
            while not task.done() and not frame.watch.has_lost(address, since):
                await_one(task, LOOK_S)
                frame.look()
            if task.done():
                result_of(task)
        except Exception as error:
            if not is_cut_off(error):
                raise
            rejoin(client, frame.look)
    return staged


def _end_study(client: "Client", token: str) -> None:
    # Where the cluster is gone, so is what would have to be tidied there.
    with suppress(Exception):
        in_time(FAREWELL_S, ask_workers, client, end_study, token)


def _stage_sources(
    gang: GangPlan | None, folder: SharedFolder, client: "Client", frame: Frame
) -> dict[str, RankSource]:
    sources = {} if gang is None else gang.sources
    return {
        name: rank_source(each, folder, client, name, frame.look) for name, each in sources.items()
    }


def _drive(
    client: "Client", spec: StudySpec, trials: Trials, frame: Frame
) -> tuple[StudyEnd, Stop | None, BaseException | None]:
    """Run the study as one step.

    Returned are how it ended; why it was stopped; and what its driver raised.
    """
    logger, options = run_logger(), spec.execution.options
    with (
        StudyDriver(client, spec, trials, frame.watch, logger) as driver,
        told_every(options.report_interval_s, spec.execution.run_id, driver.longest),
    ):
        frame.claim.tell(driver.standing)
        step = begin_step(run_study_step, driver, spec.stopping.trials)
        try:
            await_steps([step], check=frame.check)
        except interrupts():
            # Workers end their trials; the run is then completed as cancelled, not left open.
            driver.stop(CANCELLED, CANCEL_TIMEOUT_S)
        return step.result(), driver.stopped, driver.cause
