"""`partwise runs export`: a table of a run as a file for other programs, or its artifacts."""

from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from cyclopts import Parameter

from partwise.catalogs.evaluated import Evaluated
from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.keys import find_partitions
from partwise.flows.cli.options import AnyStore, Force, RunId
from partwise.formatting import counted, size
from partwise.runs.artifact_files import write_artifact_files
from partwise.runs.run import Run
from partwise.runs.table_file import write_table_file
from partwise.store.store import Store

# One list: of a union of two no error could say what there is.
Tables = Literal["ledger", "metrics", "predictions", "verdicts", "drift", "artifacts"]


def export_run(
    run_id: RunId,
    /,
    *,
    what: Tables = "ledger",
    to: str,
    pattern: str = "*",
    key: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    force: Force = False,
    store: AnyStore = "artifacts",
) -> int:
    """Write a table of a run to a CSV or Parquet file, or its artifacts to a folder.

    Artifacts become files of a folder or bucket: KEY/FILE, or PARTITION_ID/FILE where a key cannot
    be the name of a folder. A second call goes on where the first was cut off.

    Args:
        what: ledger: a row for each partition. metrics: a row for each value of a metric, with its
            key. predictions: the rows of an inference or map run. verdicts and drift: of an
            evaluation, a row for each key, and for each feature of a key that may have drifted.
            artifacts: the files that partitions have: models, logs, and what functions have
            uploaded.
        to: The file: .csv or .parquet. Of artifacts a folder, or a URL such as s3://bucket/folder.
        pattern: Of the names of artifacts, such as "*.png".
        key: Of a partition whose artifacts are wanted; may be given several times. Default: all.
    """
    run = Run.open(run_id, store)
    if what == "artifacts":
        names = find_partitions(run, key) if key else None
        done = write_artifact_files(
            run.ledger,
            run.read_stored,
            Store.parse(to),
            pattern=pattern,
            partition_ids=names,
            overwrite=force,
        )
        written = f"{counted(done.files, 'file')} of {counted(done.partitions, 'partition')}"
        output.print_line(f"{to}: {written}, {size(done.size_bytes)}")
        return 0
    if key or pattern != "*":
        raise InputError(f"--key and --pattern are for artifacts, not for {what}: leave them out.")
    path = Path(to)
    match what:
        case "verdicts" | "drift":
            rows = write_table_file(run, _found(run, what), path, overwrite=force)
        case _:
            rows = write_table_file(run, what, path, overwrite=force)
    written = f"{counted(rows, 'row')}, {size(path.stat().st_size)}"
    output.print_line(f"{to}: {written}")
    return 0


def _found(run: Run, what: Literal["verdicts", "drift"]) -> pa.Table:
    """Return a table of what an evaluation found."""
    found = Evaluated.of(run)
    if what == "drift" and not found.tests:
        raise InputError(
            f"The evaluation {run.run_id!r} compared no features with those of the training: it "
            'was called with drift="none", nothing was predicted, or the models have no sketches '
            "of their rows."
        )
    return found.table if what == "verdicts" else found.drift
