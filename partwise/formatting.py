"""Keys, quantities and errors as text, for the command line, reports and messages."""

import csv
import datetime as dt
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from pathlib import PurePath
from typing import Any

# The pictures that Unicode has for control characters; "?" in a box for what has none: C1, which
# some terminals obey too, marks that turn the direction of text, line breaks that are none in a
# file, and halves of pairs, which cannot be written at all.
PICTURES: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x7F: "\u2421",
    **dict.fromkeys((0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)), "\ufffd"),
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x2066, 0x206A)), "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}

TOO_LARGE = "a number beyond 1.8e308, which no double holds: give its logarithm, for example."
"""The end of a message about a whole number or a fraction of Python."""

STYLES: dict[str, str] = {
    "SUCCESS": "green",
    "DONE": "green",
    "IN_PROGRESS": "cyan",
    "PARTIAL_FAILURE": "yellow",
    "SKIPPED": "dim",
    "CANCELLED": "yellow",
    "FAILURE": "red",
    "FAILED": "red",
    "INTERNAL_ERROR": "red",
}
"""Colours of statuses, by their names."""


def visible(text: str, kept: str = "") -> str:
    r"""Return the text with a picture in place of each character that a terminal would obey.

    Keys, messages and logs come from others. Raw, they could clear the screen, set its title, or
    show another text than is there. Each character becomes one, so that places in the text stay.
    Those that are `kept`, such as line breaks, are left as they are.

    Example:
        >>> visible("a\x1b[2J") == "a\u241b[2J"
        True
    """
    pictures = PICTURES
    if kept:
        pictures = {code: picture for code, picture in PICTURES.items() if chr(code) not in kept}
    return text.translate(pictures)


def key_text(values: Sequence[Any]) -> str:
    """Return the key of a partition as `--key` takes it: several values as a line of CSV.

    Example:
        >>> key_text(["Basel, SBB", 7])
        '"Basel, SBB",7'
    """
    texts = [value_text(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    line = io.StringIO()
    # With the end of line that it has by itself, and without another: of others it does not quote
    # what would end a line within a value.
    csv.writer(line, lineterminator="\r\n").writerow(texts)
    return line.getvalue().removesuffix("\r\n")


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
            # To the last digit, by whole numbers: two keys may differ in it alone.
            whole = value // dt.timedelta(microseconds=1) * 1000 + getattr(value, "nanoseconds", 0)
            text = f"{Decimal(whole).scaleb(-9):f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)


MOST_TO_COMPARE = 20_000
"""Names that a wrong one is compared with: a second's work."""
LONGEST_TO_COMPARE = 200


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that are most like a name, the most alike first.

    Of very many that are known only the first are looked at.

    Example:
        >>> nearest("stroe", ["store", "day", "Store"])
        ['store', 'Store']
    """
    if len(name) > LONGEST_TO_COMPARE:
        return []
    names = [each for each in islice(known, MOST_TO_COMPARE) if len(each) <= LONGEST_TO_COMPARE]
    alike = get_close_matches(name, names, n=most)
    by_case = [each for each in names if each.lower() == name.lower() and each not in alike]
    return [*by_case, *alike][:most]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'store'?" for the end of a message; "" where nothing is like a name.

    Example:
        >>> did_you_mean("stroe", ["store", "day"]), did_you_mean("price", ["store", "day"])
        (" Did you mean 'store'?", '')
    """
    found = nearest(name, known, most=1)
    return f" Did you mean {found[0]!r}?" if found else ""


def some_of_those_there(names: Iterable[str]) -> str:
    """Return what follows the place in which a name was not found.

    Example:
        >>> some_of_those_there(["a", "b"]), some_of_those_there([])
        (' (some of those there: a, b)', ', which has none')
    """
    known = ", ".join(names)
    return f" (some of those there: {known})" if known else ", which has none"


def counted(number: int, noun: str) -> str:
    """Return how many there are of something, in the singular or the plural.

    Example:
        >>> counted(1, "partition"), counted(1200, "partition")
        ('1 partition', '1,200 partitions')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some_of(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first of some texts, and how many more there are.

    Example:
        >>> some_of(["a", "b"], 2), some_of(["a", "b", "c"], 1)
        ('a, b', 'a and 2 more')
    """
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return f"{between.join(texts[:most])}{more}"


def shortened(text: str, most: int = 200) -> str:
    """Return the text in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def number(value: float) -> str:
    """Return four significant digits, never in powers of ten where plain digits do."""
    # What four digits would round to 1e+04 is among those of five.
    return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them.

    Example:
        >>> duration(4.21), duration(75), duration(7200)
        ('4.2 s', '1 min 15 s', '2 h 00 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(size_bytes: float) -> str:
    """Return bytes in a unit that gives few digits."""
    value = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        text = f"{value:.0f}" if unit == "B" else f"{value:.1f}"
        if float(text) < 1000:
            return f"{text} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def reason(error: BaseException) -> str:
    """Return the line that says what went wrong at the root, which libraries wrap in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    # Keras makes its own bold, for a terminal.
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # What Keras and TensorFlow put before it.
    lines = [line for line in lines if not line.startswith(("Exception encountered", "in user"))]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


_SCALARS = (str, int, float, type(None))  # a bool is an int
_DEEPEST = 50


def lone_surrogate(value: Any) -> str:
    r"""Return which half of a pair of characters some text among plain values holds; "": none does.

    No file can hold such a text. It comes of half an emoji, or of a file name that is not UTF-8, as
    `os.fsdecode` gives it. It may be a secret, and is not repeated.

    Example:
        >>> lone_surrogate(["ab", "a\ud800"])
        "'\\ud800', half of a character, which no file can hold"
    """
    if isinstance(value, str | PurePath):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            return f"{error.object[error.start]!a}, half of a character, which no file can hold"
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return next(filter(None, map(lone_surrogate, value)), "")
    return ""


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON holds it; TypeError or ValueError: it holds no such value.

    Scalars of numpy and PyTorch are numbers, and tuples are lists.
    """
    if isinstance(value, _SCALARS):
        return value
    if depth > _DEEPEST:
        raise ValueError("it is too deep")
    if isinstance(value, list | tuple):
        return [plain_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a mapping of JSON has texts as keys")
        return {key: plain_value(item, depth + 1) for key, item in value.items()}
    # A scalar of numpy; the only element of an array would lose that it was one. Times and spans of
    # time in nanoseconds would be whole numbers.
    is_time = getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m")
    is_scalar = getattr(value, "shape", None) == () and not is_time
    if is_scalar and isinstance(plain := value.item(), _SCALARS):
        return plain
    raise TypeError(f"JSON holds no {type(value).__name__}")
