"""A driver and its one worker, in this process: a run of one shard by the parts that flows use."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from partwise.choices import OnExisting
from partwise.engine.worker.segments import SegmentWriter
from partwise.engine.worker.shard_plan import plan_shard
from partwise.reports.report import write_report
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import Ending, complete_run, settle_unchanged
from partwise.runs.contents import files_there, read_committed
from partwise.runs.documents import segment_file
from partwise.runs.ledger import LedgerRow
from partwise.runs.outputs import rewrite_partial_files
from partwise.runs.run import Run
from partwise.store.signing import is_configured
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns, partition_ids

RUN_ID = "run"
COLUMNS = key_columns(pa.schema([("key", pa.string())]), ["key"])
IDENTITY = Identity(run_id=RUN_ID, kind="map", key_columns=COLUMNS)

Values = Mapping[str, float]
"""The rows of each partition, as a number."""


def drive(
    store: Store,
    values: Values,
    code: str = "c",
    on_existing: OnExisting = "resume",
    *,
    gives_rows: bool = True,
) -> Run:
    """Work on a run until it is complete: partitions that did not change are kept.

    Args:
        store: Where the run is.
        values: Its partitions.
        code: The fingerprint of the function.
        on_existing: What becomes of earlier generations.
        gives_rows: Whether the function returns rows, besides what it leaves in files.
    """
    started_at = datetime.now(UTC)
    intent = Intent(
        source_fingerprint="s",
        inputs_fingerprint=f"{sorted(values.items())}",
        code_fingerprint=code,
    )
    with Claim(store, IDENTITY, on_existing) as claim:
        if claim.is_settled(intent):
            claim.begin(n_shards=0, intent=intent)
            run = settle_unchanged(claim, started_at)
        else:
            claim.begin(n_shards=1, intent=intent, partitions=len(values))
            _work(claim, values, code, gives_rows)
            ending = Ending(
                partitions=len(values),
                unfinished=(),
                stopped=None,
                rows=len(values),
                dropped_rows=0,
                started_at=started_at,
                stages={},
            )
            run = complete_run(claim, ending)
        write_report(run)
        return run


def _work(claim: Claim, values: Values, code: str, gives_rows: bool) -> None:
    """Do as the worker of the shard does, in segments of two partitions."""
    store, keys = claim.store, list(values)
    names = partition_ids(pa.table({"key": keys}), COLUMNS)
    execution: Any = SimpleNamespace(
        is_signed=is_configured(store),
        store=store,
        run_id=RUN_ID,
        kind="map",
        generation=claim.generation,
        options=SimpleNamespace(first_segment_s=60.0),
    )
    writer = SegmentWriter(execution, 0, pa.table({"key": keys}))
    committed = read_committed(store, RUN_ID, 0, claim.generation, claim.compatible)
    prints = [f"{key} {value}" for key, value in values.items()]
    files = files_there(store, RUN_ID, "map", 0)
    plan = plan_shard(names, prints, committed.current, committed.earlier, files)
    if plan.kept is not None:
        files_of = sorted(set(plan.kept["rows_file"].drop_null().to_pylist()))
        names_of = {
            name: f"outputs/{segment_file(0, writer.token, 0, f'{number}.parquet')}"
            for number, name in enumerate(files_of)
        }
        writer.carry(rewrite_partial_files(store, RUN_ID, plan.kept, names_of.__getitem__))
    for count, place in enumerate(plan.waiting, 1):
        key, value = keys[place], values[keys[place]]
        note = writer.add_artifact(names[place], "note.txt", f"{key} {value} {code}".encode())
        row = LedgerRow(
            partition_id=names[place],
            shard=0,
            generation=claim.generation,
            status="DONE",
            attempts=1,
            rows=1,
            fingerprint=prints[place],
            finished_at=datetime.now(UTC),
            artifacts=(note,),
        )
        writer.add(place, row, pa.table({"key": [key], "value": [value]}) if gives_rows else None)
        if count % 2 == 0:
            writer.commit()
    writer.commit()


def check(run: Run, values: Values, *, gives_rows: bool = True) -> None:
    """See that a run is complete, and that all of it can be read."""
    assert run.counts == {"DONE": len(values)}, f"counts are {run.counts}"
    for key, value in values.items():
        note = run.artifact(key, "note.txt")
        assert note.split()[:2] == [key, str(value)], f"{key} is {note}"
    expected = [{"key": key, "value": value} for key, value in sorted(values.items())]
    rows = run.predictions()
    found = rows.sort_by("key").to_pylist() if rows.num_rows else []
    assert found == (expected if gives_rows else []), f"rows are {found}"
