"""How a gang ends in its run: a row of the ledger for each rank, then the summary."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from partwise.engine.outcome import with_failure
from partwise.gangs.spec import RANK_KEY, RankEnd
from partwise.outcomes import PartitionStatus, Stop
from partwise.runs.claim import Claim
from partwise.runs.completion import Ending, complete_run
from partwise.runs.contents import write_segment
from partwise.runs.documents import LEDGER, execution_token, run_path, segment_file
from partwise.runs.kinds import RANK
from partwise.runs.ledger import LedgerRow, segment_table
from partwise.runs.run import Run
from partwise.store.signing import is_configured
from partwise.tables.keys.partition_keys import partition_ids


def commit_ranks(
    claim: Claim,
    ends: Sequence[RankEnd],
    world_size: int,
    *,
    stopped: Stop | None = None,
    started_at: datetime | None = None,
    stages: Mapping[str, float] | None = None,
) -> Run:
    """Write the ledger of a gang and its summary, and return the run.

    Only the driver does so, when all ranks have ended: what ranks have uploaded counts for nothing
    until then, so a model is there only where the whole gang came to its end.

    `ends` need not have those that never ran. `stopped` is why the gang did not do its work; None:
    it did.

    Raises:
        RunBusyError: Another process took the run over meanwhile.
    """
    store, run_id = claim.store, claim.identity.run_id
    by_rank = {end.rank: end for end in ends}
    keys = pa.table({RANK: pa.array(range(world_size), pa.int64())})
    names = partition_ids(keys, RANK_KEY)
    rows = [
        _row(names[rank], by_rank.get(rank), claim.generation, stopped)
        for rank in range(world_size)
    ]
    token = execution_token(claim.generation, secrets.token_hex(4))
    path = run_path(run_id, LEDGER, segment_file(0, token, 1, "parquet"))
    table, is_signed = segment_table(keys, rows), is_configured(store)
    segment = write_segment(store, table, path, is_signed=is_signed)
    store.create(path, segment)
    ending = Ending(
        partitions=world_size,
        unfinished=(),
        stopped=stopped,
        rows=sum(end.rows or 0 for end in ends),
        dropped_rows=0,
        started_at=started_at or datetime.now(UTC),
        stages=stages or {},
    )
    return complete_run(claim, ending)


def _row(name: str, end: RankEnd | None, generation: int, stopped: Stop | None) -> LedgerRow:
    """Return the ledger row of a rank; None: it never ran."""
    row = LedgerRow(
        partition_id=name,
        shard=0,
        generation=generation,
        status=PartitionStatus.CANCELLED.value,
        rows=None,
        reason=None if stopped is None else stopped.reason,
    )
    if end is None:
        return row
    is_good = end.status in (PartitionStatus.DONE, PartitionStatus.SKIPPED)
    row = replace(
        row,
        # A rank that ended well in a gang that did not counts for nothing.
        status=row.status if is_good and stopped is not None else end.status.value,
        attempts=end.attempt,
        rows=end.rows,
        seconds=end.seconds,
        peak_memory_bytes=end.peak_memory_bytes,
        exit_code=end.exit_code,
        host=end.host,
        reason=end.reason or (None if end.failure else row.reason),
        metrics=end.metrics,
        artifacts=end.artifacts,
    )
    return row if end.failure is None else with_failure(row, end.failure)
