"""`partwise runs export`: a table of a run as a file for other programs."""

from pathlib import Path

from partwise.flows.cli import output
from partwise.flows.cli.options import RunId, StoreUrl
from partwise.formatting import counted, size
from partwise.runs.run import Run
from partwise.runs.table_file import What, write_table_file


def export_run(
    run_id: RunId,
    /,
    *,
    what: What = "ledger",
    to: Path,
    force: bool = False,
    store: StoreUrl = "artifacts",
) -> int:
    """Write the ledger, the metrics or the predictions of a run to a CSV or Parquet file.

    Args:
        run_id: The run's ID.
        what: ledger: a row for each partition. metrics: a row for each value of a metric, with its
            key. predictions: the rows of an inference or map run.
        to: The file: .csv or .parquet.
        force: Replace a file that is there.
        store: A folder, or a URL such as s3://bucket/folder.
    """
    run = Run.open(run_id, store)
    rows = write_table_file(run, what, to, overwrite=force)
    written = f"{counted(rows, 'row')}, {size(to.stat().st_size)}"
    output.console().print(f"{to}: {written}", markup=False)
    return 0
