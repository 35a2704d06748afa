"""What the flow of a study does: claim the run, load the rows, run the trials, complete."""

import pickle
import secrets
from collections.abc import Sequence
from contextlib import ExitStack

from distributed import Client
from prefect.exceptions import TerminationSignal
from prefect.futures import wait
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from partwise.connector.rank_staging import rank_source
from partwise.engine.assignment import Execution, work_file
from partwise.engine.child_process import end_marked
from partwise.engine.payload import pack_work
from partwise.engine.scaling import Slot, cluster_workers, partition_slots
from partwise.flows.running.connections import (
    connect,
    open_cluster,
    open_store,
    workers_at_most,
)
from partwise.flows.running.execution import (
    CANCEL_TIMEOUT_S,
    Clock,
    give_keys,
    publish_run,
    settle_if_done,
)
from partwise.flows.running.parameters import ClusterParameter, StoreParameter
from partwise.outcomes import CANCELLED, Stop
from partwise.runs.claim import Claim
from partwise.runs.run import Run
from partwise.shuffle.scratch import run_scratch
from partwise.shuffle.shared_folder import SharedFolder, StagedFile
from partwise.store.store import Store
from partwise.studies.driver import StudyDriver, StudyEnd, StudySpec
from partwise.studies.ledger import Known, complete_study, keep_trials, known_trials
from partwise.studies.plan import StudyPlan
from partwise.studies.worker import end_study, load_rows
from partwise.tasks.run_study import run_study_step


def execute_study(plan: StudyPlan, store: StoreParameter, cluster: ClusterParameter) -> Run:
    """Carry out the plan of a study, and return the run as it then stands in the store.

    The order is that of `execute`: whatever can be refused is refused before the claim, rows that
    cannot be read leave the run as it was, each trial is committed by its worker, and the summary
    is written last. A driver that dies in between leaves a run without an end, which a resume goes
    on with.

    Args:
        plan: What is to be done.
        store: The artifact store, as the caller names it.
        cluster: The Dask cluster, likewise.
    """
    opened_store, chosen_cluster = open_store(store), open_cluster(cluster)
    clock, logger, identity = Clock(), get_run_logger(), plan.identity
    payload = pack_work(plan.work, plan.name)
    opened_store.check_writable()
    with ExitStack() as stack:
        claim = stack.enter_context(Claim(opened_store, identity, plan.on_existing, flow_run.id))
        known = known_trials(claim, plan.intent)
        if len(known.kept) >= plan.stopping.trials and (
            settled := settle_if_done(claim, plan.intent, clock)
        ):
            return settled
        token = secrets.token_hex(6)
        directory = stack.enter_context(run_scratch()) / "shared"
        directory.mkdir()
        with clock.stage("cluster"):
            # Called once the client has left: it ends child processes that outlived their worker.
            stack.callback(end_marked, token)
            client = stack.enter_context(connect(chosen_cluster))
            give_keys(client, opened_store, plan.source)
        options = plan.options
        slots = partition_slots(
            workers_at_most(chosen_cluster, client), options.partition_cpus, options.partition_gpus
        )
        folder = SharedFolder(
            directory,
            opened_store,
            identity.run_id,
            token,
            shared=chosen_cluster.shares_filesystem,
        )
        stack.callback(folder.close)
        stack.callback(client.run, end_study, token, on_error="ignore")
        with clock.stage("load"):
            rows = _stage_rows(plan, folder, client, opened_store, token)
        claim.begin(n_shards=1, intent=plan.intent, partitions=plan.stopping.trials)
        if reason := claim.why_nothing_counts(plan.intent):
            logger.warning("Run %s: %s", identity.run_id, reason)
        spec = _specify(
            plan, claim, known, token, slots, folder.write(work_file(token), payload), rows
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
            end, stopped = _drive(client, spec)
        with clock.stage("complete"):
            run = complete_study(
                claim, end, stopped, started_at=clock.started_at, stages=clock.stages
            )
        return publish_run(run)


def _specify(
    plan: StudyPlan,
    claim: Claim,
    known: Known,
    token: str,
    slots: Sequence[Slot],
    work: StagedFile,
    rows: StagedFile,
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
        training_run_id=None,
        compatible=claim.compatible,
        options=plan.options,
        limits=plan.options.limits_on(slots),
        work=work,
        environment=plan.environment,
    )
    return StudySpec(
        execution=execution,
        rows=rows,
        fingerprint=plan.intent.source_fingerprint,
        search=plan.search,
        stopping=plan.stopping,
        slots=max(1, min(len(slots), plan.max_concurrent or len(slots))),
        kept=known.kept,
        again=known.again,
    )


def _stage_rows(
    plan: StudyPlan, folder: SharedFolder, client: Client, store: Store, token: str
) -> StagedFile:
    """Have each machine of the cluster write the rows to its disk.

    Raises:
        SourceError: They cannot be read or written, or there are none.
    """
    plan.source.refuse_empty()
    fragments = rank_source(plan.source, folder, client)
    staged = folder.write(f"rows-{token}.pkl", pickle.dumps(fragments))
    one_each = {worker.host: worker.address for worker in cluster_workers(client)}
    client.gather(
        [
            client.submit(load_rows, staged, store, token, workers=[address], pure=False, retries=1)
            for address in one_each.values()
        ]
    )
    return staged


def _drive(client: Client, spec: StudySpec) -> tuple[StudyEnd, Stop | None]:
    """Run the study as one Prefect task run; return how it ended, and why it was stopped."""
    with StudyDriver(client, spec, get_run_logger()) as driver:
        future = run_study_step.submit(driver, spec.stopping.trials)
        try:
            wait([future])
        except (KeyboardInterrupt, TerminationSignal):
            # Workers end their trials; the run is then completed as cancelled, not left open.
            driver.stop(CANCELLED)
            wait([future], timeout=CANCEL_TIMEOUT_S)
        return future.result(), driver.stopped
