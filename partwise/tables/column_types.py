"""Groups of Arrow types that rooms above ask for."""

import pyarrow as pa


def is_number(kind: pa.DataType) -> bool:
    """Whether a type can be a number: integer, floating, boolean or decimal."""
    return is_ordered_number(kind) or bool(pa.types.is_boolean(kind))


def is_ordered_number(kind: pa.DataType) -> bool:
    """Whether a type is of numbers of which there is a least and a mean: no booleans."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, in any of Arrow's layouts."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def has_offsets(kind: pa.DataType) -> bool:
    """Whether a type is text or bytes that are laid out as offsets into one buffer."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))


def comparable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Arrow (26.0) compares and sorts values: not all have both.

    Half floats and narrow decimals lack them.
    """
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind
