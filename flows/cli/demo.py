"""`partwise demo`: a first run, on a table made for it."""


def demo(directory: str = "demo", /) -> int:
    """Train 100 models on a made-up retail table, and forecast a month with them.

    Args:
        directory: Where the table and the runs are written. A second call resumes them.
    """
    from partwise.flows.cli.prefect_log import plain_news, prefect_server

    with plain_news(), prefect_server():
        from partwise.flows.demo.run_demo import run_demo

        return run_demo(directory)
