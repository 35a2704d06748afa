"""Numbers of CSV files and directory names that are codes: equal as numbers, different as written.

`01`, `1` and `001` are one integer and may be three keys. So a key column whose values have leading
zeros, or stand in quotes where other columns do not, is text; elsewhere the log says it.
"""

import re
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from partwise.errors import ColumnError

_CODE = r"^\s|\s$|^[+-]?0[0-9]|^\+|^-0$|^[+-]?0[xX]"
_QUOTED = re.compile(r'"[+-]?\d+(?:\.\d+)?"').fullmatch
_LINES = 200
_POWERS = 10 ** np.arange(1, 19, dtype=np.uint64)
_NULLS = tuple(pacsv.ConvertOptions().null_values)


def is_canonical(text: str) -> bool:
    """Whether an integer is written in the one way in which Python would write it."""
    return re.search(_CODE, text) is None


def code_in(texts: pa.Array, kind: pa.DataType) -> str | None:
    """Return a value of a column of numbers that is written as a code; None: there is none.

    Args:
        texts: The first values as they are written.
        kind: The type that they look like; of doubles, none is to be written in two ways.
    """
    # The expression takes as long as all else of a file's head: few values have to be looked at.
    begins = [pc.starts_with(texts, pattern) for pattern in ("0", "+", "-0")]
    is_padded = pc.not_equal(pc.ascii_trim_whitespace(texts), texts)
    candidates = texts.filter(reduce(pc.or_, begins, is_padded).fill_null(False))
    found = candidates.filter(pc.match_substring_regex(candidates, _CODE))
    if len(found):
        return str(found[0])
    if not pa.types.is_floating(kind):
        return None
    distinct = texts.drop_null().unique()
    try:
        numbers = distinct.cast(pa.float64())
    except pa.ArrowInvalid:
        # Words for null, or numbers in another form.
        return None
    seen = pc.index_in(numbers, value_set=numbers).to_numpy()
    same = np.flatnonzero(seen != np.arange(len(numbers)))
    return str(distinct[int(same[0])]) if len(same) else None


def quoted_numbers(text: str, names: Sequence[str], delimiter: str) -> dict[str, str]:
    """Return the columns whose numbers stand in quotes, with a value of each.

    Where all values of a line are quoted, that says nothing.

    Args:
        text: The beginning of a file.
        names: Its columns.
        delimiter: Between its values.
    """
    found: dict[str, str] = {}
    for line in text.splitlines()[1:_LINES]:
        values = line.split(delimiter)
        if len(values) != len(names) or all(value.startswith('"') for value in values if value):
            continue
        found |= {name: v for name, v in zip(names, values, strict=True) if _QUOTED(v)}
    return found


def integers_as_written(
    texts: pa.Array, null_words: Sequence[str], name: str, what: str
) -> pa.Array:
    """Return the integers of a key column that were read as text.

    Args:
        texts: Its values.
        null_words: Words for null, besides the usual ones.
        name: The column.
        what: The file, for errors.

    Raises:
        ColumnError: A value is no integer of 64 bits, or is written in another way than its number.
    """
    words = pa.array([*_NULLS, *null_words], pa.string())
    texts = pc.if_else(pc.is_in(texts, words), None, texts)
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"Key column {name!r} of {what} is of integers by its first rows, but then: "
            f"{' '.join(str(error).split()).rstrip('.')}. {_declare(name)}"
        ) from error
    counts = numbers.fill_null(0).to_numpy()
    sizes = np.abs(counts).astype(np.uint64)
    digits = np.searchsorted(_POWERS, sizes, side="right") + 1 + (counts < 0)
    # Another way to write a number is longer.
    written = pc.sum(pc.binary_length(texts)).as_py() or 0
    if written != int(digits.sum()) - numbers.null_count:
        wrong = np.flatnonzero(pc.binary_length(texts).fill_null(1).to_numpy() != digits)
        raise ColumnError(
            f"Key column {name!r} of {what} is of integers by its first rows, but then holds "
            f"{texts[int(wrong[0])].as_py()!r}, which would be the key {counts[wrong[0]]}. "
            f"{_declare(name)}"
        )
    return numbers


def _declare(name: str) -> str:
    return (
        f"Declare the column with --types {name}=string, or in Python "
        f"Files(..., types={{{name!r}: 'string'}}); 'int64' takes such values as one."
    )
