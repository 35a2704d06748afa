"""One key value: its class, its bytes and its readable text.

A value is first made plain: times become nanoseconds, dates days, all as Python integers. Bytes
and text are then the same whether the value came from Python or from an Arrow column.
"""

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

# The names of partitions must not change with the Unicode tables of a newer Python.
from unicodedata import ucd_3_2_0

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tables.keys.hashing import decimal_text
from partwise.tables.keys.key_classes import KeyClass

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (zones are resolved before)


def _days(value: dt.date) -> int:
    return value.toordinal() - _EPOCH.toordinal()


def _clock_us(value: dt.datetime | dt.time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _duration_ns(value: dt.timedelta) -> int:
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return micros * 1000 + int(getattr(value, "nanoseconds", 0))


def _timestamp_ns(value: dt.datetime) -> int:
    nanos = (_days(value) * 86_400_000_000 + _clock_us(value)) * 1000
    nanos += int(getattr(value, "nanosecond", 0))
    offset = value.utcoffset()
    return nanos if offset is None else nanos - _duration_ns(offset)


_FIRST_YEAR = dt.datetime(1, 1, 1)  # noqa: DTZ001
_LAST_YEAR = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001


def check_python_years(data: pa.Array | pa.ChunkedArray) -> None:
    """Raise `pa.ArrowInvalid` when a date or time has no Python value, as keys must have.

    Of time stamps and lengths of time in nanoseconds, pandas has values. Keys are microseconds,
    nanoseconds (which end in 2262) or days.
    """
    kind = data.type
    if kind == pa.time64("ns"):
        data.cast(pa.time64("us"))
    if pa.types.is_date(kind):
        first, last = pa.scalar(_FIRST_YEAR.date(), kind), pa.scalar(_LAST_YEAR.date(), kind)
    elif pa.types.is_timestamp(kind) and kind.unit == "us":
        first, last = pa.scalar(_FIRST_YEAR, kind), pa.scalar(_LAST_YEAR, kind)
    else:
        return
    bounds = pc.min_max(data)
    if bounds["min"].is_valid and (
        pc.less(bounds["min"], first).as_py() or pc.greater(bounds["max"], last).as_py()
    ):
        raise pa.ArrowInvalid("a year is not from 1 to 9999")


TO_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def _plain_numpy(value: np.generic) -> tuple[KeyClass, Any] | Any:
    """A numpy scalar as (class, plain value) for times, else as the Python value in it."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
        unit, count = np.datetime_data(value.dtype)
        number = int(value.astype(np.int64)) * count
        if isinstance(value, np.datetime64):
            if unit == "D":
                return KeyClass.DATE, number
            if unit in TO_NS:
                return KeyClass.TIMESTAMP, number * TO_NS[unit]
        elif unit in TO_NS:
            return KeyClass.DURATION, number * TO_NS[unit]
    return value.item()


def plain_value(value: Any) -> tuple[KeyClass | None, Any]:
    """The class of a Python value and its plain form; (None, value) where it has none."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, np.generic):
        value = _plain_numpy(value)
        if isinstance(value, tuple):
            return value
    # bool is an int and datetime a date, so the narrow ones stand first.
    match value:
        case None:
            return KeyClass.NULL, None
        case bool():
            return KeyClass.BOOLEAN, value
        case int():
            return KeyClass.INTEGER, int(value)
        case str():
            return KeyClass.STRING, str(value)
        case float():
            return KeyClass.FLOAT, float(value) + 0.0
        case bytes() | bytearray() | memoryview():
            return KeyClass.BINARY, bytes(value)
        case Decimal() if value.is_finite():
            return KeyClass.DECIMAL, value
        case _ if type(value).__name__ in ("NaTType", "NAType"):
            return KeyClass.NULL, None
        case dt.datetime():
            naive = value.utcoffset() is None
            key_class = KeyClass.TIMESTAMP if naive else KeyClass.TIMESTAMP_TZ
            return key_class, _timestamp_ns(value)
        case dt.date():
            return KeyClass.DATE, _days(value)
        case dt.time() if value.tzinfo is None:
            return KeyClass.TIME, _clock_us(value) * 1000
        case dt.timedelta():
            return KeyClass.DURATION, _duration_ns(value)
        case _:
            return None, value


def _double(value: float) -> bytes:
    # One bit pattern for all NaNs and for both zeros.
    return struct.pack(">d", value + 0.0 if value == value else float("nan"))


def _ascii_number(value: int) -> bytes:
    return b"%d" % value


_ENCODERS: dict[KeyClass, tuple[bytes, Callable[[Any], bytes]]] = {
    KeyClass.INTEGER: (b"i", _ascii_number),
    KeyClass.STRING: (b"s", str.encode),
    KeyClass.FLOAT: (b"f", _double),
    KeyClass.BOOLEAN: (b"b", lambda value: b"1" if value else b"0"),
    KeyClass.TIMESTAMP: (b"t", _ascii_number),
    KeyClass.TIMESTAMP_TZ: (b"z", _ascii_number),
    KeyClass.DATE: (b"d", _ascii_number),
    KeyClass.TIME: (b"c", _ascii_number),
    KeyClass.DURATION: (b"u", _ascii_number),
    KeyClass.DECIMAL: (b"m", lambda value: decimal_text(value).encode()),
    KeyClass.BINARY: (b"y", bytes),
}


def encode_value(value: Any, key_class: KeyClass) -> bytes:
    """A plain value as its tag, its length (8 bytes, little endian) and its bytes."""
    if value is None:
        return b"n" + bytes(8)
    tag, encode = _ENCODERS[key_class]
    payload = encode(value)
    return tag + len(payload).to_bytes(8, "little") + payload


_SLUG_READY = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}").fullmatch
_SLUG_GAP = re.compile(r"[^a-z0-9._]+")


def _instant_text(nanos: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(microseconds=nanos // 1000)).isoformat()
    except OverflowError:
        return str(nanos)


def _day_text(days: int) -> str:
    try:
        return dt.date.fromordinal(days + _EPOCH.toordinal()).isoformat()
    except (OverflowError, ValueError):
        return str(days)


_TEXTS: dict[KeyClass, Callable[[Any], str]] = {
    KeyClass.FLOAT: repr,
    KeyClass.TIMESTAMP: _instant_text,
    KeyClass.TIMESTAMP_TZ: _instant_text,
    KeyClass.DATE: _day_text,
    KeyClass.TIME: lambda nanos: _instant_text(nanos)[11:],
    KeyClass.DECIMAL: lambda value: format(Decimal(decimal_text(value)), "f"),
    KeyClass.BINARY: bytes.hex,
    KeyClass.STRING: str,
}


def plain_text(value: Any, key_class: KeyClass) -> str:
    """A plain value as a person would read it."""
    return "null" if value is None else _TEXTS.get(key_class, str)(value)


def slug(text: str) -> str:
    """A readable part of a file name: [a-z0-9._-], 1 to 40 characters, no dot in front."""
    if _SLUG_READY(text):
        return text
    # 200 characters hold any 40 that count; a key can be megabytes long.
    plain = ucd_3_2_0.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    if plain.startswith("-") and plain[1:2].isdigit():
        plain = f"minus{plain}"
    return _SLUG_GAP.sub("-", plain).lstrip("._-")[:40].rstrip("-") or "key"
