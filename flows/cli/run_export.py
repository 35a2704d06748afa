"""`partwise runs export`: a table of a run as a file for other programs, or its artifacts."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.keys import find_partitions
from partwise.flows.cli.options import AnyStore, Force, RunId
from partwise.formatting import counted, size
from partwise.runs.artifact_files import write_artifact_files
from partwise.runs.run import Run
from partwise.runs.table_file import What, write_table_file
from partwise.store.store import Store


def export_run(
    run_id: RunId,
    /,
    *,
    what: What | Literal["artifacts"] = "ledger",
    to: str,
    pattern: str = "*",
    key: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    force: Force = False,
    store: AnyStore = "artifacts",
) -> int:
    """Write the ledger, the metrics or the predictions of a run to a CSV or Parquet file.

    Artifacts become files of a folder or bucket: KEY/FILE, or PARTITION_ID/FILE where a key cannot
    be the name of a folder. A second call goes on where the first was cut off.

    Args:
        what: ledger: a row for each partition. metrics: a row for each value of a metric, with its
            key. predictions: the rows of an inference or map run. artifacts: the files that
            partitions have: models, logs, and what functions have uploaded.
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
    rows = write_table_file(run, what, path, overwrite=force)
    written = f"{counted(rows, 'row')}, {size(path.stat().st_size)}"
    output.print_line(f"{to}: {written}")
    return 0
