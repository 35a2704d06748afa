"""Why partitions are not DONE: alike ones as one group, the largest group first."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.engine.failures import MESSAGE_CHARS
from partwise.outcomes import PartitionStatus

MOST_GROUPS = 30
SAMPLES = 5
_FULL_MESSAGES = 10  # groups whose message is shown up to MESSAGE_CHARS
_SHORT_CHARS = 400
_COLUMNS = (
    *("partition_id", "status", "reason"),
    *("error_type", "error_message", "error_fingerprint"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Partitions that ended alike."""

    status: str
    title: str
    message: str
    left_out: int
    """Characters of the message that are not shown."""
    fingerprint: str | None
    count: int
    share: float
    """Of the largest group, in percent."""
    samples: tuple[str, ...]
    partition_id: str
    """Of the first sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """All groups of some statuses."""

    groups: tuple[Cause, ...]
    """The largest, as many as were asked for."""
    partitions: int
    other_groups: int
    """Groups that are not shown,"""
    other_partitions: int
    """and partitions in them."""


def describe_causes(
    ledger: pa.Table,
    statuses: tuple[PartitionStatus, ...],
    key_of: Callable[[int], str],
    *,
    most: int = MOST_GROUPS,
    samples: int = SAMPLES,
) -> Causes:
    """Group the partitions of these statuses: failures by fingerprint, others by reason.

    Told are the `most` largest groups, each with some keys of it, as `key_of` has them.
    """
    chosen = pc.is_in(ledger["status"], value_set=pa.array(statuses)).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(chosen)
    table = ledger.select(_COLUMNS).take(pa.array(places, pa.int64()))
    kinds = pc.coalesce(table["error_fingerprint"], table["reason"], pa.scalar(""))
    alike = pc.binary_join_element_wise(table["status"], kinds, " ")
    codes = alike.combine_chunks().dictionary_encode()
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.unify_dictionaries().combine_chunks()
    numbers = codes.indices.to_numpy()
    counts = np.bincount(numbers, minlength=len(codes.dictionary))
    # Stable, since the same run is to give the same report.
    largest = np.argsort(-counts, kind="stable")
    order = np.argsort(numbers, kind="stable")
    stops = np.cumsum(counts)
    groups = []
    for rank, code in enumerate(largest[:most].tolist()):
        members = order[stops[code] - counts[code] :][: min(samples, counts[code])]
        row = table.slice(int(members[0]), 1).to_pylist()[0]
        message = str(row["error_message"] or row["reason"] or "").strip()
        kept = MESSAGE_CHARS if rank < _FULL_MESSAGES else _SHORT_CHARS
        groups.append(
            Cause(
                status=row["status"],
                title=str(row["error_type"] or row["status"]).rpartition(".")[2],
                message=message[:kept],
                left_out=max(0, len(message) - kept),
                fingerprint=row["error_fingerprint"],
                count=int(counts[code]),
                share=round(100 * int(counts[code]) / int(counts[largest[0]]), 1),
                samples=tuple(key_of(int(places[member])) for member in members),
                partition_id=row["partition_id"],
            )
        )
    return Causes(
        groups=tuple(groups),
        partitions=len(places),
        other_groups=max(0, len(largest) - most),
        other_partitions=int(counts[largest[most:]].sum()),
    )
