"""The events that tell Prefect's automations of the end of a run, and of a promotion."""

import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.events import emit_event
from prefect.runtime import deployment, flow_run

from partwise.errors import PartwiseError
from partwise.flows.orchestration.endings import explain, message_of
from partwise.flows.orchestration.server_client import NO_ANSWER
from partwise.formatting import shortened
from partwise.outcomes import WRONG, RunStatus
from partwise.runs.key_texts import key_texts
from partwise.runs.ledger import skip_reasons
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.tasks.flow_run import current_flow_run

RUN_COMPLETED = "partwise.run.completed"
WITHOUT_RUN = ("Failed", "Crashed", "TimedOut")
"""The states of flow runs that ended without a run: that of a run has its status as its name."""
SCHEDULED = "partwise.flow-run.scheduled"
CATALOG_PROMOTED = "partwise.catalog.promoted"
DEPLOYMENT_LABEL = "partwise.deployment"
MOST_KEYS = 20
"""Failed keys that are named."""


def announce_schedule(begun: FlowRun | None = None) -> None:
    """Emit the event of a flow run being scheduled, which Prefect's scheduler leaves out.

    Each event of a state names the one before it, and Prefect's server (3.8) has automations wait
    15 minutes for one that it has not seen: of flow runs that a schedule made, for all of their
    states. That they have failed would be told so late, and not at all where the server ends first.

    Args:
        begun: The flow run; None: that of the context.
    """
    begun = begun or current_flow_run()
    # One that goes on has told of it before.
    if begun is None or not begun.auto_scheduled or begun.run_count > 1:
        return
    # The run does without where the server cannot say.
    with suppress(*NO_ANSWER), get_client(sync_client=True) as client:
        first = min(client.read_flow_run_states(begun.id), key=lambda state: state.timestamp)
        emit_event(
            event=SCHEDULED,
            resource={
                "prefect.resource.id": f"prefect.flow-run.{begun.id}",
                "prefect.resource.name": begun.name,
            },
            id=first.id,
        )


def is_of_own_deployment() -> bool:
    """Whether the flow run at work is of a deployment, of which it has begun no other flow run."""
    begun = current_flow_run()
    if begun is None or begun.deployment_id is None:
        return False
    of_same = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[begun.id]),
        deployment_id=FlowRunFilterDeploymentId(any_=[begun.deployment_id]),
    )
    with suppress(*NO_ANSWER), get_client(sync_client=True) as client:
        return not client.read_flow_runs(flow_run_filter=of_same, limit=1)
    # To be told twice is better than not at all.
    return True


def announce(run: Run | Pipeline, pipeline: str = "") -> None:
    """Emit the event `partwise.run.completed`, on which an automation can start another flow.

    Its resource is `partwise.run.<run_id>`, with the labels `partwise.kind`, `partwise.status` and
    `partwise.deployment` ("train-models/nightly-train"; empty for a flow that was called). The
    payload has `run_id`, `kind`, `status` and `store`; `counts`, the partitions by status, and
    `seconds`, both of the newest generation and of a pipeline the sums of its runs; and in `text`
    what a person is told of the end: of failures the causes and the keys.

    Args:
        run: What has ended.
        pipeline: The ID of the pipeline that ended early with this run, that of a stage; it has the
            status and the counts of that.
    """
    run_id, kind = (pipeline, Pipeline.kind) if pipeline else (run.run_id, run.kind)
    runs = run.runs if isinstance(run, Pipeline) else (run,)
    ends = [each.summary for each in runs if each.summary is not None]
    counts: Counter[str] = Counter()
    for end in ends:
        counts.update(end.counts)
    emit_event(
        event=RUN_COMPLETED,
        resource={
            "prefect.resource.id": f"partwise.run.{run_id}",
            "prefect.resource.name": run_id,
            "partwise.kind": kind,
            "partwise.status": run.status.value,
            DEPLOYMENT_LABEL: _deployment(),
        },
        payload={
            "run_id": run_id,
            "kind": kind,
            "status": run.status.value,
            "store": run.store.url,
            "counts": dict(counts),
            "seconds": sum((end.finished_at - end.started_at).total_seconds() for end in ends),
            "text": _text_of(run),
        },
    )


def _text_of(run: Run | Pipeline) -> str:
    try:
        return told_of(run)
    except PartwiseError as error:
        # The run is complete, though its ledger cannot be read just now.
        return f"{run.run_id} ended with {run.status.value}. Nothing more can be read: {error}"


def told_of(run: Run | Pipeline) -> str:
    """Return what a person is told of the end of a run, in a few lines."""
    if isinstance(run, Pipeline):
        bad = [told_of(each) for each in run.runs if each.status is not RunStatus.SUCCESS]
        return "\n".join([run.message, *bad])
    if run.status is RunStatus.SUCCESS:
        return message_of(run)
    lines = [explain(run)]
    if reasons := skip_reasons(run.ledger):
        lines.append(f"Skipped: {reasons}.")
    ledger = run.newest.ledger
    wrong = ledger.filter(pc.is_in(ledger["status"], value_set=pa.array(WRONG)))
    if wrong.num_rows:
        keys = "; ".join(shortened(key) for key in key_texts(wrong, MOST_KEYS))
        more = wrong.num_rows - MOST_KEYS
        lines.append(f"Failed keys: {keys}{f'; and {more:,} more' if more > 0 else ''}.")
        where = shlex.quote(run.store.url)
        lines.append(f"partwise runs show {run.run_id} --failures --store {where}")
    return "\n".join(lines)


def announce_version(name: str, version: int, store: str, payload: Mapping[str, Any]) -> None:
    """Emit the event `partwise.catalog.promoted`: models have become champions of a catalog.

    Its resource is `partwise.catalog.<name>`, with the labels `partwise.version` and
    `partwise.deployment`. The payload has `catalog`, `version` and `store`, and what is given.
    """
    emit_event(
        event=CATALOG_PROMOTED,
        resource={
            "prefect.resource.id": f"partwise.catalog.{name}",
            "prefect.resource.name": name,
            "partwise.version": str(version),
            DEPLOYMENT_LABEL: _deployment(),
        },
        payload={"catalog": name, "version": version, "store": store, **payload},
    )


def _deployment() -> str:
    """Return "<flow>/<deployment>" of the flow run at work, or "" when none started it."""
    started = current_flow_run()
    if started is None or started.deployment_id is None:
        return ""
    try:
        return f"{flow_run.flow_name}/{deployment.name}"
    except NO_ANSWER:
        # The run is safe without its server.
        return ""
