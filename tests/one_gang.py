"""The driver of a gang and its first rank, in this process, by the parts that flows use."""

import secrets
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from partwise.choices import OnExisting
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.ledger import commit_ranks
from partwise.gangs.resume_point import begin_attempt
from partwise.gangs.spec import RANK_KEY, GangSpec, RankEnd
from partwise.reports.report import write_report
from partwise.runs.bundle import BundleWriter
from partwise.runs.checkpoints import CHECKPOINTS
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import settle_unchanged
from partwise.runs.documents import BUNDLES, execution_token, run_path, segment_file
from partwise.runs.run import Run
from partwise.shuffle.shared_folder import StagedFile
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_id
from tests.one_model import rank_end

RUN_ID = "gang"
IDENTITY = Identity(run_id=RUN_ID, kind="train-distributed", key_columns=RANK_KEY)
INTENT = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
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
    intent = replace(INTENT, code_fingerprint=code)
    with Claim(store, IDENTITY, on_existing) as claim:
        if claim.is_settled(intent):
            claim.begin(n_shards=0, intent=intent)
            run = settle_unchanged(claim, started_at)
        else:
            spec = begin_gang(claim, intent)
            end = train(begin_attempt(spec, 1), 1, dies_after)
            run = commit_ranks(claim, [end, rank_end(1)], RANKS, started_at=started_at)
        write_report(run)
        return run


def begin_gang(claim: Claim, intent: Intent = INTENT) -> GangSpec:
    """Begin a generation, and return what its gang is asked to do."""
    resumable = claim.resumable_generations(intent)
    claim.begin(n_shards=1, intent=intent, partitions=RANKS)
    return GangSpec(
        token=execution_token(claim.generation, secrets.token_hex(4)),
        run_id=RUN_ID,
        generation=claim.generation,
        store=claim.store,
        nodes=(),
        payload=StagedFile(path="", where="disk"),
        resumable=resumable,
    )


def train(spec: GangSpec, attempt: int, dies_after: int | None = None) -> RankEnd:
    """Do as the first rank of an attempt does; its state is the steps that are behind it."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = StoreCheckpoints(
            spec.store,
            run_path(RUN_ID, CHECKPOINTS),
            run_id=RUN_ID,
            generation=spec.generation,
            attempt=attempt,
            directory=Path(folder),
            resume_from=spec.resume_from,
            resume_sha256=spec.resume_sha256,
        )
        found = checkpoints.resume_from()
        state = "" if found is None else (found / "state.txt").read_text()
        while len(state) < STEPS:
            state += str(len(state))
            checkpoints.save(partial(_write, state), step=len(state))
            if len(state) == dies_after:
                raise Died
    bundle = BundleWriter(f"{BUNDLES}/{segment_file(0, spec.token, attempt, 'zip')}")
    model = bundle.add(partition_id(0, RANK_KEY), "model.txt", state.encode(), "")
    spec.store.create(run_path(RUN_ID, bundle.path), bundle.close())
    return replace(rank_end(0, model), attempt=attempt)


def _write(state: str, folder: Path) -> None:
    (folder / "state.txt").write_text(state)


def check_gang(run: Run) -> None:
    """See that a run is complete, and its model."""
    assert run.counts == {"DONE": RANKS}, f"counts are {run.counts}"
    model = run.artifact(0, "model.txt")
    assert model == "0123"[:STEPS], f"the model is {model!r}"
