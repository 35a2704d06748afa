"""Prefect's flow run at work, if there is one: asked without importing Prefect for it."""

import os
import sys
from typing import Any

FLOW_RUN_ID = "PREFECT__FLOW_RUN_ID"
"""The environment of a process that Prefect has started for a flow run has this variable."""


def flow_run_context() -> Any:
    """Return the context of Prefect's flow run at work; None: there is none around this."""
    # Whoever has one has imported this.
    found = sys.modules.get("prefect.context")
    return None if found is None else found.FlowRunContext.get()


def current_flow_run() -> Any:
    """Return Prefect's flow run at work; None: there is none around this."""
    context = flow_run_context()
    return None if context is None else context.flow_run


def is_direct() -> bool:
    """Whether no flow run of Prefect is around this."""
    return flow_run_context() is None


def flow_run_id() -> str | None:
    """Return the ID of Prefect's flow run at work; None: there is none around this."""
    flow_run = current_flow_run()
    return None if flow_run is None else str(flow_run.id)


def has_own_process() -> bool:
    """Whether this process was started for the flow run at work, and for nothing around it."""
    return flow_run_id() == os.environ.get(FLOW_RUN_ID, "")


def flow_run_count() -> int:
    """Return how many times Prefect's flow run at work has begun; 0: there is none around this."""
    if is_direct():
        return 0
    from prefect.runtime import flow_run

    return int(flow_run.run_count)
