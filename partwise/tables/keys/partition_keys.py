"""Partition keys: normalized columns, their hash, their bytes and their names.

A key has a class, not a width: int8 and int64, `string` and dictionary-encoded strings, 1.0 and
1.00 are one thing, while 1, "1", 1.0, True and null are five. Everything a run derives from a key
(shard number, partition ID, seed) is the same in every process, release and encoding.

What is computed here stands in documents on stores: whoever changes the result of `hash_keys`
raises `HASH_VERSION`, and nobody changes `key_bytes`.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError, KeyClassError
from partwise.formatting import counted
from partwise.tables.column_names import names_in_words
from partwise.tables.dictionaries import decoded, decoded_column, plain_storage
from partwise.tables.keys.hashing import hash_column, mix
from partwise.tables.keys.key_classes import (
    KeyClass,
    KeyColumn,
    check_key_classes,
    key_class_of,
    key_columns,
    plain_type,
)
from partwise.tables.keys.key_values import (
    TO_NS,
    check_python_years,
    encode_value,
    plain_text,
    plain_value,
    slug,
)

__all__ = [
    "HASH_VERSION",
    "Key",
    "KeyClass",
    "KeyColumn",
    "check_key_classes",
    "chosen_keys",
    "encode_keys",
    "hash_keys",
    "key_bytes",
    "key_columns",
    "key_identities",
    "key_values",
    "normalize_keys",
    "partition_id",
    "partition_ids",
    "partition_seed",
    "plain_key",
    "plain_seed",
]

HASH_VERSION = 1
"""The version of `hash_keys`, which stands in run.json: shard numbers compare only within one."""

Key = Any
"""The key of a partition: a scalar for one `partition_by` column, a tuple for several."""

_Data = TypeVar("_Data", pa.RecordBatch, pa.Table)
_STRING_LIMIT = 2**31 - 1


def _canonical_type(column: KeyColumn, data_type: pa.DataType, size_bytes: int) -> pa.DataType:
    """The one Arrow type that keys of this class are worked with."""
    match column.key_class:
        case KeyClass.INTEGER:
            return pa.uint64() if data_type == pa.uint64() else pa.int64()
        case KeyClass.STRING:
            return pa.string() if size_bytes < _STRING_LIMIT else pa.large_string()
        case KeyClass.BINARY:
            return pa.binary() if size_bytes < _STRING_LIMIT else pa.large_binary()
        case KeyClass.FLOAT:
            return pa.float64()
        case KeyClass.TIMESTAMP | KeyClass.TIMESTAMP_TZ:
            zone = None if column.key_class is KeyClass.TIMESTAMP else "UTC"
            return pa.timestamp("ns" if data_type.unit == "ns" else "us", zone)
        case KeyClass.DATE:
            return pa.date32()
        case KeyClass.TIME:
            return pa.time64("ns" if data_type == pa.time64("ns") else "us")
        case KeyClass.DURATION:
            return pa.duration("ns" if data_type.unit == "ns" else "us")
        case KeyClass.DECIMAL:
            data_type = plain_storage(data_type)
            if pa.types.is_decimal256(data_type):
                return data_type
            return pa.decimal128(data_type.precision, data_type.scale)
        case _:
            return data_type


def _one_zero_one_nan(array: pa.Array) -> pa.Array:
    """Doubles with -0.0 as 0.0 and every NaN with the same bits."""
    if len(array) == array.null_count:
        return array
    # The sum of -0.0 and 0.0 is 0.0; and it is a new array, which may be written to.
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    # NaN is a key of its own here, and no null.
    return pa.array(values, pa.float64(), mask=mask, from_pandas=False)


def _normalize_column(column: KeyColumn, data: pa.Array | pa.ChunkedArray) -> Any:
    key_class = key_class_of(column.name, data.type)
    if key_class != column.key_class:
        raise KeyClassError(
            f"Key column {column.name!r} is of class {column.key_class}, but this part of the "
            f"source holds {data.type} (class {key_class}): cast it to one type."
        )
    data_type, plain = data.type, plain_type(data.type)
    try:
        if plain != data.type:
            data = decoded_column(data) if isinstance(data, pa.ChunkedArray) else decoded(data)
        data = data.cast(_canonical_type(column, plain, data.nbytes))
        check_python_years(data)
    except pa.ArrowInvalid as exc:
        raise ColumnError(
            f"Key column {column.name!r} of type {data_type} holds a value that cannot be a key: "
            f"{exc}."
        ) from exc
    if column.key_class is not KeyClass.FLOAT:
        return data
    if isinstance(data, pa.ChunkedArray):
        return pa.chunked_array([_one_zero_one_nan(chunk) for chunk in data.chunks], pa.float64())
    return _one_zero_one_nan(data)


def normalize_keys(data: _Data, columns: Sequence[KeyColumn]) -> _Data:
    """Take the key columns alone, in the canonical Arrow type of their class.

    Integers become int64 (uint64 stays), every encoding of strings `string` (`large_string` above
    2 GiB), floats double with -0.0 as 0.0, time stamps microseconds (nanoseconds stay) in UTC.

    Raises:
        KeyClassError: A column holds another class than `columns` says.
        ColumnError: A value has no canonical form, such as a time stamp beyond Python's years.
    """
    arrays = [_normalize_column(column, data.column(column.name)) for column in columns]
    names = [column.name for column in columns]
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(arrays, names=names)
    return pa.Table.from_arrays(arrays, names=names)


def hash_keys(normalized: pa.RecordBatch | pa.Table) -> np.ndarray:
    """Hash normalized keys, the same in every process and for every width and encoding.

    uint64, shape (n,). Equal keys have equal hashes; the order of key columns matters.
    """
    total: np.ndarray | None = None
    for name, data in zip(normalized.schema.names, normalized.columns, strict=True):
        chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
        parts = [hash_column(chunk, name) for chunk in chunks]
        hashes = np.concatenate(parts) if parts else np.empty(0, np.uint64)
        total = hashes if total is None else mix(total * np.uint64(0x9E3779B97F4A7C15) + hashes)
    if total is None:
        raise ColumnError("Keys without a column cannot be hashed: name at least one.")
    return total


def key_identities(
    normalized: pa.RecordBatch | pa.Table, hashes: np.ndarray | None = None
) -> np.ndarray:
    """Return what keys of two tables meet by, equal where the keys are: uint64, shape (n,).

    Within a table, whose integers have one type, that is their hash. It looks at 64 bits, and those
    of -1 and of 2**64 - 1 are the same. `hashes` are those of the keys, where they are known.
    """
    identities = hash_keys(normalized) if hashes is None else hashes.copy()
    for place, column in enumerate(normalized.columns, start=1):
        if column.type == pa.uint64():
            beyond = pc.greater_equal(column, pa.scalar(2**63, pa.uint64()))
            rows = np.flatnonzero(pc.fill_null(beyond, False).to_numpy(zero_copy_only=False))
            identities[rows] = mix(identities[rows] ^ np.uint64(place))
    return identities


def rows_by_key(normalized: pa.RecordBatch | pa.Table) -> list[tuple[Key, np.ndarray]]:
    """Return each key and the places of its rows, ascending, in the order of their first rows."""
    hashes = hash_keys(normalized)
    order = np.argsort(hashes, kind="stable")
    starts = np.flatnonzero(hashes[order][1:] != hashes[order][:-1]) + 1
    places = np.split(order, starts) if len(order) else []
    places.sort(key=lambda rows: int(rows[0]))
    firsts = normalized.take(pa.array([int(rows[0]) for rows in places], pa.int64()))
    return list(zip(key_values(firsts), places, strict=True))


def chosen_keys(normalized: pa.RecordBatch | pa.Table, hashes: Collection[int]) -> list[int]:
    """Return the numbers of the rows whose keys have one of some hashes."""
    return [i for i, found in enumerate(hash_keys(normalized).tolist()) if found in hashes]


def plain_key(key: Key, columns: Sequence[KeyColumn]) -> list[Any]:
    """The plain values of a key, each checked against the class of its column."""
    values = list(key) if isinstance(key, tuple) else [key]
    if len(values) != len(columns):
        raise KeyClassError(
            f"Key {key!r} has {counted(len(values), 'value')}, but the partitions are keyed by "
            f"{counted(len(columns), 'column')}: {names_in_words([c.name for c in columns])}."
        )
    plain = []
    for value, column in zip(values, columns, strict=True):
        found, made = plain_value(value)
        if found not in (column.key_class, KeyClass.NULL):
            raise KeyClassError(
                f"Key {value!r} is of type {type(value).__name__}, but the keys of column "
                f"{column.name!r} are of class {column.key_class}: ask with a value of that class."
            )
        if found is KeyClass.STRING:
            try:
                made.encode()
            except UnicodeEncodeError as exc:
                raise KeyClassError(
                    f"Key {value!r} of column {column.name!r} is not valid Unicode: it holds a "
                    "lone surrogate."
                ) from exc
        plain.append(made)
    return plain


def _encoded(plain: Sequence[Any], columns: Sequence[KeyColumn]) -> bytes:
    pairs = zip(plain, columns, strict=True)
    return b"".join(encode_value(value, column.key_class) for value, column in pairs)


def key_bytes(key: Key, columns: Sequence[KeyColumn]) -> bytes:
    r"""Encode one key: typed, length-prefixed, the same for every width and encoding.

    Args:
        key: A scalar for one column, a tuple for several. Python values, numpy scalars and pandas
            time stamps are taken; None, NaT and NA are null.
        columns: The key columns.

    Returns:
        For each column a tag of its class, the length (8 bytes, little endian) and the value.

    Raises:
        KeyClassError: A value is of another class than its column, or there are too few or many.

    Example:
        >>> key_bytes("a", [KeyColumn(name="store", key_class=KeyClass.STRING)])
        b's\x01\x00\x00\x00\x00\x00\x00\x00a'
    """
    return _encoded(plain_key(key, columns), columns)


def plain_seed(seed: int) -> int:
    """Return a run's seed as samplers and libraries take it, in [0, 2**31).

    Example:
        >>> plain_seed(3), plain_seed(-1)
        (3, 2147483647)
    """
    return seed % (1 << 31)


def partition_seed(seed: int, key_bytes: bytes) -> int:
    """Derive a partition's seed, in [0, 2**31), from that of the run and its key.

    It is the same for any number of workers and shards.
    """
    digest = hashlib.sha256(b"%d:" % seed + key_bytes).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _named(texts: Sequence[str], encoded: bytes) -> str:
    text = texts[0] if len(texts) == 1 else "_".join(text[:40] for text in texts)
    # Several keys may have one slug, such as "a b" and "A-B": the digest tells them apart.
    return f"{slug(text)}-{hashlib.sha256(encoded).hexdigest()[:16]}"


def partition_id(key: Key, columns: Sequence[KeyColumn]) -> str:
    """Name the partition of a key, safe as a path part on every store.

    Returns:
        A slug of at most 40 characters, "-", and 16 hexadecimal digits of the SHA-256 of
        `key_bytes`: ASCII, lower case, at most 57 characters.

    Example:
        >>> partition_id("Zürich HB", [KeyColumn(name="stop", key_class=KeyClass.STRING)])
        'zurich-hb-…'
    """
    plain = plain_key(key, columns)
    pairs = zip(plain, columns, strict=True)
    texts = [plain_text(value, column.key_class) for value, column in pairs]
    return _named(texts, _encoded(plain, columns))


def _plain_list(array: Any, column: KeyColumn) -> list[Any]:
    """The plain values of a normalized column, as `plain_value` makes them one at a time."""
    match column.key_class:
        case KeyClass.TIMESTAMP | KeyClass.TIMESTAMP_TZ | KeyClass.TIME | KeyClass.DURATION:
            scale = TO_NS[array.type.unit]
            numbers = array.cast(pa.int64()).to_pylist()
            return [None if number is None else number * scale for number in numbers]
        case KeyClass.DATE:
            return list(array.cast(pa.int32()).to_pylist())
        case _:
            return list(array.to_pylist())


def encode_keys(normalized: pa.RecordBatch | pa.Table, columns: Sequence[KeyColumn]) -> list[bytes]:
    """`key_bytes` of many keys at once, in the order of the rows."""
    parts = [
        [encode_value(value, column.key_class) for value in _plain_list(data, column)]
        for data, column in zip(normalized.columns, columns, strict=True)
    ]
    return parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]


def partition_ids(normalized: pa.RecordBatch | pa.Table, columns: Sequence[KeyColumn]) -> list[str]:
    """`partition_id` of many keys at once, in the order of the rows."""
    texts = [
        [plain_text(value, column.key_class) for value in _plain_list(data, column)]
        for data, column in zip(normalized.columns, columns, strict=True)
    ]
    rows = zip(zip(*texts, strict=True), encode_keys(normalized, columns), strict=True)
    return [_named(row, encoded) for row, encoded in rows]


def key_values(normalized: pa.RecordBatch | pa.Table) -> list[Key]:
    """The keys as Python values, in the order of the rows: scalars for one column, else tuples."""
    lists = [data.to_pylist() for data in normalized.columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
