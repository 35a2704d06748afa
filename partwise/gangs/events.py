"""What a gang tells while it runs: from its nodes to the driver, and from there to a listener."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

EventKind = Literal["joined", "started", "log", "ended", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEvent:
    """Something that happened in a gang."""

    kind: EventKind
    """joined: a node holds its slot; started: the ranks of a node run; log: a rank wrote lines;
    ended: a rank did; restart: the gang begins a new attempt."""
    attempt: int
    node: int | None = None
    rank: int | None = None
    host: str = ""
    lines: tuple[str, ...] = ()
    """Of a log: what was written, without the ends of lines."""
    exit_code: int | None = None
    error: str = ""
    """Of an end that was a failure: type and message. Of a restart: why."""

    def __str__(self) -> str:
        match self.kind:
            case "joined":
                return f"node {self.node} joined on {self.host}"
            case "started":
                return f"node {self.node} started its ranks"
            case "log":
                return "\n".join(f"[rank {self.rank}] {line}" for line in self.lines)
            case "ended":
                how = self.error or f"exit status {self.exit_code}"
                return f"rank {self.rank} ended: {how}"
            case _:
                return f"attempt {self.attempt} begins: {self.error}"

    def to_message(self) -> dict[str, Any]:
        """Return the event as Dask sends it."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "GangEvent":
        """Return the event that `to_message` gave."""
        return cls(**{**message, "lines": tuple(message["lines"])})


class GangListener(Protocol):
    """Who wants to hear of a gang: a log, an artifact in the UI."""

    def update(self, event: GangEvent) -> None:
        """Take note; called on the driver's thread, so it should be quick."""
