"""The keys of a run's partitions as people read and type them."""

import csv
import datetime as dt
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from partwise.errors import KeyClassError
from partwise.formatting import counted, key_text
from partwise.runs.ledger import key_names
from partwise.tables.column_types import is_text
from partwise.tables.keys.partition_keys import Key, KeyClass, KeyColumn, partition_id

LONGEST_DIGITS = 14
"""Of the seconds of a duration: those of Python's longest, and one more."""
_MOST_DIGITS = 76
"""Of a decimal of Arrow, on either side of the point."""


def key_columns_text(columns: Iterable[KeyColumn]) -> str:
    """Return key columns with the classes of their values."""
    return ", ".join(f"{column.name} ({column.key_class})" for column in columns)


def key_reader(ledger: pa.Table) -> Callable[[int], str]:
    """Return a function that gives the key of a row of a ledger, as `--key` takes it."""
    columns, names = ledger.select(key_names(ledger.column_names)), ledger["partition_id"]
    return lambda row: row_key_text(columns, row) or str(names[row].as_py())


def row_key_text(keys: pa.Table, row: int) -> str | None:
    """Return the key in a row of key columns as `--key` takes it.

    None: it takes the partition_id alone, of a date that Python has not, and of a null among texts,
    whose word is a text as well.
    """
    columns = keys.columns
    try:
        values = [column[row].as_py() for column in columns]
        text = key_text(values)
    except (ValueError, OverflowError):  # a date that Python's own cannot hold
        return None
    pairs = zip(values, columns, strict=True)
    return None if any(value is None and is_text(each.type) for value, each in pairs) else text


def key_texts(ledger: pa.Table, most: int | None = None) -> list[str]:
    """Return the keys of a ledger's first rows (`most` None: of all) as `--key` takes them."""
    rows = ledger if most is None else ledger.slice(0, most)
    return list(map(key_reader(rows), range(rows.num_rows)))


def parse_key(text: str, columns: tuple[KeyColumn, ...]) -> Key:
    """Return the key that a text stands for.

    Args:
        text: A value; for several key columns, values with commas between them, as in a CSV file.
            Dates and times as ISO 8601, durations as seconds, binary as hexadecimal digits, null
            as "null" (but for strings: there, give the partition_id).
        columns: The key columns of the run.

    Raises:
        KeyClassError: It is not of these classes.

    Example:
        >>> store = KeyColumn(name="store", key_class=KeyClass.STRING)
        >>> day = KeyColumn(name="day", key_class=KeyClass.DATE)
        >>> parse_key("a-1,2026-03-01", (store, day))
        ('a-1', datetime.date(2026, 3, 1))
    """
    try:
        texts = [text] if len(columns) == 1 else next(csv.reader([text]), [])
    except csv.Error as error:
        raise KeyClassError(f"The key {text[:80]!r} is not a line of CSV: {error}.") from error
    if len(texts) != len(columns):
        names = ",".join(column.name for column in columns)
        raise KeyClassError(
            f"The key {text!r} has {counted(len(texts), 'value')}, and those of the run have "
            f"{len(columns)}: {names}."
        )
    values = [parse_key_value(text, column) for text, column in zip(texts, columns, strict=True)]
    return values[0] if len(columns) == 1 else tuple(values)


def named_partition(key: Key, columns: tuple[KeyColumn, ...]) -> str:
    """Return the partition_id of a key, which may also be given as a text, as `parse_key` takes it.

    Where the key is a single text, that is taken as it stands. So may each value of several, as
    JSON has them.

    Raises:
        KeyClassError: Its values are of other classes.
    """
    if isinstance(key, str):
        key = parse_key(key, columns)
    if isinstance(key, tuple) and len(key) == len(columns) > 1:
        values = zip(key, columns, strict=True)
        key = tuple(parse_key_value(v, c) if isinstance(v, str) else v for v, c in values)
    return partition_id(key, columns)


def parse_key_value(text: str, column: KeyColumn) -> Any:
    """Return the value of a key column that a text stands for; see `parse_key`."""
    if column.key_class is KeyClass.STRING:
        return text
    if text == "null":
        return None
    parse, example = _PARSERS[column.key_class]
    try:
        return parse(text)
    except (ValueError, ArithmeticError) as error:
        raise KeyClassError(
            f"The key {text!r} is not of the class {column.key_class} of the key column "
            f"{column.name!r}; write it like {example}."
        ) from error


def _parse_decimal(text: str) -> Decimal:
    value = Decimal(text)
    # Written out, 1E+500000000 takes seconds and half a gigabyte; Arrow has no more than 76 digits.
    if value.is_finite() and abs(value.adjusted()) > _MOST_DIGITS:
        raise ValueError("it has more digits than any decimal of Arrow")
    return value


def _parse_timestamp(text: str) -> Any:
    value = dt.datetime.fromisoformat(text)
    # Python's own forgets what is below a microsecond, by which alone two keys may differ.
    below = re.search(r"[.,]\d{6}(\d{1,3})(?!\d)", text)
    if below is None:
        return value
    zone = None if value.utcoffset() is None else "UTC"
    microseconds = pa.scalar(value, pa.timestamp("us", zone)).value
    return pa.scalar(microseconds * 1000 + int(f"{below[1]:0<3}"), pa.timestamp("ns", zone)).as_py()


def _parse_duration(text: str) -> Any:
    seconds = Decimal(text)
    if seconds.adjusted() > LONGEST_DIGITS:
        raise ValueError("it is longer than any duration")
    whole = int(seconds.scaleb(9))
    if whole % 1000:
        return pa.scalar(whole, pa.duration("ns")).as_py()
    return dt.timedelta(microseconds=whole // 1000)


_PARSERS: dict[KeyClass, tuple[Callable[[str], Any], str]] = {
    KeyClass.INTEGER: (int, "42"),
    KeyClass.FLOAT: (float, "0.5"),
    KeyClass.BOOLEAN: (lambda text: ("false", "true").index(text.lower()) == 1, "true"),
    KeyClass.TIMESTAMP: (_parse_timestamp, "2026-03-01T12:00:00"),
    KeyClass.TIMESTAMP_TZ: (_parse_timestamp, "2026-03-01T12:00:00+00:00"),
    KeyClass.DATE: (dt.date.fromisoformat, "2026-03-01"),
    KeyClass.TIME: (dt.time.fromisoformat, "12:30:00"),
    KeyClass.DURATION: (_parse_duration, "90 (seconds)"),
    KeyClass.DECIMAL: (_parse_decimal, "19.90"),
    KeyClass.BINARY: (bytes.fromhex, "00ff"),
    KeyClass.NULL: (lambda text: ("null",).index(text), "null"),
}
