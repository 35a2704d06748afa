"""Opening the report of a run in a browser (`partwise runs show RUN --open`)."""

import tempfile
import webbrowser
from pathlib import Path

from partwise.flows.cli.output import console
from partwise.reports.report import read_report, render_report
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.run import Run


def open_report(run: Run) -> None:
    """Open the report of a run in a browser, and print its path.

    A report in a local store is opened in its place. Where the store is remote, or the report is
    missing or older than the run, a temporary file is written, which stays for the browser.
    """
    path = _report_file(run)
    try:
        is_open = webbrowser.open(path.as_uri())
    except (webbrowser.Error, OSError):
        is_open = False
    note = "" if is_open else "  (no browser could be opened here: copy it to one)"
    console().print(f"report: {path}{note}", markup=False)


def _report_file(run: Run) -> Path:
    content = read_report(run)
    local = run.store.local_path(run_path(run.run_id, REPORT_FILE))
    if content is not None and local is not None:
        return Path(local)
    path = Path(tempfile.mkdtemp(prefix="partwise-report-")) / f"{run.run_id}.html"
    # Of the newest generation, as the reports in the store are.
    path.write_bytes(render_report(run.newest).encode() if content is None else content)
    return path
