"""The automations that partwise keeps on a Prefect server: found again by their names."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

OURS = "partwise: "
"""The names of all of them begin so."""
CRASH_AUTOMATION = f"{OURS}flow runs without a heartbeat have crashed"
TAG = "partwise"
SILENCE_S = 90
"""Three heartbeats: one may be late on a busy machine."""


def save_automation(
    client: SyncPrefectClient, wanted: AutomationCore, *, keeps_switch: bool
) -> UUID:
    """Create an automation, or update the one that has its name; more of that name are deleted.

    With `keeps_switch`, one that is there stays on or off. One that is as wanted is left alone: an
    update forgets what it waits for, such as the next heartbeat of a flow run whose machine died
    before `partwise up` was called again.
    """
    found = client.read_automations_by_name(wanted.name)
    if not found:
        return client.create_automation(wanted)
    for one in found[1:]:
        client.delete_automation(one.id)
    if keeps_switch:
        wanted = wanted.model_copy(update={"enabled": found[0].enabled})
    if _parts(found[0]) != _parts(wanted):
        client.update_automation(found[0].id, wanted)
    return found[0].id


def _parts(automation: AutomationCore) -> dict[str, Any]:
    """Return what makes an automation what it is, without the IDs that the server gives."""
    parts = automation.model_dump(include=set(AutomationCore.model_fields))
    # Prefect gives a trigger another one with each update.
    parts["trigger"].pop("id", None)
    return parts


def crash_automation() -> AutomationCore:
    """Return what marks as crashed each flow run of ours that sends no heartbeat any more.

    The worker does so when its flow run's process dies; this is for when the worker died as well.
    """
    return AutomationCore(
        name=CRASH_AUTOMATION,
        description=(
            f"A flow run tagged `{TAG}` of which nothing was heard for {SILENCE_S} s, though it had"
            " sent a heartbeat and had not ended, is marked as crashed. `partwise deploy` keeps"
            " this automation up to date."
        ),
        trigger=EventTrigger(
            posture=Posture.Proactive,
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.id": f"prefect.tag.{TAG}",
                "prefect.resource.role": "tag",
            },
            after={"prefect.flow-run.heartbeat"},
            # Any event, also that of its end: who has ended is not waited for.
            expect={"prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                force=False,
                state=StateType.CRASHED,
                message=(
                    f"No heartbeat for {SILENCE_S} s: the process or its machine is gone. "
                    "What was committed is in the store; Retry goes on with the rest."
                ),
            )
        ],
    )
