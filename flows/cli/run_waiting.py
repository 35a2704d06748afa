"""`partwise runs wait|cancel`: for runs that another process works on."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS, code_of_run
from partwise.flows.cli.options import AnyStore, Json, RunId
from partwise.flows.cli.run_output import print_run, run_record
from partwise.runs.run import Run


def wait_for_run(
    run_id: RunId,
    /,
    *,
    timeout_s: Annotated[float, Parameter(validator=Number(gte=0))] | None = None,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Wait until no process works on a run, and print how it stands then.

    The exit code is that of the command that did the work; 1 where the run has not ended.

    Args:
        timeout_s: Wait for so many seconds. Default: as long as it takes.
        as_json: Print a JSON object.
    """
    Run.open(run_id, store).wait(timeout_s)
    run = Run.open(run_id, store)
    if as_json:
        output.print_json(run_record(run))
    else:
        print_run(run)
    return code_of_run(run)


def cancel_run(run_id: RunId, /, *, store: AnyStore = "artifacts") -> int:
    """Ask the process that works on a run to end it, as Ctrl-C does: what is committed is kept.

    It learns of it within a few seconds, wherever it runs; `partwise runs wait` waits for its end.
    """
    run = Run.open(run_id, store)
    if not run.cancel():
        output.tell(f"no process works on the run {run_id} ({run.status.value})")
        return FAILURE
    output.tell(f"asked for the end of the run {run_id}")
    return SUCCESS
