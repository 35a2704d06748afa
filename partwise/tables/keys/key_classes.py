"""The classes of partition keys: what kind of value a key column holds, in any width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import pyarrow as pa

from partwise.errors import ColumnError, KeyClassError
from partwise.tables.column_names import (
    check_named_once,
    check_unique_names,
    columns_there,
    names_in_words,
)


class KeyClass(StrEnum):
    """What kind of value a key column holds, in any width or encoding."""

    INTEGER = "integer"
    STRING = "string"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TZ = "timestamp_tz"
    DATE = "date"
    TIME = "time"
    DURATION = "duration"
    DECIMAL = "decimal"
    BINARY = "binary"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One column of the partition key."""

    # In documents of the store it has no other members.
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    """Its name in the source."""

    key_class: KeyClass
    """The class of its values."""


_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], KeyClass], ...] = (
    (pa.types.is_integer, KeyClass.INTEGER),
    (pa.types.is_string, KeyClass.STRING),
    (pa.types.is_large_string, KeyClass.STRING),
    (pa.types.is_string_view, KeyClass.STRING),
    (pa.types.is_floating, KeyClass.FLOAT),
    (pa.types.is_boolean, KeyClass.BOOLEAN),
    (pa.types.is_date, KeyClass.DATE),
    (pa.types.is_time, KeyClass.TIME),
    (pa.types.is_duration, KeyClass.DURATION),
    (pa.types.is_decimal, KeyClass.DECIMAL),
    (pa.types.is_binary, KeyClass.BINARY),
    (pa.types.is_large_binary, KeyClass.BINARY),
    (pa.types.is_binary_view, KeyClass.BINARY),
    (pa.types.is_fixed_size_binary, KeyClass.BINARY),
    (pa.types.is_null, KeyClass.NULL),
)


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the values, without the encoding around them."""
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return data_type.value_type
    return data_type


def key_class_of(name: str, data_type: pa.DataType) -> KeyClass:
    """The class of a column's type; `ColumnError` where such a column cannot be a key."""
    plain = plain_type(data_type)
    if pa.types.is_timestamp(plain):
        return KeyClass.TIMESTAMP if plain.tz is None else KeyClass.TIMESTAMP_TZ
    for matches, key_class in _CLASSES:
        if matches(plain):
            return key_class
    raise ColumnError(
        f"Column {name!r} of type {data_type} cannot be a partition key: "
        "cast it to a string, a number or a date first."
    )


def key_columns(schema: pa.Schema, partition_by: Sequence[str]) -> tuple[KeyColumn, ...]:
    """Find the key columns in a schema, with their classes.

    They are in the order of `partition_by`, which must not be empty.
    """
    if isinstance(partition_by, str):
        partition_by = (partition_by,)
    if not partition_by:
        raise ColumnError("partition_by is empty: name at least one column.")
    check_named_once(partition_by, "partition_by")
    check_unique_names(schema.names)
    columns = []
    for name in partition_by:
        if name not in schema.names:
            raise ColumnError(
                f"partition_by names column {name!r}, which the source does not have: "
                f"{columns_there(schema.names, name, begin='its columns are')}"
            )
        field = schema.field(name)
        if extension := (field.metadata or {}).get(b"ARROW:extension:name"):
            # Of a type that is not registered here, Arrow shows only how it is stored.
            raise ColumnError(
                f"Column {name!r} of the extension type {extension.decode(errors='replace')!r} "
                "cannot be a partition key: cast it to a string, a number or a date first."
            )
        columns.append(KeyColumn(name=name, key_class=key_class_of(name, field.type)))
    return tuple(columns)


def check_key_classes(trained: Sequence[KeyColumn], now: Sequence[KeyColumn], what: str) -> None:
    """Refuse keys of another class than those of the run that they meet.

    Example:
        >>> check_key_classes(run_columns, key_columns(schema, ["store"]), "training run 'a'")
    """
    names, names_now = [c.name for c in trained], [c.name for c in now]
    if names != names_now:
        raise KeyClassError(
            f"The keys of {what} are the columns {names_in_words(names)}, here they are "
            f"{names_in_words(names_now)}: partition by the same columns in the same order."
        )
    for before, after in zip(trained, now, strict=True):
        if before.key_class != after.key_class:
            raise KeyClassError(
                f"Key column {before.name!r} is of class {before.key_class} in {what}, but of "
                f"class {after.key_class} in this data: cast it to {before.key_class}, or "
                "train again with this class."
            )
