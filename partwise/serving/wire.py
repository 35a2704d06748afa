"""What a client and the server agree on: `POST /predict/NAME`, as Arrow or as JSON, and its errors.

Beside its rows a question has fields: `key`, `version`, `on_missing` and `extra`. In a body of JSON
they stand beside "rows". As Arrow, the body is a stream of the rows, and the metadata of its schema
has one JSON object with the fields, under `FIELDS`: so that no key stands in a URL, or in a log.

An error is JSON, whatever was sent: {"error": a sentence, "kind": a name of `KINDS`}.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from partwise.errors import (
    ColumnError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    PartwiseError,
)
from partwise.serving.errors import DeadlineError, OverloadedError, VersionNotServedError
from partwise.tables.keys.key_classes import KeyClass
from partwise.tables.keys.key_values import plain_text, plain_value
from partwise.tables.keys.partition_keys import Key

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
FIELDS = b"partwise"
"""Under which the schema of a stream has what stands beside the rows."""

KINDS: Mapping[str, type[PartwiseError]] = {
    each.__name__: each
    for each in (
        ColumnError,
        KeyClassError,
        InputError,
        PartitionNotFoundError,
        ModelNotFoundError,
        VersionNotServedError,
        IntegrityError,
        OverloadedError,
        DeadlineError,
    )
}
"""The errors that an answer can tell of; its client raises them again."""
_OF_JSON = (KeyClass.BOOLEAN, KeyClass.INTEGER, KeyClass.FLOAT, KeyClass.STRING)


def kind_of(error: BaseException) -> str:
    """Return the name of an error among `KINDS`; of a more special one, that of its base.

    "" where it has none.
    """
    return next((each.__name__ for each in type(error).__mro__ if each.__name__ in KINDS), "")


def key_to_json(key: Key) -> Any:
    """Return a key as `key_of_json` reads it: what JSON has no value for is text.

    Raises:
        KeyClassError: A value is of a type that no key has, or of JSON.
    """
    if isinstance(key, tuple):
        return [_value_to_json(value) for value in key]
    return _value_to_json(key)


def _value_to_json(value: Any) -> Any:
    key_class, plain = plain_value(value)
    is_number = isinstance(plain, float) and plain - plain == 0
    if key_class is None or (key_class is KeyClass.FLOAT and not is_number):
        raise KeyClassError(
            f"Key {value!r} is of type {type(value).__name__}, and cannot be sent: ask with a value "
            "of the class of the key column; NaN and infinity are not in JSON."
        )
    if plain is None or key_class in _OF_JSON:
        return plain
    if key_class in (KeyClass.TIMESTAMP, KeyClass.TIMESTAMP_TZ):
        return _instant(plain, key_class is KeyClass.TIMESTAMP_TZ)
    return plain_text(plain, key_class)


def _instant(nanoseconds: int, has_zone: bool) -> str:
    """Return a time as text of ISO 8601, with nine digits where it needs them."""
    micros, rest = divmod(nanoseconds, 1000)
    text = (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)).isoformat(  # noqa: DTZ001
        timespec="microseconds"
    )
    return text + (f"{rest:03d}" if rest else "") + ("+00:00" if has_zone else "")
