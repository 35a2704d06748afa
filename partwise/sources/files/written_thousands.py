"""Numbers of which one CSV file writes `1.000` and another `1000`: they may be the same ones.

Where dots stand between thousands they are one number; where the options say nothing of that, the
first is read as 1.0, and a column holds values that differ by a factor of 1,000.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from partwise.sources.files.csv_numbers import as_plain
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.files.written_ways import TwoSpellings

_FEW = 16
_LARGE = r"^[+-]?[1-9][0-9]{3}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thousands:
    """How the first rows of a file write the thousands of a column, each with such a number."""

    separated: str = ""
    """With what the options say to stand between thousands."""
    plain: str = ""
    """With nothing."""
    decimal: str = ""
    """As others write decimals: all numbers of the column from 1 on have three of them, or none."""


def thousands_in(texts: pa.Array, kind: pa.DataType, options: CsvOptions) -> Thousands:
    """Return how the numbers of a column write their thousands.

    `texts` have null in place of the words for it.
    """
    texts = texts.drop_null()
    point = re.escape(options.decimal)
    if pa.types.is_floating(kind):
        if _all_match(texts, rf"^[+-]?([1-9][0-9]{{0,2}}{point}[0-9]{{3}}|[0-9]{{1,3}})$"):
            return Thousands(decimal=_first(texts, pc.match_substring(texts, options.decimal)))
        if not options.thousands and not _all_match(texts, rf"^[+-]?[0-9]+({point}0)?$"):
            return Thousands()
    is_separated = pc.less(pc.binary_length(as_plain(texts, options)), pc.binary_length(texts))
    is_large = pc.match_substring_regex(texts, _LARGE)
    return Thousands(separated=_first(texts, is_separated), plain=_first(texts, is_large))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    # Few values say already that most columns are others.
    return all(
        pc.all(pc.match_substring_regex(part, pattern)).as_py()
        for part in (texts.slice(0, _FEW), texts)
    )


def _first(texts: pa.Array, mask: pa.BooleanArray) -> str:
    found = texts.filter(mask)
    return str(found[0]) if len(found) else ""


def two_spellings(of_files: Mapping[str, Thousands]) -> TwoSpellings | None:
    """Return two numbers of a column that may be one, as different files write it.

    `of_files` has what `thousands_in` returned, by the path of the file.
    """
    decimal = _first_of({path: each.decimal for path, each in of_files.items()})
    separated = _first_of({path: each.separated for path, each in of_files.items()})
    plain = _first_of({path: each.plain for path, each in of_files.items()})
    first, second = decimal or separated, (decimal and separated) or plain
    if first is None or second is None:
        return None
    return TwoSpellings(*first, *second, are_decimals=decimal is not None)


def _first_of(texts: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first text that is not empty, and its path."""
    return next(((text, path) for path, text in texts.items() if text), None)
