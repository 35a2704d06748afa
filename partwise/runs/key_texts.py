"""The keys of a run's partitions as people read and type them."""

from collections.abc import Callable

import pyarrow as pa

from partwise.formatting import key_text
from partwise.runs.ledger import KEY_PREFIX


def key_reader(ledger: pa.Table) -> Callable[[int], str]:
    """Return a function that gives the key of a row of a ledger, as `--key` takes it."""
    keys = [name for name in ledger.column_names if name.startswith(KEY_PREFIX)]
    columns, names = ledger.select(keys), ledger["partition_id"]
    return lambda row: row_key_text(columns, row) or str(names[row].as_py())


def row_key_text(keys: pa.Table, row: int) -> str | None:
    """Return the key in a row of key columns as `--key` takes it; None where Python has no such."""
    try:
        return key_text([column[row].as_py() for column in keys.columns])
    except (ValueError, OverflowError):  # a date that Python's own cannot hold
        return None


def key_texts(ledger: pa.Table, most: int | None = None) -> list[str]:
    """Return the keys of a ledger's first rows (`most` None: of all) as `--key` takes them."""
    rows = ledger if most is None else ledger.slice(0, most)
    return list(map(key_reader(rows), range(rows.num_rows)))
