"""Decimals as doubles: always the nearest one, as Python's float(Decimal) gives it.

Arrow's own cast is one bit off for an eighth to a half of all values, by their scale, so that
1.10 as decimal(9, 2), as decimal(12, 4) and as a double were three numbers.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_EXACT = 2**53
"""Up to which every whole number is a double."""
_MOST_POWER = 22
"""Up to which every power of ten is a double."""
_TYPES = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}


def cast_values(
    values: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, safe: bool = True
) -> pa.Array | pa.ChunkedArray:
    """Cast as Arrow does, but decimals to the nearest floating number.

    Decimals become float32 and float16 by way of the nearest double, and infinite beyond the type's
    numbers. If `safe`, a value that does not fit is refused: pa.ArrowInvalid.

    Example:
        >>> cast_values(pa.array(["9.81"]).cast(pa.decimal128(9, 2)), pa.float64())[0].as_py()
        9.81
    """
    if not (pa.types.is_decimal(values.type) and pa.types.is_floating(kind)):
        return values.cast(kind, safe=safe)
    if isinstance(values, pa.ChunkedArray):
        doubles = [_nearest(chunk) for chunk in values.chunks]
        return pa.chunked_array(doubles, pa.float64()).cast(kind, safe=safe)
    return _nearest(values).cast(kind, safe=safe)


def _nearest(array: pa.Array) -> pa.Array:
    """Divide where both sides are doubles, since one division is rounded once; else read text."""
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.float64())
    scale, unit = array.type.scale, max(1, array.type.bit_width // 64)
    dtype = np.dtype(np.int32 if array.type.bit_width == 32 else np.int64)
    begin, count = array.offset * unit * dtype.itemsize, len(array) * unit
    words = np.frombuffer(array.buffers()[1], dtype, count, begin).reshape(-1, unit)
    whole = words[:, 0]
    if abs(scale) > _MOST_POWER:
        is_exact = np.zeros(len(whole), dtype=bool)
        doubles = np.empty(len(whole))
    else:
        is_exact = (whole >= -_MOST_EXACT) & (whole <= _MOST_EXACT)
        for above in words.T[1:]:
            # The words above hold nothing but the sign.
            is_exact &= above == whole >> 63
        power = float(10 ** abs(scale))
        doubles = whole / power if scale >= 0 else whole * power
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    # What lies under a null is anything.
    others = ~is_exact if is_null is None else ~(is_exact | is_null)
    if others.any():
        doubles[others] = _read(array.filter(pa.array(others)))
    return pa.array(doubles, mask=is_null)


def _read(array: pa.Array) -> np.ndarray:
    """Read decimals without nulls as text, which Arrow rounds to the nearest double."""
    digits_type = _TYPES[array.type.bit_width](array.type.precision, 0)
    # As whole numbers, since Arrow has no text for scales beyond its own.
    whole = pa.Array.from_buffers(digits_type, len(array), array.buffers(), 0, array.offset)
    power, nothing = (pa.scalar(text, pa.large_string()) for text in (f"E{-array.type.scale}", ""))
    texts = pc.binary_join_element_wise(whole.cast(pa.large_string()), power, nothing)
    return np.asarray(texts.cast(pa.float64()))
