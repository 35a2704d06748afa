"""The hash that assigns keys to shards, version 1.

pyarrow has no hash kernel and those of other libraries change between their releases, so this one
is ours: a finaliser of splitmix64 over fixed-width values, and over the distinct ones of text,
eight bytes at a time. Every class starts from a salt of its own, null has one value for all.
"""

import hashlib
from decimal import Decimal

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.tables.keys.key_classes import KeyClass, key_class_of

_SALTS = {
    each: np.uint64(int.from_bytes(hashlib.sha256(each.encode()).digest()[:8], "little"))
    for each in KeyClass
}
# A word loop over one text of a megabyte would take 131,072 numpy calls.
_LONG_TEXT = 512
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], np.uint64)


def mix(values: np.ndarray) -> np.ndarray:
    """Spread the bits of uint64 values (in place): the finaliser of splitmix64."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _fixed_width(array: pa.Array, dtype: str) -> np.ndarray:
    """The values of a primitive array; under its nulls, anything."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _hash_words(values: np.ndarray, salt: np.uint64) -> np.ndarray:
    return mix(values.astype(np.uint64) + salt)


def _hash_instants(array: pa.Array, salt: np.uint64) -> np.ndarray:
    """Hash microseconds, so that a column in nanoseconds meets one in microseconds."""
    values = _fixed_width(array, "<i8")
    if array.type.unit != "ns":
        return _hash_words(values, salt)
    micros = values // 1000
    nanos = (values - micros * 1000).astype(np.uint64)
    hashes = _hash_words(micros, salt)
    # Only instants between microseconds, which the other column cannot hold, hash differently.
    finer = np.flatnonzero(nanos)
    hashes[finer] = mix(hashes[finer] ^ nanos[finer])
    return hashes


def hash_bytes(array: pa.Array, salt: np.uint64) -> np.ndarray:
    """Hash a string or binary array without nulls, 8 bytes of all its values at a time."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    count = len(array)
    if not count:
        return np.empty(0, np.uint64)
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, "<i8" if wide else "<i4")
    offsets = offsets[array.offset : array.offset + count + 1].astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    # Eight zeros at the end, so that the last word of the last text can be read whole.
    padded = np.zeros(stop - start + 8, np.uint8)
    if stop > start:
        padded[:-8] = np.frombuffer(data, np.uint8)[start:stop]
    # Strides of one byte: the word that begins at any byte, as no text begins at a multiple of 8.
    words = np.ndarray((stop - start + 1,), "<u8", buffer=padded, strides=(1,))
    offsets -= start
    lengths = np.diff(offsets)
    # The length goes in first: otherwise "a" and "a\0" would be the same padded words.
    hashes = _hash_words(lengths, salt)
    long = lengths > _LONG_TEXT
    for row in np.flatnonzero(long):
        text = padded[offsets[row] : offsets[row + 1]].tobytes()
        hashes[row] ^= np.uint64(
            int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        )
    active = np.flatnonzero((lengths > 0) & ~long)
    # One round for each 8 bytes of the longest text, over the texts that are still as long.
    position = 0
    while len(active):
        rest = lengths[active] - position
        # The mask takes away what belongs to the next text.
        word = words[offsets[active] + position] & _MASKS[np.minimum(rest, 8)]
        hashes[active] = mix(hashes[active] ^ word)
        active = active[rest > 8]
        position += 8
    return mix(hashes)


def decimal_text(value: Decimal) -> str:
    """A decimal without trailing zeros: the same text for 1.0, 1.00 and 1E0."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0E0"
    stripped = text.rstrip("0")
    return f"{'-' * sign}{stripped}E{int(exponent) + len(text) - len(stripped)}"


def _hash_distinct(array: pa.Array, name: str, salt: np.uint64) -> np.ndarray:
    """Hash text, bytes and decimals: each distinct value once, then spread over the rows."""
    encoded = array.dictionary_encode(null_encoding="mask")
    values = encoded.dictionary
    if pa.types.is_decimal(array.type):
        values = pa.array([decimal_text(value) for value in values.to_pylist()], pa.string())
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # Arrow takes text from files as it is; what is not UTF-8 has no Python value.
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as exc:
            raise ColumnError(
                f"Key column {name!r} holds text that is not valid UTF-8: "
                "repair it, or cast the column to binary."
            ) from exc
    if not len(values):
        return np.zeros(len(array), np.uint64)
    codes = encoded.indices.fill_null(0) if encoded.null_count else encoded.indices
    hashes: np.ndarray = hash_bytes(values, salt)[_fixed_width(codes, "<i4")]
    return hashes


def hash_column(array: pa.Array, name: str) -> np.ndarray:
    """Hash one normalized key column of n rows: uint64, shape (n,)."""
    key_class = key_class_of(name, array.type)
    salt = _SALTS[key_class]
    match key_class:
        case KeyClass.NULL:
            hashes = np.zeros(len(array), np.uint64)
        case KeyClass.INTEGER | KeyClass.FLOAT:
            hashes = _hash_words(_fixed_width(array, "<u8"), salt)
        case KeyClass.BOOLEAN:
            bits = array.fill_null(False).cast(pa.uint8())
            hashes = _hash_words(_fixed_width(bits, "u1"), salt)
        case KeyClass.DATE:
            hashes = _hash_words(_fixed_width(array, "<i4").astype(np.int64), salt)
        case KeyClass.STRING | KeyClass.BINARY | KeyClass.DECIMAL:
            hashes = _hash_distinct(array, name, salt)
        case _:
            hashes = _hash_instants(array, salt)
    # Last: what stands under a null was hashed too.
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _SALTS[KeyClass.NULL]
    return hashes
