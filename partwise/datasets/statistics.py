"""Statistics of a stream of rows, column by column, in memory that does not grow with the rows."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from partwise.datasets.manifest import ColumnDocument
from partwise.tables.column_types import comparable_type, has_offsets, is_ordered_number
from partwise.tables.decimals import cast_values
from partwise.tables.dictionaries import plain_storage
from partwise.tables.keys.hashing import hash_bytes, mix

SKETCH_SIZE = 4096
_LONGEST_TEXT = 100
_SALT = np.uint64(0x9E3779B97F4A7C15)


class ColumnStatistics:
    """Nulls, least and greatest value, mean and distinct values of one column."""

    def __init__(self, field: pa.Field) -> None:
        self._field = field
        self._plain = plain_storage(field.type)
        self._memory_bytes = self._nulls = self._nans = self._finite = 0
        self._sum = 0.0
        self._bounds: list[Any] = []
        self._distinct = _DistinctSketch() if _has_hash(self._plain) else None

    def add(self, array: pa.Array) -> None:
        """Add the next rows."""
        self._memory_bytes += array.nbytes
        plain = array if array.type == self._plain else array.cast(self._plain)
        self._nulls += plain.null_count
        values = plain.drop_null()
        if not len(values):
            return
        if is_ordered_number(self._plain):
            self._add_numbers(values)
        self._add_bounds(values)
        if self._distinct is not None:
            self._distinct.add(_hashes(values), len(values))

    def _add_numbers(self, values: pa.Array) -> None:
        numbers = cast_values(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        finite = numbers[np.isfinite(numbers)]
        self._nans += int(np.isnan(numbers).sum())
        self._finite += len(finite)
        # A sum beyond the doubles is infinite, of which `document` makes no mean.
        with np.errstate(over="ignore"):
            self._sum += float(finite.sum())

    def _add_bounds(self, values: pa.Array) -> None:
        ordered = _ordered_type(self._plain)
        if ordered is None:
            return
        bounds = pc.min_max(values.cast(ordered))
        new = [bounds[name] for name in ("min", "max") if bounds[name].is_valid]
        together = pc.min_max(pa.array([*self._bounds, *new], ordered))
        self._bounds = [together["min"], together["max"]]

    def document(self) -> ColumnDocument:
        """Return what the rows so far come to."""
        shown = [_shown(bound.cast(self._plain)) for bound in self._bounds]
        low, high = shown or (None, None)
        mean = self._sum / self._finite if self._finite else None
        if mean is not None:
            # The last digits depend on how the rows were divided into batches.
            mean = float(f"{mean:.10g}") if math.isfinite(mean) else None
        return ColumnDocument(
            name=self._field.name,
            type=str(self._field.type),
            memory_bytes=self._memory_bytes,
            nulls=self._nulls,
            nans=self._nans,
            min=low,
            max=high,
            mean=mean,
            distinct=None if self._distinct is None else self._distinct.count(),
        )


class _DistinctSketch:
    """Counts distinct values: exactly up to 4,096, beyond from the density of least hashes.

    K minimum values: Bar-Yossef et al., "Counting distinct elements in a data stream" (2002); the
    standard error is 1 / sqrt(k - 2), here 1.6 %.
    """

    def __init__(self) -> None:
        self._least = np.empty(0, np.uint64)
        self._values = 0

    def add(self, hashes: np.ndarray, n_values: int) -> None:
        """Add the hashes of so many values; one that repeats may stand among them once."""
        self._values += n_values
        # Once it is full, nearly all hashes of later batches are too large to get in.
        if len(self._least) == SKETCH_SIZE:
            hashes = hashes[hashes < self._least[-1]]
        if len(hashes):
            new = pc.unique(pa.array(hashes)).to_numpy(zero_copy_only=False)
            self._least = np.unique(np.concatenate([self._least, new]))[:SKETCH_SIZE]

    def count(self) -> int:
        if len(self._least) < SKETCH_SIZE:
            return len(self._least)
        # Of n hashes, spread evenly over 2**64, the k-th least stands at about k / n of that.
        # Of all different values the estimate would be above their number every other time.
        density = float(self._least[-1]) / 2.0**64
        return min(round((SKETCH_SIZE - 1) / density), self._values)


def _has_hash(kind: pa.DataType) -> bool:
    tests = (has_offsets, pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def _ordered_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Arrow finds the least value; None where there is no order."""
    # Arrow (26.0) has no min_max of these types.
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_interval(kind):
        return None
    tests = (has_offsets, pa.types.is_primitive, pa.types.is_decimal)
    return comparable_type(kind) if any(test(kind) for test in tests) else None


def _hashes(values: pa.Array) -> np.ndarray:
    """Hash values without nulls: uint64, shape (distinct,) for texts, (n,) for others."""
    kind = values.type
    if has_offsets(kind):
        return hash_bytes(pc.unique(values.cast(pa.large_binary())), _SALT)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_floating(kind):
        # Adding 0.0 makes 0.0 of -0.0: both are one value, and so are all NaN.
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        values = pa.array(numbers)
    width = values.type.bit_width // 8
    if width not in (1, 2, 4, 8, 16, 32):
        return hash_bytes(pc.unique(values.cast(pa.binary()).cast(pa.large_binary())), _SALT)
    size = min(width, 8)
    start = values.offset * width // size
    words = np.frombuffer(values.buffers()[1], f"<u{size}")
    words = words[start : start + len(values) * width // size].astype(np.uint64)
    words = words.reshape(len(values), width // size)
    hashes = mix(words[:, 0] + _SALT)
    # Values wider than 8 bytes are mixed word by word.
    for place in range(1, words.shape[1]):
        hashes = mix(hashes ^ words[:, place])
    return hashes


def _shown(bound: pa.Scalar) -> JsonValue:
    try:
        return _json_value(bound.as_py())
    except OverflowError:
        # Python has the years 1 to 9999 only, and lengths of time of about as many.
        kind, unit = bound.type, ""
        if pa.types.is_duration(kind):
            unit = f" {kind.unit}"
        elif pa.types.is_timestamp(kind) and kind.tz:
            # Arrow (26.0) writes years beyond its range modulo 65,536 where there is a zone.
            bound, unit = bound.cast(pa.timestamp(kind.unit)), "Z"
        return f"{bound.cast(pa.string()).as_py()}{unit}"


def _json_value(value: Any) -> JsonValue:
    """Return a value as JSON has it, else as text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
        case bytes():
            return _json_value(value.hex())
        case dt.timedelta():
            return f"{value.total_seconds():g} s"
        case Decimal():
            return f"{value:f}"
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)
