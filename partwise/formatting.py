"""Keys, quantities and errors as text, for the command line, reports and messages."""

import csv
import datetime as dt
import io
from collections.abc import Sequence
from typing import Any


def key_text(values: Sequence[Any]) -> str:
    """Return the key of a partition as `--key` takes it.

    Args:
        values: One for each key column; several are joined as in a line of CSV.

    Example:
        >>> key_text(["Basel, SBB", 7])
        '"Basel, SBB",7'
    """
    texts = [value_text(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


def value_text(value: Any) -> str:
    """Return a key's value as `--key` takes it."""
    match value:
        case None:
            return "null"
        case bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case dt.timedelta():
            return f"{value.total_seconds():g}"
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)


def shortened(text: str, most: int = 200) -> str:
    """Return the text in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def number(value: float) -> str:
    """Return four significant digits, never in powers of ten where plain digits do."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them.

    Example:
        >>> duration(4.21), duration(75), duration(7200)
        ('4.2 s', '1 min 15 s', '2 h 00 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(size_bytes: float) -> str:
    """Return bytes in a unit that gives few digits."""
    value = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def reason(error: BaseException) -> str:
    """Return the line that says what went wrong at the root, which libraries wrap in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # What Keras and TensorFlow put before it.
    lines = [line for line in lines if not line.startswith(("Exception encountered", "in user"))]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."
