"""Python's own values of each kind: drawn at random with their extremes, and compared exactly.

Whatever library a value was in, it is brought to one form by Python alone: numbers are themselves
or fractions, times are whole nanoseconds. Two values are the same where these forms are equal.
"""

import datetime as dt
import functools
import math
import struct
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

Draw = Callable[[Random], Any]
"""Makes a value of a kind."""

IN_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_NS = 86_400 * 10**9
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (times without a zone are values as well)
_MICROSECOND = dt.timedelta(microseconds=1)
_FIRST_NS, _LAST_NS = -(2**63 - 1) // 10**9 * 10**9 + 10**9, 2**63 - 1
"""Of nanoseconds; the second in which they begin is one that Arrow reads from no text."""


class Count(int):
    """Nanoseconds: of times so fine that Python has no value for them."""


def integers(low: int, high: int) -> Draw:
    """Whole numbers of any number of digits, and those at which types end."""
    powers = [2**bits for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 127)]
    near = [sign * power + step for power in powers for sign in (1, -1) for step in (-1, 0, 1)]
    edges = [edge for edge in (0, 1, -1, *near, low, high) if low <= edge <= high]

    def draw(random: Random) -> int:
        if random.random() < 0.3:
            return random.choice(edges)
        number = random.getrandbits(random.randint(1, high.bit_length()))
        return max(low, min(high, number if random.random() < 0.5 else -number))

    return draw


