"""Numbers of key columns in several CSV files: all are written in one way, or they are codes.

`1.10` in one file and `1.1` in another are one double, `1.000` and `1000` are one number where dots
stand between thousands, and each may be two keys. So all files are to write them alike: with as
many decimals as each needs, where `1` and `1.0` are the same, or all with a fixed number of them;
and all with something between thousands, or none. Each file can be held to it by itself, wherever
it is read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import pyarrow as pa

from partwise.sources.files.csv_numbers import as_plain, without_nulls
from partwise.sources.files.reading_options import CsvOptions

Way = tuple[int, bool]
"""The number of decimals, and whether something stands between thousands."""
Ways = frozenset[Way]
"""In which a number may be one of a column: below a thousand it says nothing of thousands."""


@dataclass(frozen=True, slots=True)
class TwoSpellings:
    """Two numbers of a column that files write in different ways."""

    first: str
    first_path: str
    second: str
    second_path: str
    are_decimals: bool = False
    """Whether the first one has decimals that others may take for hundreds."""

    def __str__(self) -> str:
        return (
            f"{self.first!r} in file {self.first_path!r} and {self.second!r} in file "
            f"{self.second_path!r}"
        )


SHORTEST = -1
"""As many decimals as a number needs; others are so many."""
_EITHER = (False, True)
_DECIMALS = re.compile(r"-?([0-9]+)(?:\.([0-9]*))?")


def ways_of_writing(texts: pa.Array, options: CsvOptions) -> dict[Ways, str]:
    """Return the ways in which some numbers may be written, each with a number as it is written."""
    distinct = without_nulls(texts, options).drop_null().unique()
    found: dict[Ways, str] = {}
    for text, ways in _ways_of_each(distinct, options):
        found.setdefault(ways, text)
    return found


def common_way(numbers: Sequence[Ways]) -> Way | None:
    """Return the way in which all numbers are to be written; None: there is none.

    Where they say nothing of thousands, something is to stand between them if the options say what.
    """
    common = frozenset.intersection(*numbers) if numbers else frozenset({(SHORTEST, True)})
    return min(common, key=lambda way: (way[0], not way[1]), default=None)


def two_ways(of_files: Mapping[str, Mapping[Ways, str]]) -> TwoSpellings | None:
    """Return two numbers that are written in different ways, each with its file.

    `of_files` has what `ways_of_writing` returned for the first rows of each file.
    """
    all_of_them = [(ways, path, text) for path in of_files for ways, text in of_files[path].items()]
    for (ways, path, text), (others, other_path, other) in combinations(all_of_them, 2):
        if not ways & others:
            return TwoSpellings(text, path, other, other_path)
    return None


def written_otherwise(texts: pa.Array, way: Way, options: CsvOptions) -> str | None:
    """Return a number that is written in another way; None: there is none."""
    return next((t for t, ways in _ways_of_each(texts, options) if way not in ways), None)


def _ways_of_each(texts: pa.Array, options: CsvOptions) -> Iterator[tuple[str, Ways]]:
    for text, plain in zip(texts.to_pylist(), as_plain(texts, options).to_pylist(), strict=True):
        found = _ways_of(text, plain)
        if found is not None:
            yield text, found


def _ways_of(text: str, plain: str) -> Ways | None:
    try:
        number = float(plain)
    except ValueError:
        return None
    if number - number != 0:
        # Not finite.
        return None
    ways = {SHORTEST} if repr(number) in (plain, f"{plain}.0", plain.lower()) else set()
    decimals = _DECIMALS.fullmatch(plain)
    if decimals:
        ways.add(len(decimals[2] or ""))
    has_thousands = decimals is not None and len(decimals[1]) > 3
    return frozenset(product(ways, [len(text) != len(plain)] if has_thousands else _EITHER))
