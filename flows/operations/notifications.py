"""Who hears of a night that went wrong: what prefect.yaml says of it, as automations of Prefect's.

They send by a block that a person has saved: Slack, mail, a webhook. The messages are made by the
server, of the event of a run's end (`partwise.flows.orchestration.announcement`), or of what it
knows of a flow run that came to no run.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from partwise.errors import InputError
from partwise.flows.operations.automations import OURS, save_automation
from partwise.flows.operations.doctor import Finding
from partwise.flows.orchestration.announcement import RUN_COMPLETED, WITHOUT_RUN
from partwise.flows.orchestration.server_client import server_client
from partwise.formatting import shortened
from partwise.outcomes import RunStatus
from partwise.redaction import without_secrets
from partwise.tasks.notify import send

_DEPLOYMENT = re.compile(r"prefect\.deployment\.([0-9a-f-]{36})")
TOLD = (RunStatus.PARTIAL_FAILURE, RunStatus.FAILURE, RunStatus.SKIPPED)
"""The ends of runs that somebody hears of; SKIPPED: nothing was made."""
_ABOUT_RUN = ("{{ event.payload.status }}: {{ event.payload.run_id }}", "{{ event.payload.text }}")
_ABOUT_FLOW_RUN = (
    "{{ flow_run.state.name }}: {{ flow_run.name }}",
    (
        "{{ flow.name }}/{{ deployment.name }}, due {{ flow_run.expected_start_time }}: "
        "{{ flow_run.state.message or 'nothing more is known' }}\n{{ flow_run|ui_url }}"
    ),
)


class Notification(BaseModel):
    """An entry of `notifications` in prefect.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    block: str = Field(pattern=r"^[^/]+/[^/]+$")
    """What sends it, such as slack-webhook/ops."""
    enabled: bool = False
    late_after_s: float = Field(default=600, ge=10)
    """How long after it was due a flow run that no worker has begun is told of."""


def notifications_of(document: Mapping[str, Any]) -> list[Notification]:
    """Return what a prefect.yaml says of notifications.

    Raises:
        InputError: An entry is not as it should be.
    """
    given = document.get("notifications") or []
    try:
        found = TypeAdapter(list[Notification]).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"prefect.yaml, notifications.{place}: {first['msg']}, and it is {first['input']!r}. "
            "An entry has a name, a block such as slack-webhook/ops, enabled and late_after_s."
        ) from error
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        # Automations are found again by their names: the last entry would take the others' place.
        raise InputError(
            f"prefect.yaml, notifications: several entries are called {twice[0]!r}, of which the "
            "server would keep one: give each a name of its own."
        )
    return found


def save_notifications(
    notifications: Sequence[Notification],
    deployments: Sequence[UUID],
    api_url: str,
    *,
    keeps_switches: bool,
) -> list[str]:
    """Have a server notify of what becomes of deployments; returns a line about each entry.

    With `keeps_switches`, automations that the server has stay on or off.
    """
    with server_client(api_url, "refused a notification") as client:
        return [_save(client, one, deployments, keeps_switches) for one in notifications]


def _save(
    client: SyncPrefectClient,
    notification: Notification,
    deployments: Sequence[UUID],
    keeps_switches: bool,
) -> str:
    kind, _, name = notification.block.partition("/")
    try:
        block = client.read_block_document_by_name(name, kind)
    except ObjectNotFound:
        return (
            f"{notification.name}: off, as the server has no block {notification.block}: save one "
            "in the UI (Blocks), and call `partwise deploy` again"
        )
    wanted = automations_of(notification, block.id, deployments)
    if (other := _of_others(client, wanted[0].name, deployments)) is not None:
        return (
            f"{notification.name}: not saved, as the server has a notification of that name for "
            f"other deployments, such as {other}: give it another name, or delete the automation "
            f"{wanted[0].name!r} in the UI"
        )
    saved = [save_automation(client, each, keeps_switch=keeps_switches) for each in wanted]
    automation = client.read_automation(saved[0])
    is_on = automation is not None and automation.enabled
    return f"{notification.name}: by {notification.block}, {'on' if is_on else 'off'}"


def _of_others(client: SyncPrefectClient, name: str, ours: Sequence[UUID]) -> str | None:
    """Return a deployment of which an automation tells that tells of none of ours.

    Several projects may share a server, and automations are found by their names.
    """
    for found in client.read_automations_by_name(name):
        named = str(found.trigger.model_dump(include={"match_related"}))
        ids = {UUID(text) for text in _DEPLOYMENT.findall(named)}
        if ids.isdisjoint(ours):
            for each in sorted(ids):
                with suppress(ObjectNotFound):
                    return client.read_deployment(each).name
    return None


def try_notification(block: str) -> Finding:
    """Send a test by a block that is saved on the server that PREFECT_API_URL names."""
    what = "notification"
    if PREFECT_API_URL.value() is None:
        return Finding(
            what=what,
            verdict="bad",
            text="no PREFECT_API_URL: a Prefect server keeps the block",
            remedy="name the server, such as export PREFECT_API_URL=http://127.0.0.1:4200/api",
        )
    try:
        send(block, "A test of partwise", "Sent by `partwise doctor`: notifications arrive here.")
    except Exception as error:
        text = shortened(without_secrets(f"{block}: {type(error).__name__}: {error}"))
        return Finding(what=what, verdict="bad", text=text, remedy="see `prefect block ls`")
    return Finding(what=what, verdict="good", text=f"{block} has sent a test: see that it arrived")


def automations_of(
    notification: Notification, block: UUID, deployments: Sequence[UUID]
) -> list[AutomationCore]:
    """Return the automations that send a notification of what becomes of deployments by a block."""
    of_deployments: dict[str, str | list[str]] = {
        "prefect.resource.id": [f"prefect.deployment.{each}" for each in deployments],
        "prefect.resource.role": "deployment",
    }
    flow_runs: dict[str, str | list[str]] = {"prefect.resource.id": "prefect.flow-run.*"}
    ended_badly = EventTrigger(
        posture=Posture.Reactive,
        expect={RUN_COMPLETED},
        match={
            "prefect.resource.id": "partwise.run.*",
            "partwise.status": [status.value for status in TOLD],
        },
        match_related=of_deployments,
    )
    without_run = EventTrigger(
        posture=Posture.Reactive,
        expect={f"prefect.flow-run.{name}" for name in WITHOUT_RUN},
        match=flow_runs,
        match_related=of_deployments,
    )
    not_begun = EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.Late"},
        expect={f"prefect.flow-run.{name}" for name in ("Pending", "Running", "Cancelled")},
        match=flow_runs,
        match_related=of_deployments,
        for_each={"prefect.resource.id"},
        within=timedelta(seconds=notification.late_after_s),
    )
    triggers = (
        ("of runs that failed, or made nothing", ended_badly, _ABOUT_RUN),
        ("of flow runs that failed or crashed", without_run, _ABOUT_FLOW_RUN),
        ("of flow runs that do not begin", not_begun, _ABOUT_FLOW_RUN),
    )
    return [
        AutomationCore(
            name=f"{OURS}notify {notification.name} {what}",
            description=f"By {notification.block}, as `notifications` in prefect.yaml says.",
            enabled=notification.enabled,
            trigger=trigger,
            actions=[SendNotification(block_document_id=block, subject=subject, body=body)],
        )
        for what, trigger, (subject, body) in triggers
    ]
