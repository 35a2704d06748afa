"""A condition of a filter as a comparison with a value of the column's own type.

Arrow brings a column and a value to a type of both, and loses something on the way: decimals
become doubles that are not the nearest, uint64 is refused beside int64, and a time of the day
is not text. So the value is brought to the type of the column here: to the largest one of it that
is not above the value. Of whole numbers, x < 2.5 is x <= 2, and no row is equal to 2.5.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.tables.column_types import is_ordered_number, is_text

ALWAYS = "always"
"""Of each row that is not null."""
NEVER = "never"
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DTYPES: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?").fullmatch
_NO_EQUAL = {"=": NEVER, "!=": ALWAYS, "<": "<=", ">=": ">"}
"""What a sign becomes where no value of the type is equal to the one that is compared with."""
_MOST_DIGITS = 400
"""Of decimals: more than doubles and decimals of Arrow have on either side of the point."""


def comparison(
    name: str, kind: pa.DataType, operator: str, value: Any
) -> tuple[str, pa.Scalar | None]:
    """Return a condition as a sign and a value of the column's type.

    A double beside decimals stands for the decimal that is written for it, 54.1 for 54.1, and one
    beside narrower floating numbers for the nearest of them, as in numpy, pandas and polars.

    Returns:
        One of =, !=, <, <=, > and >= with a value of the type, or `ALWAYS` or `NEVER` with None.

    Example:
        >>> comparison("n", pa.int64(), ">=", 2.5)
        ('>', <pyarrow.Int64Scalar: 2>)
    """
    sign = "=" if operator == "==" else operator
    if pa.types.is_null(kind):
        return NEVER, None
    if is_text(kind) or pa.types.is_boolean(kind):
        return sign, _alike(name, kind, value)
    found = _exact(name, kind, value)
    low, high = _range(kind)
    if low is not None and found < low:
        return {"<": NEVER, "<=": NEVER, "=": NEVER}.get(sign, ALWAYS), None
    largest = min(math.floor(found), high) if high is not None else _float_below(kind, found)
    if largest != found:
        sign = _NO_EQUAL.get(sign, sign)
    if sign in (ALWAYS, NEVER):
        return sign, None
    return sign, _scalar(kind, largest)


def equal_values(name: str, kind: pa.DataType, values: Sequence[Any]) -> list[pa.Scalar]:
    """Return those values of the column's type that are equal to one of some values."""
    found = [comparison(name, kind, "=", value) for value in values]
    return [scalar for _, scalar in found if scalar is not None]


def _alike(name: str, kind: pa.DataType, value: Any) -> pa.Scalar:
    fits = isinstance(value, str) if is_text(kind) else isinstance(value, bool)
    if not fits:
        raise _other_kind(name, kind, value)
    return pa.scalar(value).cast(kind)


def _other_kind(name: str, kind: pa.DataType, value: Any) -> ColumnError:
    return ColumnError(
        f"The filter compares column {name!r} of type {kind} with {value!r} of type "
        f"{type(value).__name__}: use a value of the column's type."
    )


def _exact(name: str, kind: pa.DataType, value: Any) -> Fraction | int:
    """Return a value in the units in which a type counts, which may be a fraction of them."""
    types = pa.types
    if is_ordered_number(kind):
        exact = _number(name, kind, value)
        return exact * Fraction(10) ** kind.scale if types.is_decimal(kind) else exact
    is_time = types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind)
    if not (is_time and isinstance(value, str)):
        raise _other_kind(name, kind, value)
    try:
        if types.is_date(kind):
            days = pa.scalar(value).cast(pa.date32()).cast(pa.int32()).as_py()
            return int(days) * (1 if types.is_date32(kind) else 86_400_000)
        if types.is_timestamp(kind):
            return Fraction(_nanoseconds(value, kind.tz), _NS[kind.unit])
        if not _CLOCK(value):
            raise pa.ArrowInvalid("a time of the day is written as 23:59:59")
        return Fraction(_nanoseconds(f"1970-01-01T{value}", None), _NS[kind.unit])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise _no_such(name, kind, value, exc) from exc


def _no_such(name: str, kind: pa.DataType, value: Any, why: Exception | str) -> ColumnError:
    return ColumnError(
        f"The filter compares column {name!r} of type {kind} with {value!r}, which is not such a "
        f"value ({why}): use a value of the column's type."
    )


def _number(name: str, kind: pa.DataType, value: Any) -> Fraction | int:
    is_decimal = pa.types.is_decimal(kind)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _other_kind(name, kind, value)
    if isinstance(value, int):
        return value
    if isinstance(value, float) and (value.is_integer() or not is_decimal):
        return Fraction(value if is_decimal else _as_narrow(kind, value))
    if not is_decimal:
        raise _other_kind(name, kind, value)
    try:
        found = Decimal(value if isinstance(value, str) else repr(value))
    except InvalidOperation as exc:
        raise _no_such(name, kind, value, "it is not a decimal number") from exc
    if not found.is_finite() or (found and abs(found.adjusted()) > _MOST_DIGITS):
        raise _no_such(name, kind, value, "it is beyond all decimals")
    return Fraction(found)


def _as_narrow(kind: pa.DataType, value: float) -> float:
    if not pa.types.is_floating(kind):
        return value
    with np.errstate(over="ignore"):
        nearest = float(_DTYPES[kind.bit_width](value))
    return nearest if math.isfinite(nearest) else value


def _nanoseconds(text: str, zone: str | None) -> int:
    """Read a time stamp in the coarsest unit that holds it."""
    # Nanoseconds end in 2262, and a filter may name the year 9999.
    for unit in ("s", "ms", "us"):
        with suppress(pa.ArrowInvalid):
            return _counted(text, unit, zone) * _NS[unit]
    return _counted(text, "ns", zone)


def _counted(text: str, unit: str, zone: str | None) -> int:
    return int(pa.scalar(text).cast(pa.timestamp(unit, zone)).cast(pa.int64()).as_py())


def _range(kind: pa.DataType) -> tuple[int | None, int | None]:
    """Return the least and the largest number of units that a type holds; None: of floats."""
    if pa.types.is_floating(kind):
        return None, None
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _float_below(kind: pa.DataType, exact: Fraction | int) -> Fraction | int | float:
    """Return the largest number of a floating type that is not above another, or -infinity."""
    dtype = _DTYPES[kind.bit_width]
    try:
        double = float(exact)
    except OverflowError:
        double = math.inf if exact > 0 else -math.inf
    with np.errstate(over="ignore"):
        found = dtype(double)
        if found == math.inf or (math.isfinite(found) and Fraction(float(found)) > exact):
            found = np.nextafter(found, dtype(-math.inf))
    return Fraction(float(found)) if math.isfinite(found) else -math.inf


def _scalar(kind: pa.DataType, units: Fraction | int | float) -> pa.Scalar:
    if pa.types.is_floating(kind):
        return pa.scalar(float(units), pa.float64()).cast(kind, safe=False)
    if pa.types.is_decimal(kind):
        # Not scaleb(), which rounds to the 28 digits of Python's context.
        sign, digits, _ = Decimal(int(units)).as_tuple()
        return pa.scalar(Decimal((sign, digits, -kind.scale)), kind)
    return pa.scalar(int(units), kind)
