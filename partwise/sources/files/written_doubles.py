"""Doubles of key columns in several CSV files: all are written in one way, or they are codes.

`1.10` in one file and `1.1` in another are one double and may be two keys. So all files are to
write them alike: with as many decimals as each needs, where `1` and `1.0` are the same, or all with
a fixed number of decimals. Each file can be held to it by itself, wherever it is read.
"""

import re
from collections.abc import Iterable

import pyarrow as pa

from partwise.sources.files.csv_numbers import as_plain, without_nulls
from partwise.sources.files.reading_options import CsvOptions

SHORTEST = -1
"""As many decimals as a number needs; others are so many."""
_DECIMALS = re.compile(r"-?[0-9]+(?:\.([0-9]*))?")


def ways_of_writing(texts: pa.Array, options: CsvOptions) -> frozenset[int] | None:
    """Return the ways in which all of some numbers may be written; None: there is no number."""
    ways: frozenset[int] | None = None
    plain = as_plain(without_nulls(texts, options).drop_null().unique(), options)
    for text in plain.to_pylist():
        found = _ways_of(text)
        if found is not None:
            ways = found if ways is None else ways & found
    return ways


def common_way(of_files: Iterable[frozenset[int] | None]) -> int | None:
    """Return the way in which all files write their numbers; None: there is none.

    Args:
        of_files: What `ways_of_writing` returned for the first rows of each.
    """
    known = [ways for ways in of_files if ways is not None]
    if not known:
        return SHORTEST
    common = frozenset.intersection(*known)
    return min(common) if common else None


def written_otherwise(texts: pa.Array, way: int, options: CsvOptions) -> str | None:
    """Return a number that is written in another way; None: there is none."""
    for text, plain in zip(texts.to_pylist(), as_plain(texts, options).to_pylist(), strict=True):
        found = _ways_of(plain)
        if found is not None and way not in found:
            return str(text)
    return None


def _ways_of(text: str) -> frozenset[int] | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if number - number != 0:
        # Not finite.
        return None
    ways = {SHORTEST} if repr(number) in (text, f"{text}.0", text.lower()) else set()
    if decimals := _DECIMALS.fullmatch(text):
        ways.add(len(decimals[1] or ""))
    return frozenset(ways)
