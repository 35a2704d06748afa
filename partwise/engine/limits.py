"""What one partition may use."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partwise.cluster_calls import ask_workers

if TYPE_CHECKING:
    from distributed import Client

LEFT_TO_THE_REST = 0.2
"""The part of a machine's memory that partitions are not given."""
SILENCE_S = 60.0
"""A worker that is not heard of for so long has its work taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one partition may use; made once, by the driver."""

    timeout_s: float | None
    """None: no limit."""
    memory_bytes: int | None
    """None: its share of the worker's machine, which only the worker knows."""
    slots_per_host: int
    """Partitions that run at once on one machine, at most: they share its memory."""
    slots: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """By host, the GPUs of each partition that may run there at once. Empty: as many run at once
    as the workers have threads."""


def memory_limit(limits: Limits) -> int:
    """Return the memory that a partition may use on this machine; called on a worker."""
    if limits.memory_bytes is not None:
        return limits.memory_bytes
    from distributed import system  # here, since a child has no need of it

    # In a container it is the container's, and not what the machine has.
    return int((1 - LEFT_TO_THE_REST) * system.memory_limit() / limits.slots_per_host)


def smallest_memory_limit(client: "Client", limits: Limits) -> int:
    """Return the memory that a partition may use on whichever worker."""
    if limits.memory_bytes is not None:
        return limits.memory_bytes
    # The workers are asked: the driver's machine may have far more memory, or far less.
    answers = ask_workers(client, memory_limit, limits).values()
    return min((each for each in answers if isinstance(each, int)), default=sys.maxsize)
