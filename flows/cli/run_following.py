"""`partwise runs show RUN --follow`: how far a run is, until it ends."""

import sys
import time

from rich.live import Live
from rich.text import Text

from partwise.flows.cli import output
from partwise.runs.documents import run_path
from partwise.runs.run import Run
from partwise.store.lease import OwnerWatch

LINE_S = 10.0
"""Between two lines that are no terminal's, of which there is one where something has changed."""


def follow(run: Run) -> None:
    """Print how far a run is until no process works on it: a line that renews itself, or lines."""
    watch = OwnerWatch(run.store, run_path(run.run_id))
    if sys.stdout.isatty():
        with Live(console=output.console(), auto_refresh=False, transient=True) as live:
            for _ in watch.looks():
                live.update(_line(run), refresh=True)
        return
    said_at, said = -LINE_S, ""
    for _ in watch.looks():
        line, now = str(_line(run)), time.monotonic()
        if line != said and now - said_at >= LINE_S:
            output.print_line(line)
            sys.stdout.flush()
            said_at, said = now, line


def _line(run: Run) -> Text:
    return Text(f"{run.run_id}: {run.progress()}")
