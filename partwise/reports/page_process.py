"""A report written to standard output, by a process of its own.

What a store holds is read with the memory and for the time of this process, not of its parent.
"""

import json
import sys

REFUSED = 3
"""The exit code where there is no report, for a reason that stands in standard error."""


def main(argument: str) -> None:
    """Write the report of a run as it stands; the JSON has `run_id` and the fields of `store`."""
    # Here, since the server that knows REFUSED does without what this needs.
    from partwise.errors import PartwiseError
    from partwise.redaction import without_secrets
    from partwise.reports.report import render_report
    from partwise.runs.run import Run
    from partwise.store.store import Store

    wanted = json.loads(argument)
    try:
        # Of the newest generation, as the reports in the store are.
        run = Run.open(wanted["run_id"], Store(**wanted["store"])).newest
        page = render_report(run)
    except PartwiseError as error:
        sys.stderr.write(without_secrets(str(error)))
        sys.exit(REFUSED)
    sys.stdout.buffer.write(page.encode())
