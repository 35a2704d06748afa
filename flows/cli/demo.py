"""`partwise demo`: a first run, on a table made for it."""

from pathlib import Path

from partwise.flows.cli.news import plain_news, server_of_runs
from partwise.processes.worker_server import begin_worker_server


def demo(directory: str = "demo", /) -> int:
    """Train 100 models on a made-up retail table, and forecast a month with them.

    Args:
        directory: Where the table and the runs are written. A second call resumes them.
    """
    if not Path(directory).exists():
        # Beside the imports of flows. A second call may have nothing to do.
        begin_worker_server()
    with plain_news(), server_of_runs():
        from partwise.flows.demo.run_demo import run_demo

        return run_demo(directory)
