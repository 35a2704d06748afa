"""Notifications by a block that a person has saved: mail, Slack, a webhook."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Secret, SecretStr

from partwise.errors import InputError
from partwise.redaction import remember
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger


def check_notified(name: str) -> None:
    """Refuse the name of a block that cannot send notifications, before any work.

    Raises:
        InputError: There is none of this name, it sends none, or no server is named that has it.
    """
    if not name:
        return
    if is_direct():
        raise InputError(
            f"notified is {name!r}, a block that a Prefect server keeps, and none is named: set "
            "PREFECT_API_URL to its address, or leave notified out."
        )
    _load(name)


def notify(name: str, subject: str, body: str) -> None:
    """Send a notification; where that fails, the log says so, and the work goes on."""
    if not name:
        return
    try:
        send(name, subject, body)
    except Exception as error:
        run_logger().warning("No notification went out by %s: %s", name, error)


def send(name: str, subject: str, body: str) -> None:
    """Send a notification by a saved block.

    Raises:
        InputError: There is none of this name, or it sends none.
        Exception: What the block says where it cannot send.
    """
    block = _load(name)
    # Else those of Slack and mail only log that nothing went out.
    with block.raise_on_failure():
        block.notify(body, subject)


def _load(name: str) -> Any:
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    from partwise.blocks.mail import SmtpMail  # noqa: F401 (Prefect then finds the class)

    try:
        block = Block.load(name)
    except ValueError as error:
        raise InputError(
            f"No block {name!r} can be loaded ({error}); `prefect block ls` lists those that are "
            "saved."
        ) from error
    # What does not arrive is told with its address.
    remember(_secrets_of(block))
    if not isinstance(block, NotificationBlock):
        raise InputError(
            f"The block {name!r} sends no notifications: name one such as slack-webhook/ops."
        )
    return block


def _secrets_of(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts in the secrets of a block."""
    if isinstance(value, Secret | SecretStr):
        yield from _secrets_of(value.get_secret_value(), is_secret=True)
    elif isinstance(value, BaseModel | Mapping | list | tuple):
        inner = vars(value) if isinstance(value, BaseModel) else value
        for each in inner.values() if isinstance(inner, Mapping) else inner:
            yield from _secrets_of(each, is_secret=is_secret)
    elif is_secret and isinstance(value, str):
        yield value
