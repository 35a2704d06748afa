"""Opening the report of a run in a browser (`partwise runs show RUN --open`)."""

import tempfile
import webbrowser
from pathlib import Path

from partwise.flows.cli import output
from partwise.reports.report import render_report
from partwise.runs.run import Run


def open_report(run: Run) -> None:
    """Open the report of a run in a browser, and print its path.

    It is written again to a temporary file, which stays for the browser. The one in the store is
    not opened: whoever can write there could have put any page with scripts in its place.
    """
    # Of the newest generation, as the reports in the store are.
    open_page("report", f"{run.run_id}.html", render_report(run.newest))


def open_page(what: str, filename: str, page: str) -> None:
    """Open an HTML page in a browser, from a temporary file, and print its path."""
    path = Path(tempfile.mkdtemp(prefix="partwise-report-")) / filename
    path.write_bytes(page.encode())
    try:
        is_open = webbrowser.open(path.as_uri())
    except (webbrowser.Error, OSError):
        is_open = False
    note = "" if is_open else "  (no browser could be opened here: copy it to one)"
    output.print_line(f"{what}: {path}{note}")
