"""The driver of a gang and its first rank, in this process, by the parts that flows use."""

import secrets
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.ledger import commit_ranks
from partwise.gangs.resume_point import resume_point
from partwise.gangs.spec import RANK_KEY, RankEnd
from partwise.reports.report import write_report
from partwise.runs.bundle import BundleWriter
from partwise.runs.checkpoints import CHECKPOINTS
from partwise.runs.claim import Claim, Identity, Intent, OnExisting
from partwise.runs.completion import settle_unchanged
from partwise.runs.documents import BUNDLES, execution_token, run_path, segment_file
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_id
from tests.one_model import rank_end

RUN_ID = "gang"
IDENTITY = Identity(run_id=RUN_ID, kind="train-distributed", key_columns=RANK_KEY)
RANKS = 2
STEPS = 4
"""After each there is a checkpoint."""


class Died(Exception):
    """The driver and its ranks were killed."""


def drive_gang(
    store: Store,
    code: str = "c",
    on_existing: OnExisting = "resume",
    *,
    dies_after: int | None = None,
) -> Run:
    """Train one model, from its newest checkpoint on, until the run is complete.

    Args:
        store: Where the run is.
        code: The fingerprint of the function.
        on_existing: What becomes of earlier generations.
        dies_after: The step behind which driver and ranks are killed.
    """
    started_at = datetime.now(UTC)
    intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint=code)
    with Claim(store, IDENTITY, on_existing) as claim:
        if claim.is_settled(intent):
            claim.begin(n_shards=0, intent=intent)
            run = settle_unchanged(claim, started_at)
        else:
            generations = (*claim.resumable_generations(intent), claim.next_generation)
            claim.begin(n_shards=1, intent=intent, partitions=RANKS)
            with tempfile.TemporaryDirectory() as folder:
                end = _train(claim, generations, Path(folder), dies_after)
            run = commit_ranks(claim, [end, rank_end(1)], RANKS, started_at=started_at)
        write_report(run)
        return run


def _train(
    claim: Claim, generations: tuple[int, ...], folder: Path, dies_after: int | None
) -> RankEnd:
    """Do as the first rank of an attempt does; its state is the steps that are behind it."""
    store, generation = claim.store, claim.generation
    checkpoints = StoreCheckpoints(
        store,
        run_path(RUN_ID, CHECKPOINTS),
        run_id=RUN_ID,
        generation=generation,
        attempt=1,
        directory=folder,
        resume_from=resume_point(store, RUN_ID, generations),
    )
    found = checkpoints.resume_from()
    state = "" if found is None else (found / "state.txt").read_text()
    while len(state) < STEPS:
        state += str(len(state))
        checkpoints.save(partial(_write, state), step=len(state))
        if len(state) == dies_after:
            raise Died
    name = segment_file(0, execution_token(generation, secrets.token_hex(4)), 1, "zip")
    bundle = BundleWriter(f"{BUNDLES}/{name}")
    model = bundle.add(partition_id(0, RANK_KEY), "model.txt", state.encode(), "")
    store.create(run_path(RUN_ID, bundle.path), bundle.close())
    return rank_end(0, model)


def _write(state: str, folder: Path) -> None:
    (folder / "state.txt").write_text(state)


def check_gang(run: Run) -> None:
    """See that a run is complete, and its model."""
    assert run.counts == {"DONE": RANKS}, f"counts are {run.counts}"
    model = run.artifact(0, "model.txt")
    assert model == b"0123"[:STEPS], f"the model is {model!r}"
