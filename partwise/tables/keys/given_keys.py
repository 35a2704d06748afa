"""Keys that a caller gives, in a list or a table, in the types that keys of rows have; a filter."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError, InputError, KeyClassError
from partwise.tables.column_names import names_in_words
from partwise.tables.ipc_streams import table_buffer
from partwise.tables.keys.key_classes import KeyClass, KeyColumn, key_columns, plain_type
from partwise.tables.keys.partition_keys import Key, hash_keys, normalize_keys, plain_key

KEYS_URL = "data:application/vnd.apache.arrow.stream;base64,"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyFilter:
    """Lets the rows of some keys pass; these are compared by their hashes, as partitions are."""

    columns: tuple[KeyColumn, ...]
    hashes: np.ndarray
    """uint64, shape (keys,): sorted, each once, and at least one."""

    def holds(self, normalized: pa.RecordBatch) -> np.ndarray:
        """Tell which of some normalized keys are among these: bool, shape (rows,)."""
        found = hash_keys(normalized)
        places = np.searchsorted(self.hashes, found)
        places[places == len(self.hashes)] = 0
        same: np.ndarray = self.hashes[places] == found
        return same

    def passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of these keys."""
        return batch.filter(pa.array(self.holds(normalize_keys(batch, self.columns))))


def keys_of_values(
    keys: Iterable[Key], columns: Sequence[KeyColumn], rows: pa.Schema | None = None
) -> pa.Table:
    """Return Python's values of keys as a normalized table; `rows`, if given, are to have them.

    Raises:
        KeyClassError: A value is of another class than its column, or beyond all of that class; or
            there are too few or many.
    """
    plain = [plain_key(key, columns) for key in keys]
    arrays = []
    for index, column in enumerate(columns):
        values = [key[index] for key in plain]
        if column.key_class is KeyClass.INTEGER:
            _check_integers(values, column.name, rows)
        try:
            arrays.append(_key_array(values, column))
        except (pa.ArrowInvalid, OverflowError) as error:
            raise KeyClassError(
                f"No type holds all the keys that are given for column {column.name!r}: {error}. "
                "Leave out those that no row can have, or give them in several calls."
            ) from error
    table = pa.Table.from_arrays(arrays, names=[column.name for column in columns])
    return normalize_keys(table, columns)


def keys_of_table(table: pa.Table, columns: Sequence[KeyColumn], what: str) -> pa.Table:
    """Return the key columns of a table, normalized; `what` it is, messages say.

    Raises:
        ColumnError: One is missing.
        KeyClassError: One is of another class.
    """
    names = [column.name for column in columns]
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise ColumnError(
            f"{what} has no column {missing[0]!r}, which is a key column of the partitions: "
            f"its columns are {names_in_words(table.schema.names)}."
        )
    for column, found in zip(columns, key_columns(table.schema, names), strict=True):
        if column.key_class != found.key_class:
            raise KeyClassError(
                f"Key column {column.name!r} of {what} is of class {found.key_class}, but the "
                f"partitions' keys are of class {column.key_class}: cast it to that class."
            )
    return normalize_keys(table, columns)


def check_holds(rows: pa.Schema, keys: pa.Table) -> None:
    """Refuse integers below 0 or from 2**63 on that the type of rows' key columns does not hold.

    A hash looks at 64 bits, and those of -1 and of 2**64 - 1 are the same.

    Raises:
        KeyClassError: There is one.
    """
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if pa.types.is_integer(column.type):
            ends = pc.min_max(column).as_py()
            _check_integers(ends.values(), name, rows)


def keys_as_url(normalized: pa.Table) -> str:
    """Return keys as a text that stands for them in a document, as a data URL."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    content = table_buffer(normalized.combine_chunks(), options)
    return KEYS_URL + base64.b64encode(content).decode()


def keys_of_url(text: str) -> pa.Table:
    """Return the keys that `keys_as_url` made a text of."""
    try:
        content = base64.b64decode(text.removeprefix(KEYS_URL), validate=True)
        return pa.ipc.open_stream(content).read_all()
    except (ValueError, pa.ArrowException, OSError) as error:
        raise InputError(
            f"The keys that a call has as {text[:60]}... cannot be read: {error}."
        ) from error


def _check_integers(values: Iterable[int | None], name: str, rows: pa.Schema | None) -> None:
    low, stop, what = -(2**63), 2**64, "64 bits"
    if rows is not None and plain_type(rows.field(name).type) == pa.uint64():
        low, what = 0, "uint64"
    elif rows is not None:
        stop, what = 2**63, "int64"
    for value in values:
        if value is not None and not low <= value < stop:
            raise KeyClassError(
                f"Key {value} of column {name!r} is beyond {what}, and no row has such a key: "
                "leave it out."
            )


def _key_array(values: list[Any], column: KeyColumn) -> pa.Array:
    """Plain key values as a column that hashes as the same keys of a source do."""
    match column.key_class:
        case KeyClass.INTEGER:
            # The hash looks at the 64 bits, so signed and unsigned keys fit into one column.
            bits = [None if value is None else value % 2**64 for value in values]
            return pa.array(bits, pa.uint64())
        case KeyClass.TIMESTAMP:
            return _instants(values, "timestamp", None)
        case KeyClass.TIMESTAMP_TZ:
            return _instants(values, "timestamp", "UTC")
        case KeyClass.TIME:
            return _instants(values, "time64")
        case KeyClass.DURATION:
            return _instants(values, "duration")
        case KeyClass.DATE:
            return pa.array(values, pa.int32()).cast(pa.date32())
        case KeyClass.STRING:
            return pa.array(values, pa.large_string())
        case KeyClass.BINARY:
            return pa.array(values, pa.large_binary())
        case KeyClass.FLOAT:
            return pa.array(values, pa.float64(), from_pandas=False)
        case KeyClass.BOOLEAN:
            return pa.array(values, pa.bool_())
        case KeyClass.NULL:
            return pa.nulls(len(values))
        case _:
            known = any(value is not None for value in values)
            return pa.array(values) if known else pa.nulls(len(values), pa.decimal128(1))


def _instants(values: list[Any], kind: str, *zone: str | None) -> pa.Array:
    """Nanoseconds as a column in microseconds if that loses nothing, else in nanoseconds."""
    whole = all(value is None or value % 1000 == 0 for value in values)
    numbers = [None if value is None else value // (1000 if whole else 1) for value in values]
    data_type = getattr(pa, kind)("us" if whole else "ns", *zone)
    return pa.array(numbers, pa.int64()).cast(data_type)
