"""`partwise runs model`: one model as a file of its own."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from partwise.flows.cli import output
from partwise.flows.cli.keys import find_partition
from partwise.flows.cli.options import AnyStore, Force, RunId
from partwise.formatting import size
from partwise.runs.model_file import write_model_file
from partwise.runs.run import Run


def write_model(
    run_id: RunId,
    key: Annotated[str | None, Parameter(name="KEY")] = None,
    /,
    *,
    to: Path,
    force: Force = False,
    store: AnyStore = "artifacts",
) -> int:
    """Write the model of one partition to a file, in the format of its own library.

    It is checked against its checksum. Nothing in it is run: a pickle is written as it is.

    Args:
        key: The partition: its key, with commas between several columns, or its partition_id.
            Default: the only model of the run, or the best of a study.
        to: The file; or a folder that is there, where the model gets its own name.
    """
    run = Run.open(run_id, store)
    name = run.partition_id(run.only_key()) if key is None else find_partition(run, key)
    for file in write_model_file(run, name, to, overwrite=force):
        kind = f", serde {file.serde}" if file.serde else ", which the model refers to"
        output.print_line(f"{file.path}: {size(file.size_bytes)}{kind}")
    return 0
