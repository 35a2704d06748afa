"""The driver of a study and its workers, in this process, by the parts that flows use."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from partwise.choices import OnExisting
from partwise.engine.worker.segments import SegmentWriter
from partwise.reports.report import write_report
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import settle_unchanged
from partwise.runs.ledger import LedgerRow
from partwise.runs.run import Run
from partwise.runs.trials import TRIAL, TRIAL_KEY, TrialRecord
from partwise.store.signing import is_configured
from partwise.store.store import Store
from partwise.studies.driver import StudyEnd
from partwise.studies.ledger import complete_study, keep_trials, known_trials
from partwise.tables.keys.partition_keys import partition_ids

RUN_ID = "study"
IDENTITY = Identity(run_id=RUN_ID, kind="tune", key_columns=TRIAL_KEY)


def drive_study(
    store: Store, trials: int, code: str = "c", on_existing: OnExisting = "resume"
) -> Run:
    """Run trials until there are as many; those that have ended are kept.

    Args:
        store: Where the run is.
        trials: How many there are to be.
        code: The fingerprint of the function.
        on_existing: What becomes of earlier generations.
    """
    started_at = datetime.now(UTC)
    intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint=code)
    with Claim(store, IDENTITY, on_existing) as claim:
        known = known_trials(claim, intent)
        if len(known.kept) >= trials and claim.is_settled(intent):
            claim.begin(n_shards=0, intent=intent)
            run = settle_unchanged(claim, started_at)
        else:
            claim.begin(n_shards=1, intent=intent, partitions=trials)
            execution: Any = SimpleNamespace(
                is_signed=is_configured(store),
                store=store,
                run_id=RUN_ID,
                kind="tune",
                generation=claim.generation,
                options=SimpleNamespace(first_segment_s=60.0),
            )
            keep_trials(execution, known)
            taken = {trial.number for trial in known.kept}
            _try(execution, [number for number in range(trials) if number not in taken], code)
            run = complete_study(claim, StudyEnd(), None, started_at=started_at, stages={})
        write_report(run)
        return run


def _try(execution: Any, numbers: Sequence[int], code: str) -> None:
    """Do as workers do: each trial is a segment of its own."""
    for number in numbers:
        keys = pa.table({TRIAL: pa.array([number], pa.int64())})
        writer = SegmentWriter(execution, number, keys)
        name = partition_ids(keys, TRIAL_KEY)[0]
        model = writer.add_artifact(name, "model.txt", f"{number} {code}".encode())
        record = TrialRecord(
            settings={"x": number}, metric="loss", maximized=False, value=float(number)
        )
        row = LedgerRow(
            partition_id=name,
            shard=number,
            generation=execution.generation,
            status="DONE",
            attempts=1,
            rows=1,
            finished_at=datetime.now(UTC),
            trial=record.to_json(),
            artifacts=(model,),
        )
        writer.add(0, row)
        writer.commit()


def check_study(run: Run, trials: int) -> None:
    """See that a run has all of its trials once, each with its model, and the best of them."""
    assert run.counts == {"DONE": trials}, f"counts are {run.counts}"
    assert run.trials["trial"].to_pylist() == list(range(trials))
    for number in range(trials):
        model = run.artifact(number, "model.txt")
        assert model.split()[0] == str(number), f"trial {number} has the model {model!r}"
    assert run.best.number == 0
