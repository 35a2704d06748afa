"""What a gang tells while it runs: from its nodes to the driver, and from there to a listener."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

EventKind = Literal["joined", "started", "log", "steps", "ended", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEvent:
    """Something that happened in a gang."""

    kind: EventKind
    """joined: a node holds its slot; started: the ranks of a node run; log: a rank wrote lines;
    steps: rank 0 says how far it is; ended: a rank did; restart: the gang begins a new attempt."""
    attempt: int
    node: int | None = None
    rank: int | None = None
    host: str = ""
    lines: tuple[str, ...] = ()
    """Of a log: what was written, without the ends of lines."""
    steps: tuple[tuple[int, float], ...] = ()
    """Those that are new, with the watched metric at each."""
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
            case "steps":
                return f"rank {self.rank} is at step {self.steps[-1][0]}"
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
        steps = tuple((step, value) for step, value in message["steps"])
        return cls(**{**message, "lines": tuple(message["lines"]), "steps": steps})


class GangListener(Protocol):
    """Who wants to hear of a gang: a log, an artifact in the UI."""

    def update(self, event: GangEvent) -> None:
        """Take note; called on the driver's thread, so it should be quick."""
