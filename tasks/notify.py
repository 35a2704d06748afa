"""Notifications by a block that a person has saved: mail, Slack, a webhook."""

from typing import Any

from partwise.errors import InputError
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger


def check_notified(name: str) -> None:
    """Refuse the name of a block that cannot send notifications, before any work.

    Raises:
        InputError: There is none of this name, it sends none, or no server is named that has it.
    """
    if name:
        _load(name)


def notify(name: str, subject: str, body: str) -> None:
    """Send a notification; where that fails, the log says so, and the work goes on."""
    if not name:
        return
    try:
        _load(name).notify(body, subject)
    except Exception as error:
        run_logger().warning("No notification went out by %s: %s", name, error)


def _load(name: str) -> Any:
    if is_direct():
        raise InputError(
            f"notified is {name!r}, a block that a Prefect server keeps, and none is named: set "
            "PREFECT_API_URL to its address, or leave notified out."
        )
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    try:
        block = Block.load(name)
    except ValueError as error:
        raise InputError(
            f"No block {name!r} can be loaded ({error}); `prefect block ls` lists those that are "
            "saved."
        ) from error
    if not isinstance(block, NotificationBlock):
        raise InputError(
            f"The block {name!r} sends no notifications: name one such as slack-webhook/ops."
        )
    return block
