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

from partwise.errors import ColumnError
from partwise.sources.files.csv_numbers import as_plain, check_groups, without_nulls
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.files.written_ways import Way, written_otherwise

_CODE = r"^\s|\s$|^[+-]?0[0-9]|^\+|^-0$|^[+-]?0[xX]"
_WHOLE = r"^-?[0-9]+$"
_LINES = 200
_POWERS = 10 ** np.arange(1, 20, dtype=np.uint64)
_NOT_EXACT = 2.0**53
"""From here on several whole numbers are one double."""


def is_canonical(text: str) -> bool:
    """Whether an integer is written in the one way in which Python would write it."""
    return re.search(_CODE, text) is None


def code_in(texts: pa.Array, kind: pa.DataType, options: CsvOptions) -> str | None:
    """Return a value of a column of numbers that is written as a code; None: there is none.

    Where a number of `kind` can be written in several ways without leading zeros, none is to be.
    `texts` have null in place of the words for it.
    """

    def begin(*patterns: str) -> pa.Array:
        return reduce(pc.or_, [pc.starts_with(texts, pattern) for pattern in patterns])

    # The expression takes as long as all else of a file's head: few values have to be looked at.
    fractions = begin(f"0{options.decimal}", f"-0{options.decimal}")
    is_padded = pc.not_equal(pc.ascii_trim_whitespace(texts), texts)
    chosen = pc.or_(pc.and_not(begin("0", "+", "-0"), fractions), is_padded)
    candidates = texts.filter(chosen.fill_null(False))
    found = candidates.filter(pc.match_substring_regex(candidates, _CODE))
    if len(found):
        return str(found[0])
    if not has_several_ways(kind, options):
        return None
    try:
        return _second_way(texts.drop_null().unique(), kind, options)
    except pa.ArrowInvalid:
        # Words for null, or numbers in another form.
        return None


def has_several_ways(kind: pa.DataType, options: CsvOptions) -> bool:
    """Whether 2.50 beside 2.5, or 1.000 beside 1000, may be one number of a type."""
    return bool(options.thousands) or not pa.types.is_integer(kind)


def _second_way(distinct: pa.Array, kind: pa.DataType, options: CsvOptions) -> str | None:
    """Return one of some texts whose number another text, or another number, is as well."""
    plain = as_plain(distinct, options)
    numbers = plain.cast(kind)
    if pa.types.is_floating(kind):
        beyond = pc.greater_equal(pc.abs(numbers), _NOT_EXACT)
        wide = distinct.filter(beyond)
        wide = wide.filter(pc.match_substring_regex(plain.filter(beyond), _WHOLE))
        if len(wide):
            return str(wide[0])
    seen = pc.index_in(numbers, value_set=numbers).to_numpy()
    same = np.flatnonzero(seen != np.arange(len(numbers)))
    return str(distinct[int(same[0])]) if len(same) else None


def quoted_numbers(text: str, names: Sequence[str], options: CsvOptions) -> dict[str, str]:
    """Return the columns whose numbers stand in quotes, with a value of each.

    Where all values of a line are quoted, that says nothing. `text` is the beginning of a file.
    """
    if not options.quote:
        return {}
    found: dict[str, str] = {}
    quote = re.escape(options.quote)
    is_quoted = re.compile(rf"{quote}[+-]?\d[\d .,'\u00a0\u202f]*{quote}").fullmatch
    begin = options.skip_rows + (0 if options.column_names else 1)
    for line in text.splitlines()[begin : begin + _LINES]:
        if options.quote not in line:
            continue
        values = line.split(options.delimiter)
        is_of_all = all(value.startswith(options.quote) for value in values if value)
        if len(values) == len(names) and not is_of_all:
            found |= {name: v for name, v in zip(names, values, strict=True) if is_quoted(v)}
    return found


