"""`partwise demo`: a first run, on a table made for it."""

from partwise.flows.cli.news import plain_news, server_of_runs


def demo(directory: str = "demo", /) -> int:
    """Train 100 models on a made-up retail table, and forecast a month with them.

    Args:
        directory: Where the table and the runs are written. A second call resumes them.
    """
    with plain_news(), server_of_runs():
        from partwise.flows.demo.run_demo import run_demo

        return run_demo(directory)
