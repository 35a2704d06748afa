"""A run of one model without a gang: what its driver would have written."""

import secrets
from pathlib import Path
from typing import Any

from partwise.gangs.ledger import commit_ranks
from partwise.gangs.spec import RANK_KEY, RankEnd
from partwise.models.serdes import serde_for, serde_name
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import BundleWriter, StoredArtifact
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.documents import execution_token, run_path
from partwise.runs.run import Run
from partwise.store.store import Store


def make_model_run(
    store: Store,
    run_id: str,
    model: Any,
    directory: Path,
    *,
    ranks: int = 2,
    call: dict[str, Any] | None = None,
    files: dict[str, bytes] | None = None,
) -> Run:
    """Write a complete run of one model, which rank 0 has, in its native format.

    Args:
        store: Where the run goes.
        run_id: Its ID.
        model: The model.
        directory: A folder for its file.
        ranks: How many ranks the run has.
        call: What is written down as the call.
        files: Other artifacts of rank 0.
    """
    serde = serde_for(model)
    path = directory / serde.filename
    serde.write(model, str(path))
    identity = Identity(run_id=run_id, kind="train-distributed", key_columns=RANK_KEY)
    intent = Intent(
        source_fingerprint="rows", inputs_fingerprint="rows", code_fingerprint="code", call=call
    )
    with Claim(store, identity, "resume") as claim:
        claim.begin(n_shards=1, intent=intent, partitions=ranks)
        bundle = BundleWriter(f"bundles/rank-{execution_token(1, secrets.token_hex(4))}.zip")
        made: list[StoredArtifact] = [
            bundle.add("0", serde.filename, path.read_bytes(), serde_name(serde))
        ]
        made += [bundle.add("0", name, content, "") for name, content in (files or {}).items()]
        store.create(run_path(run_id, bundle.path), bundle.close())
        ends = [rank_end(rank, *(made if rank == 0 else ())) for rank in range(ranks)]
        return commit_ranks(claim, ends, ranks, stages={"gang": 1.0})


def rank_end(rank: int, *artifacts: StoredArtifact) -> RankEnd:
    """Return what a rank tells that did its part."""
    return RankEnd(
        rank=rank,
        host="here",
        attempt=1,
        status=PartitionStatus.DONE,
        exit_code=0,
        failure=None,
        seconds=1.0,
        peak_memory_bytes=1 << 20,
        rows=10,
        artifacts=artifacts,
    )
