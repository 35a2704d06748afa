"""What the tests of SQL call: functions for workers, and a process that dies while it publishes."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector


def twice(data: DataConnector, context: PartitionContext) -> Any:
    """Two columns; one partition fails, one has no rows."""
    if context.key == "bad":
        raise ValueError("a bad one")
    value = data.to_numpy("value")
    return {"twice": 2 * value, "text": [f"it's {context.key}"] * len(value)}


def thrice(data: DataConnector, context: PartitionContext) -> Any:
    return {"twice": 3 * data.to_numpy("value"), "text": ["new"] * data.num_rows}


def fit(data: DataConnector, context: PartitionContext) -> Any:
    return {"mean": float(np.mean(data.to_numpy("value")))}


def predict(data: DataConnector, model: Any, context: PartitionContext) -> Any:
    return {"mean": np.full(data.num_rows, model["mean"])}


def die_at(place: int) -> None:
    """Have this process killed before its n-th statement, with nothing said to the server."""
    from adbc_driver_manager import dbapi

    seen = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == place:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for kind, name in (
        (dbapi.Cursor, "execute"),
        (dbapi.Cursor, "adbc_ingest"),
        (dbapi.Connection, "commit"),
    ):
        setattr(kind, name, counted(getattr(kind, name)))


def in_child(work: Callable[[], Any]) -> int:
    """Call a function in a forked process; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def publish_and_die(run_id: str, store: str, uri: str) -> None:
    """For n = 1, 2, ...: publish into a table of its own, killed at n; then publish whole."""
    from partwise.publishing.sql_output import Table, publish
    from partwise.runs.run import Run

    run = Run.open(run_id, store)
    place = 0
    while True:
        place += 1
        table = Table(f"killed_{place}", uri)

        def die(table: Table = table, place: int = place) -> None:
            die_at(place)
            publish(run, table)

        _, status = os.waitpid(in_child(die), 0)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        publish(run, table)
    together = [in_child(lambda: publish(run, Table("together", uri))) for _ in range(3)]
    for child in together:
        assert os.waitpid(child, 0)[1] == 0
    print(place)


if __name__ == "__main__":
    publish_and_die(*sys.argv[1:])
