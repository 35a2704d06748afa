"""The rows of a study on a worker's machine: written once as Arrow IPC, for all trials there.

    <scratch folder>/studies/<token>/rows   the rows, which the children of all workers map
    <scratch folder>/studies/<token>.lock   locked, shared, by each worker that uses them

The locks end with their processes, so that what killed workers leave is removed by the next study.
"""

import fcntl
import os
import threading

from partwise.connector.spooling import map_spooled, write_spooled
from partwise.errors import SourceError
from partwise.ranks.rows import SourceFragments
from partwise.shuffle.shard_cache import own_folder
from partwise.store.entry_locks import lock_entry, remove_abandoned

_in_use: dict[str, int] = {}
"""The descriptors of this process' locks, by token."""
_beginning = threading.Lock()


def map_rows(rows: SourceFragments, token: str) -> tuple[str, int]:
    """Write the rows to this machine's disk, unless that has been done.

    Returned are the path of the file, for `SpooledReader`, and how many rows there are.
    """
    entry = own_folder("studies") / token
    # Of two threads that begin at the same time, one alone: the lock of the other would never end.
    with _beginning:
        if token not in _in_use:
            _in_use[token] = lock_entry(entry, fcntl.LOCK_SH)
            remove_abandoned(entry.parent)
    entry.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = entry / "rows"
    # A second lock: the other one says who uses the folder.
    writing = lock_entry(path, fcntl.LOCK_EX)
    try:
        if not path.exists():
            batches = (batch for part in rows.parts for batch in part.batches())
            new = path.with_suffix(".new")
            write_spooled(str(new), batches, rows.schema)
            # Its name says that it is whole: what a killed writer left is written again.
            new.rename(path)
    finally:
        os.close(writing)
    count = map_spooled(str(path)).num_rows
    if count == 0:
        why = f": the filter {rows.filter_text} leaves none" if rows.filter_text else ""
        raise SourceError(f"There are no rows to train on{why}.")
    return str(path), count


def forget_rows(token: str) -> None:
    """Give the rows of a study up; the last worker of a machine to do so removes them."""
    descriptor = _in_use.pop(token, None)
    if descriptor is not None:
        os.close(descriptor)
        remove_abandoned(own_folder("studies"), token)
