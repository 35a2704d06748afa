"""The events that tell Prefect's automations of the end of a run, and of a promotion."""

from collections.abc import Mapping
from typing import Any

import httpx
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import deployment, flow_run

from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run

RUN_COMPLETED = "partwise.run.completed"
CATALOG_PROMOTED = "partwise.catalog.promoted"
DEPLOYMENT_LABEL = "partwise.deployment"


def announce(run: Run | Pipeline) -> None:
    """Emit the event `partwise.run.completed`, on which an automation can start another flow.

    Its resource is `partwise.run.<run_id>`, with the labels `partwise.kind`, `partwise.status` and
    `partwise.deployment` ("train-models/nightly-train"; empty for a flow that was called). The
    payload has `run_id`, `kind`, `status` and `store`.
    """
    emit_event(
        event=RUN_COMPLETED,
        resource={
            "prefect.resource.id": f"partwise.run.{run.run_id}",
            "prefect.resource.name": run.run_id,
            "partwise.kind": run.kind,
            "partwise.status": run.status.value,
            DEPLOYMENT_LABEL: _deployment(),
        },
        payload={
            "run_id": run.run_id,
            "kind": run.kind,
            "status": run.status.value,
            "store": run.store.url,
        },
    )


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
    context = FlowRunContext.get()
    started: Any = None if context is None else context.flow_run
    if started is None or started.deployment_id is None:
        return ""
    try:
        return f"{flow_run.flow_name}/{deployment.name}"
    except (httpx.HTTPError, PrefectHTTPStatusError):
        # The run is safe without its server.
        return ""