class KeyNumbers:
    """Reads the numbers of a key column, each of which is to be written in one way.

    `way`: how all files write the numbers of this column (`written_ways`); None: it is the only
    file, or they can be written in one way. `what` names the file in errors.
    """

    def __init__(
        self, kind: pa.DataType, options: CsvOptions, name: str, what: str, way: Way | None = None
    ) -> None:
        self._kind = kind
        self._options = options
        self._name = name
        self._way = way
        self._what = f"Key column {name!r} of {what}"
        self._column = f"{self._what} is of {kind} by its first rows"
        self._distinct = pa.array([], pa.string())

    def read(self, texts: pa.Array) -> pa.Array:
        """Return the numbers of the next rows, which were read as text."""
        texts = without_nulls(texts, self._options)
        try:
            numbers = as_plain(texts, self._options).cast(self._kind)
            if has_several_ways(self._kind, self._options):
                self._check_distinct(texts)
            else:
                self._check_lengths(texts, numbers)
        except pa.ArrowInvalid as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise ColumnError(f"{self._column}, but then: {reason}. {self._remedy}.") from error
        return numbers

    def _check_lengths(self, texts: pa.Array, numbers: pa.Array) -> None:
        counts = numbers.fill_null(0).to_numpy()
        sizes = np.abs(counts).astype(np.uint64)
        digits = np.searchsorted(_POWERS, sizes, side="right") + 1 + (counts < 0)
        # Another way to write a number is longer.
        written = pc.sum(pc.binary_length(texts)).as_py() or 0
        if written != int(digits.sum()) - numbers.null_count:
            wrong = np.flatnonzero(pc.binary_length(texts).fill_null(1).to_numpy() != digits)
            self._refuse(texts[int(wrong[0])].as_py(), counts[wrong[0]])

    def _check_distinct(self, texts: pa.Array) -> None:
        """See that no number is written in two ways, here or in an earlier batch."""
        met = texts.drop_null().unique()
        new = met.filter(pc.invert(pc.is_in(met, self._distinct)))
        if self._options.thousands:
            # A value with spaces around it is a code, of which the next one says more.
            check_groups(pc.utf8_trim_whitespace(new), self._options, f"{self._what} is")
        code = code_in(new, self._kind, self._options)
        self._distinct = pa.concat_arrays([self._distinct, new])
        code = code or _second_way(self._distinct, self._kind, self._options)
        if code is None and self._way is not None:
            code = written_otherwise(new, self._way, self._options)
        if code is not None:
            number = as_plain(pa.array([code.strip()]), self._options).cast(self._kind)[0].as_py()
            self._refuse(code, number)

    def _refuse(self, text: str, number: object) -> None:
        takes = "" if pa.types.is_decimal(self._kind) else f"; '{self._kind}' takes such values as "
        raise ColumnError(
            f"{self._column}, but then holds {text!r}, which would be the key {number}. "
            f"{self._remedy}{takes and takes + 'one'}."
        )

    @property
    def _remedy(self) -> str:
        return (
            f"Declare the column with --types {self._name}=string, or in Python "
            f"Files(..., types={{{self._name!r}: 'string'}})"
        )


def check_exact(numbers: pa.Array, name: str, what: str) -> None:
    """Refuse keys of JSON that are doubles and may have been other whole numbers as written."""
    wide = _not_exact(numbers)
    if len(wide):
        raise ColumnError(
            f"Key column {name!r} of {what} is of double by its first rows, but holds "
            f"{wide[0].as_py():.0f}: from 2^53 on several whole numbers are one double, and would "
            "be one key. Write its values as text, in quotes."
        )


def check_whole(numbers: pa.Array, name: str, what: str) -> None:
    """Refuse doubles that may have been other whole numbers as written, beside files of doubles."""
    wide = _not_exact(numbers)
    # Infinity is no whole number that was rounded.
    wide = wide.filter(pc.is_finite(wide))
    if len(wide):
        raise ColumnError(
            f"Column {name!r} of {what} is of whole numbers by its first rows, and of double in "
            f"other files, but holds {wide[0].as_py():.0f}: from 2^53 on several whole numbers are "
            f"one double. Declare the column with --types {name}=string, or in Python Files(..., "
            f"types={{{name!r}: 'string'}}); as double, where the nearest one will do."
        )


def _not_exact(numbers: pa.Array) -> pa.Array:
    return numbers.filter(pc.greater_equal(pc.abs(numbers), _NOT_EXACT).fill_null(False))
