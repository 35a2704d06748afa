"""What the work on a shard needs of the process that it runs in."""

from collections.abc import Callable
from typing import Any, Protocol


class Host(Protocol):
    """A worker, as a shard sees it."""

    @property
    def folder(self) -> str:
        """A local folder for files that live as long as the worker."""

    @property
    def name(self) -> str:
        """The worker's name, for the ledger."""

    @property
    def address(self) -> str:
        """Where Dask reaches the worker; another one that takes its place has another."""

    def log_event(self, topic: str, message: dict[str, Any]) -> None:
        """Send the driver a message."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function after so many seconds, on another thread than the shard's."""
