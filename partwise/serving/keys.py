"""Keys as JSON has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from partwise.errors import KeyClassError
from partwise.formatting import counted, shortened
from partwise.runs.key_texts import parse_key_value
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_text
from partwise.tables.keys.partition_keys import Key, KeyClass, KeyColumn

_NOT_OF_JSON = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_JSON = (str, int, float, bool, list, dict)
_TYPES: dict[KeyClass, tuple[type, ...]] = {
    KeyClass.STRING: (str,),
    KeyClass.INTEGER: (int,),
    # Many writers of JSON have one number, and write 1.0 as 1.
    KeyClass.FLOAT: (float, int),
    KeyClass.BOOLEAN: (bool,),
    KeyClass.NULL: (),
}
"""The types of Python in which JSON has a value of a class; of all others, text."""


def key_of_json(value: Any, columns: Sequence[KeyColumn]) -> Key:
    """Return the key that a value of JSON stands for.

    Args:
        value: A scalar; for several key columns a list in their order; or an object by column.
            Dates, times, decimals, durations and bytes are text, as `--key` takes them; null is the
            null key. NaN and infinities, which JSON lacks, are text as well.
        columns: The key columns.

    Raises:
        KeyClassError: It is of another class than the columns, or has too few or many values.

    Example:
        >>> key_of_json({"store": 7}, [KeyColumn(name="store", key_class=KeyClass.INTEGER)])
        7
    """
    if isinstance(value, Mapping):
        names = [column.name for column in columns]
        if {*value} != {*names}:
            raise KeyClassError(
                f"The key names the columns {names_in_words(list(map(str, value)))}, and the keys "
                f"have {names_in_words(names)}."
            )
        value = [value[name] for name in names]
    values = value if isinstance(value, list) else [value]
    if len(values) != len(columns):
        raise KeyClassError(
            f"The key has {counted(len(values), 'value')}, and the keys have {len(columns)}: "
            f"{names_in_words([column.name for column in columns])}."
        )
    made = [value_of_json(each, column) for each, column in zip(values, columns, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def given_values(values: Any, column: KeyColumn) -> Any:
    """Return values of a key column as a list, where they are what a list would have in JSON.

    Those are columns of Arrow of nulls alone, which have no class, and of text that stands for
    something else, such as a date: a list with a decimal in it travels as Arrow.
    """
    if not isinstance(values, pa.ChunkedArray):
        return values
    is_text_of_other = is_text(values.type) and column.key_class is not KeyClass.STRING
    return values.to_pylist() if values.type == pa.null() or is_text_of_other else values


def value_of_json(value: Any, column: KeyColumn) -> Any:
    """Return the value of a key column that a value of JSON stands for; see `key_of_json`.

    A value that JSON does not have, such as a date in rows of Python, is a key as it is.
    """
    if value is None or type(value) not in _JSON:
        return value
    kind = column.key_class
    if kind is KeyClass.FLOAT and isinstance(value, str) and value in _NOT_OF_JSON:
        return _NOT_OF_JSON[value]
    if kind not in _TYPES and type(value) is str and value != "null":
        return parse_key_value(value, column)
    # By type, and not by isinstance: True is no integer.
    if type(value) not in _TYPES.get(kind, ()):
        raise KeyClassError(
            f"The key column {column.name!r} is of class {kind}, and the key has "
            f"{shortened(repr(value), 80)} there: send {_WANTED.get(kind, 'text')}."
        )
    return float(value) if kind is KeyClass.FLOAT else value


_WANTED = {
    KeyClass.STRING: "text",
    KeyClass.INTEGER: "a whole number without quotes or a point",
    KeyClass.FLOAT: "a number",
    KeyClass.BOOLEAN: "true or false",
    KeyClass.NULL: "null",
}
