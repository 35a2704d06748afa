"""Keys of partitions as they are typed: what a text stands for, and which partition it names."""

import csv
import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from partwise.errors import InputError, PartitionNotFoundError
from partwise.formatting import MOST_TO_COMPARE, did_you_mean
from partwise.outcomes import RunStatus
from partwise.runs.key_texts import key_texts
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import Key, KeyClass, KeyColumn


def find_partition(run: Run, text: str) -> str:
    """Return the partition_id that is meant by a key, as `parse_key` reads it, or by itself.

    Raises:
        InputError: The text is no key of the run's classes.
        PartitionNotFoundError: The run has no such partition.
    """
    return find_partitions(run, [text])[0]


def find_partitions(run: Run, texts: Sequence[str]) -> list[str]:
    """Return the partition_id of each text, as `find_partition` does.

    Raises:
        InputError: A text is no key of the run's classes.
        PartitionNotFoundError: The run has no such partition.
    """
    known = set(run.ledger["partition_id"].to_pylist())
    found = []
    for text in texts:
        try:
            name = run.partition_id(parse_key(text, run.key_columns))
        except InputError:
            if text not in known:
                raise
            name = text
        if name not in known and text not in known:
            unfinished = " yet" if run.status is RunStatus.IN_PROGRESS else ""
            hint = did_you_mean(text, key_texts(run.ledger, MOST_TO_COMPARE))
            raise PartitionNotFoundError(
                f"The run {run.run_id!r} has no partition {text!r}{unfinished}.{hint}"
            )
        found.append(name if name in known else text)
    return found


def parse_key(text: str, columns: tuple[KeyColumn, ...]) -> Key:
    """Return the key that a text stands for.

    Args:
        text: A value; for several key columns, values with commas between them, as in a CSV file.
            Dates and times as ISO 8601, durations as seconds, binary as hexadecimal digits, null
            as "null" (but for strings: there, give the partition_id).
        columns: The key columns of the run.

    Raises:
        InputError: It is not of these classes.

    Example:
        >>> store = KeyColumn(name="store", key_class=KeyClass.STRING)
        >>> day = KeyColumn(name="day", key_class=KeyClass.DATE)
        >>> parse_key("a-1,2026-03-01", (store, day))
        ('a-1', datetime.date(2026, 3, 1))
    """
    texts = [text] if len(columns) == 1 else next(csv.reader([text]), [])
    if len(texts) != len(columns):
        names = ",".join(column.name for column in columns)
        raise InputError(
            f"--key {text!r} has {len(texts)} values, and the key has {len(columns)}: {names}."
        )
    values = [_parse_key_value(text, column) for text, column in zip(texts, columns, strict=True)]
    return values[0] if len(columns) == 1 else tuple(values)


def _parse_key_value(text: str, column: KeyColumn) -> Any:
    if column.key_class is KeyClass.STRING:
        return text
    if text == "null":
        return None
    parse, example = _PARSERS[column.key_class]
    try:
        return parse(text)
    except (ValueError, ArithmeticError) as error:
        raise InputError(
            f"--key: {text!r} is no {column.key_class} for the key column {column.name!r}; write "
            f"it like {example}."
        ) from error


_PARSERS: dict[KeyClass, tuple[Callable[[str], Any], str]] = {
    KeyClass.INTEGER: (int, "42"),
    KeyClass.FLOAT: (float, "0.5"),
    KeyClass.BOOLEAN: (lambda text: ("false", "true").index(text.lower()) == 1, "true"),
    KeyClass.TIMESTAMP: (dt.datetime.fromisoformat, "2026-03-01T12:00:00"),
    KeyClass.TIMESTAMP_TZ: (dt.datetime.fromisoformat, "2026-03-01T12:00:00+00:00"),
    KeyClass.DATE: (dt.date.fromisoformat, "2026-03-01"),
    KeyClass.TIME: (dt.time.fromisoformat, "12:30:00"),
    KeyClass.DURATION: (lambda text: dt.timedelta(seconds=float(text)), "90 (seconds)"),
    KeyClass.DECIMAL: (Decimal, "19.90"),
    KeyClass.BINARY: (bytes.fromhex, "00ff"),
    KeyClass.NULL: (lambda text: ("null",).index(text), "null"),
}
