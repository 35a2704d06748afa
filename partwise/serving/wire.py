"""What a client and the server agree on: `POST /predict/NAME`, as Arrow or as JSON, and its errors.

Beside its rows a question has fields: `key`, `version`, `on_missing` and `extra`. In a body of JSON
they stand beside "rows". As Arrow, the body is a stream of the rows, and the metadata of its schema
has one JSON object with the fields, under `FIELDS`: so that no key stands in a URL, or in a log.

An error is JSON, whatever was sent: {"error": a sentence, "kind": a name of `KINDS`}.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import (
    ColumnError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    PartwiseError,
)
from partwise.formatting import value_text
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
    """Return a key as `key_of_json` reads it.

    Raises:
        KeyClassError: A value is of a type that no key has.
    """
    return [value_to_json(value) for value in key] if isinstance(key, tuple) else value_to_json(key)


def value_to_json(value: Any) -> Any:
    """Return a value as `value_of_json` reads it: what JSON has no value for is text.

    Raises:
        KeyClassError: It is of a type that no key has.
    """
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    key_class, plain = plain_value(value)
    if key_class is None:
        raise KeyClassError(
            f"{value!r} is of type {type(value).__name__}, which no key is of: give a value of the "
            "class of the key column."
        )
    if key_class is KeyClass.FLOAT and plain - plain != 0:
        return "NaN" if plain != plain else "Infinity" if plain > 0 else "-Infinity"
    if plain is None or key_class in _OF_JSON:
        return plain
    # As it was given: the text of a key stands in the answer.
    if key_class in (KeyClass.TIMESTAMP, KeyClass.TIMESTAMP_TZ):
        return str(value) if isinstance(value, np.datetime64) else value_text(value)
    if key_class is KeyClass.DECIMAL:
        return str(plain)
    if key_class is KeyClass.DURATION:
        return f"{Decimal(plain).scaleb(-9):f}".rstrip("0").rstrip(".")
    return plain_text(plain, key_class)
