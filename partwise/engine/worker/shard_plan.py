"""The rule of keeping: which partitions of a shard still have to run, and which need not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from partwise.outcomes import PartitionStatus
from partwise.runs.contents import are_there


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What an execution of a shard does: each partition is in exactly one of the three."""

    waiting: list[int]
    """Places of the partitions to run, in the order of the shard."""
    committed: Counter[str]
    """Partitions that this generation has committed already, by status."""
    kept: pa.Table | None
    """Ledger rows of earlier generations that are taken over as they are."""


def plan_shard(
    ids: Sequence[str],
    fingerprints: Sequence[str] | None,
    current: pa.Table | None,
    earlier: pa.Table | None,
    files: set[str],
) -> ShardPlan:
    """Compare a shard with what is committed of it.

    `fingerprints` are of what each is computed from now: rows, params, trained model; None: what is
    DONE is kept, whatever it was computed from. `earlier` are rows of generations that may be kept
    from. `files` are those of the run that are on the store.
    """
    committed: Counter[str] = Counter()
    settled: set[str] = set()
    if current is not None:
        # Whatever its status: a failure of this generation has had its retries. That is how a
        # shard goes on that is started again because its worker died.
        committed.update(current["status"].to_pylist())
        settled.update(current["partition_id"].to_pylist())
    kept = None
    if earlier is not None:
        kept = earlier.filter(_may_be_kept(ids, fingerprints, settled, earlier, files))
        settled.update(kept["partition_id"].to_pylist())
    return ShardPlan(
        waiting=[place for place, name in enumerate(ids) if name not in settled],
        committed=committed,
        kept=kept if kept is not None and kept.num_rows else None,
    )


def _may_be_kept(
    ids: Sequence[str],
    fingerprints: Sequence[str] | None,
    settled: set[str],
    earlier: pa.Table,
    files: set[str],
) -> pa.Array:
    """Return for each row of an earlier generation whether it still holds."""
    waiting = set(ids) - settled
    wanted = None if fingerprints is None else dict(zip(ids, fingerprints, strict=True))
    rows = zip(
        earlier["partition_id"].to_pylist(),
        earlier["status"].to_pylist(),
        earlier["fingerprint"].to_pylist(),
        are_there(earlier, files).to_pylist(),
        strict=True,
    )
    # Only DONE: a resume is how failures get another chance, and a function may skip for a reason
    # that is gone. A partition that has no rows any more has no place in the ledger either. And a
    # row holds only together with its files, which a garbage collection or a person may have
    # removed: then the partition simply runs again.
    return pa.array(
        [
            status == PartitionStatus.DONE
            and name in waiting
            and (wanted is None or (fingerprint is not None and fingerprint == wanted[name]))
            and there
            for name, status, fingerprint, there in rows
        ],
        pa.bool_(),
    )
