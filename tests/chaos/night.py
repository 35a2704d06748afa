"""A night of `lifecycle` as a process of its own, which may die before one of its writes.

    python -m tests.chaos.night STORE DAY [NUMBER]

It prints how many operations of the driver change the store; with a number it is killed before the
one of that number, and so is whatever comes after it.
"""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import date
from typing import Any

CHANGES = ("write", "create", "delete", "delete_folder", "move")


def watch(dies_before: int) -> Callable[[], int]:
    """Count what changes a store in this process, and return what tells how many there were."""
    from partwise.store.store import Store

    numbers = itertools.count(1)

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: Store, path: str, *more: Any, **named: Any) -> Any:
            # The heartbeat has a time of its own.
            if threading.current_thread().name != "lease-heartbeat":
                number = next(numbers)
                if number == dies_before:
                    os.kill(os.getpid(), signal.SIGKILL)
            return method(store, path, *more, **named)

        return call

    for name in CHANGES:
        setattr(Store, name, watched(getattr(Store, name)))
    return lambda: next(numbers) - 1


if __name__ == "__main__":
    # Not above: each worker that is started runs this file again.
    from partwise import ExecutionOptions, LocalCluster, PartwiseError, lifecycle
    from tests.nights import OPTIONS, TRAINER, rows_until

    store, day, *number = sys.argv[1:]
    counted = watch(int(number[0]) if number else 0)
    try:
        lifecycle(
            *(rows_until(date.fromisoformat(day)), "key", TRAINER, "sales", "day", "y"),
            day=day,
            store=store,
            execution=ExecutionOptions(n_shards=1),
            cluster=LocalCluster(workers=1),
            **OPTIONS,
        )
    except PartwiseError as error:
        print("REFUSED", error)
        sys.exit(3)
    print("CHANGES", counted())