def floats(bits: int, *, special: bool = True) -> Draw:
    """Numbers of a width: of any bits, of a few digits, and the extremes."""
    kind: Any = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
    info = np.finfo(kind)
    edges = [0.0, -0.0, float(info.smallest_subnormal), -float(info.tiny), float(info.max)]
    edges += [-float(info.max), 1 + float(info.eps), 2.0**53, -(2.0**53), 2.0**63, 2.0**64]
    edges += [math.nan, math.inf, -math.inf] if special else []

    def draw(random: Random) -> float:
        which = random.random()
        if which < 0.25:
            number = random.choice(edges)
        elif which < 0.5:
            number = round(random.uniform(-1e6, 1e6), random.randint(0, 6))
        else:
            (number,) = struct.unpack(
                f"<{ {16: 'e', 32: 'f', 64: 'd'}[bits] }", random.randbytes(bits // 8)
            )
        with np.errstate(over="ignore", invalid="ignore"):
            number = float(kind(number))
        return number if special or math.isfinite(number) else 0.5

    return draw


def decimals(precision: int, scale: int) -> Draw:
    """Decimals of up to all digits of a type; many are halfway between two doubles, or almost."""
    most = 10**precision - 1

    def draw(random: Random) -> Decimal:
        which = random.random()
        if which < 0.15:
            units = random.choice([0, 1, -1, most, -most])
        elif which < 0.4:
            half = (2 * random.getrandbits(53) + 1) << random.randint(0, 190)
            units = half + random.randint(-1, 1)
        else:
            units = random.getrandbits(random.randint(1, most.bit_length()))
        units = units if abs(units) <= most else units % most
        units = units if random.random() < 0.5 else -units
        sign, digits, _ = Decimal(units).as_tuple()
        return Decimal((sign, digits, -scale))

    return draw


def booleans(random: Random) -> bool:
    """Both."""
    return random.random() < 0.5


_WORDS = (
    "",
    "a",
    "A",
    "é",
    "e\u0301",
    "01",
    "1",
    "1.0",
    "1e3",
    "null",
    "None",
    "nan",
    "true",
    " a ",
    "2024-01-01",
    "=1+1",
    "\u2603\U0001f600",
    "ß" * 20,
    'x"y',
    "a,b;c",
    "\u00a0",
    "ﬁ",
)


def texts(random: Random) -> str:
    """Words that look like other things, and any characters."""
    if random.random() < 0.4:
        return random.choice(_WORDS)
    letters = "aZ09.-_ é\u4e2d\U0001f389"
    return "".join(random.choice(letters) for _ in range(random.randint(0, 40)))


def binaries(length: int | None = None) -> Draw:
    """Bytes: of one length, or of any."""
    return lambda random: random.randbytes(random.randint(0, 20) if length is None else length)


def dates(random: Random) -> dt.date:
    """Days of all years that Python has, those around 1970 and at the ends more often."""
    which = random.random()
    if which < 0.2:
        return random.choice(
            [
                dt.date.min,
                dt.date.max,
                dt.date(1970, 1, 1),
                dt.date(1969, 12, 31),
                dt.date(2000, 2, 29),
                dt.date(1582, 10, 14),
            ]
        )
    if which < 0.6:
        return dt.date.fromordinal(719_163 + random.randint(-30_000, 40_000))
    return dt.date.fromordinal(random.randint(1, dt.date.max.toordinal()))


def clocks(unit: str) -> Draw:
    """Times of the day in a unit."""

    def draw(random: Random) -> Any:
        ns = (
            random.choice([0, 1, DAY_NS - 1, random.randrange(DAY_NS)]) // IN_NS[unit] * IN_NS[unit]
        )
        if unit == "ns":
            return Count(ns)
        return (EPOCH + dt.timedelta(microseconds=ns // 1000)).time()

    return draw


@functools.cache
def _changes(zone: str) -> list[int]:
    """Instants around the changes of a zone's clocks, in seconds: those in folds and gaps too."""
    tz = zoneinfo.ZoneInfo(zone)
    found = []
    for year in (1940, 1985, 2024, 2036, 2052, 2400):
        begin = int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp())
        offsets = [dt.datetime.fromtimestamp(begin + h * 3600, tz).utcoffset() for h in range(8784)]
        places = [h for h in range(1, len(offsets)) if offsets[h] != offsets[h - 1]]
        found += [begin + h * 3600 + step for h in places for step in (-3600, -1, 0, 1799, 3600)]
    return found


def instants(unit: str, zone: str | None, low_year: int = 1, high_year: int = 9999) -> Draw:
    """Time stamps in a unit; of a zone, those around a change of its clocks more often."""
    first = (dt.datetime(low_year, 1, 1) - EPOCH) // _MICROSECOND * 1000  # noqa: DTZ001
    last = (dt.datetime(high_year, 12, 31, 23, 59, 59, 999_999) - EPOCH) // _MICROSECOND * 1000  # noqa: DTZ001
    if unit == "ns":
        first, last = max(first, _FIRST_NS), min(last, _LAST_NS)
    changes = _changes(zone) if zone is not None and "/" in zone else [0]

    def draw(random: Random) -> Any:
        which = random.random()
        if which < 0.15:
            ns = random.choice([first, last, 0, -1, DAY_NS, 2**31 * 10**9])
        elif which < 0.5:
            ns = random.choice(changes) * 10**9 + random.choice([0, random.randrange(10**9)])
        elif which < 0.8:
            ns = random.randint(-(10**18), 2 * 10**18)
        else:
            ns = random.randint(first, last)
        ns = max(first, min(last, ns)) // IN_NS[unit] * IN_NS[unit]
        ns = ns if ns >= first else ns + IN_NS[unit]
        if unit == "ns":
            return Count(ns)
        naive = EPOCH + dt.timedelta(microseconds=ns // 1000)
        return naive if zone is None else naive.replace(tzinfo=dt.UTC)

    return draw


def durations(unit: str, most_days: int = 10**8) -> Draw:
    """Lengths of time in a unit, of both signs."""
    most = min(most_days * DAY_NS, _LAST_NS) if unit == "ns" else most_days * DAY_NS

    def draw(random: Random) -> Any:
        ns = random.choice(
            [0, -IN_NS[unit], most, random.randint(-most, most), random.getrandbits(50)]
        )
        ns = ns // IN_NS[unit] * IN_NS[unit]
        return Count(ns) if unit == "ns" else dt.timedelta(microseconds=ns // 1000)

    return draw


def nanoseconds(value: Any) -> int:
    """A time of any kind as a whole number: since 1970 (in UTC), since midnight, or of a length."""
    if isinstance(value, Count):
        return int(value)
    if isinstance(value, dt.timedelta):
        return value // _MICROSECOND * 1000
    if isinstance(value, dt.time):
        value = dt.datetime.combine(EPOCH.date(), value)
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - EPOCH) // _MICROSECOND * 1000


def exact(value: Any, kind: str) -> Any:
    """The one form of a value of a kind, which is equal where values are.

    Args:
        value: Python's own, or `Count`; None is null.
        kind: A class of keys, or "nested".
    """
    if value is None:
        return None
    match kind:
        case "float":
            return "nan" if value != value else ("float", struct.pack(">d", float(value)))
        case "decimal":
            return ("decimal", Fraction(value))
        case "timestamp" | "timestamp_tz" | "time" | "duration":
            return (kind, nanoseconds(value))
        case "date":
            return (kind, value.toordinal())
        case "integer" | "boolean":
            # True is 1 to Python.
            return (kind, type(value) is bool, int(value))
        case _:
            return (kind, value)


def exact_column(column: pa.ChunkedArray | pa.Array, kind: str) -> list[Any]:
    """The exact values of a column of Arrow's, whose type is to be of the kind."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [value for chunk in chunks for value in _exact_chunk(chunk, kind)]


def _exact_chunk(array: pa.Array, kind: str) -> list[Any]:
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        known = [*_exact_chunk(array.dictionary, kind), None]
        return [known[-1 if code is None else code] for code in array.indices.to_pylist()]
    if pa.types.is_null(data_type):
        return [None] * len(array)
    found = kind_of(data_type)
    if found != kind:
        return [
            (f"a value of {data_type}, which is {found} and not {kind}", each)
            for each in array.to_pylist()
        ]
    if kind in ("timestamp", "timestamp_tz", "time", "duration"):
        numbers = array.cast(pa.int64() if data_type.bit_width == 64 else pa.int32()).to_pylist()
        unit = IN_NS[data_type.unit]
        return [None if number is None else (kind, number * unit) for number in numbers]
    if pa.types.is_date(data_type):
        days = array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return [None if day is None else (kind, day + 719_163) for day in days]
    return [exact(value, kind) for value in array.to_pylist()]


def kind_of(data_type: pa.DataType) -> str:
    """The kind of a plain type of Arrow's."""
    types = pa.types
    if types.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamp_tz"
    checks = {
        "boolean": [types.is_boolean],
        "integer": [types.is_integer],
        "float": [types.is_floating],
        "decimal": [types.is_decimal],
        "date": [types.is_date],
        "time": [types.is_time],
        "duration": [types.is_duration],
        "string": [types.is_string, types.is_large_string, types.is_string_view],
        "binary": [
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_fixed_size_binary,
        ],
    }
    return next(
        (name for name, tests in checks.items() if any(t(data_type) for t in tests)), "nested"
    )


def nearest(value: Any) -> float:
    """The double that is nearest to a number: how Python divides whole numbers."""
    if value is None:
        return math.nan
    if isinstance(value, float):
        return value
    try:
        return float(Fraction(value))
    except OverflowError:
        return math.inf if value > 0 else -math.inf
