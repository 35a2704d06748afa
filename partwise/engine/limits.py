"""What one partition may use."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from distributed import Client

LEFT_TO_THE_REST = 0.2
"""The part of a machine's memory that partitions are not given."""


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
    return int((1 - LEFT_TO_THE_REST) * psutil.virtual_memory().total / limits.slots_per_host)


def smallest_memory_limit(client: "Client", limits: Limits) -> int:
    """Return the memory that a partition may use on whichever worker."""
    if limits.memory_bytes is not None:
        return limits.memory_bytes
    # The workers are asked: the driver's machine may have far more memory, or far less.
    answers = client.run(memory_limit, limits, on_error="ignore")
    return min(answers.values(), default=sys.maxsize)
