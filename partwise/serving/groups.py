"""Rows by their keys, and the models that may answer for each key."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.catalogs.rows import OF_ALL
from partwise.errors import ColumnError, InputError
from partwise.formatting import key_text
from partwise.runs.run import ONLY
from partwise.serving.keys import given_values, key_of_json, value_of_json
from partwise.serving.levels import Level, Place
from partwise.serving.questions import Question, UsedModel
from partwise.serving.served import Served
from partwise.tables.keys.partition_keys import (
    Key,
    KeyColumn,
    check_key_classes,
    key_bytes,
    key_columns,
    normalize_keys,
    partition_id,
    rows_by_key,
)

_MOST_MET = 65_536
"""Keys of which it is remembered which models they have, about 1 KiB each."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer for a key."""

    level: Level
    place: Place
    used: UsedModel
    """What an answer says of it."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The models that may answer for a key, in the order in which they are asked."""

    key: Key
    models: tuple[Candidate, ...]


Group = tuple[Candidates, np.ndarray | None]
"""The models for rows of one key, and the places of these rows; None: all."""


def groups_of(served: Served, question: Question) -> Iterator[Group]:
    """Yield the rows of each key, with the models that may answer for it.

    Raises:
        ColumnError: No key was given, and a key column is missing.
        KeyClassError: A key is of another class.
        InputError: A key was given for one model of all rows.
    """
    columns = served.key_columns
    if not columns:
        if question.key is not ONLY:
            raise InputError(f"{served.reference} has one model for all rows: leave the key out.")
        yield candidates_of(served, ()), None
    elif question.key is not ONLY:
        _check_same(question, columns)
        yield candidates_of(served, question.key), None
    else:
        names = [column.name for column in columns]
        if missing := [name for name in names if name not in question.columns]:
            raise ColumnError(
                f"{served.reference} has a model for each key: name the key, or send the column "
                f"{missing[0]!r} with the rows."
            )
        for key, rows in _keys_of_rows(question, columns):
            yield candidates_of(served, key), rows


def _check_same(question: Question, columns: Sequence[KeyColumn]) -> None:
    """Refuse rows with a key column that says another key than the one that was given."""
    key = question.key if isinstance(question.key, tuple) else (question.key,)
    for column, wanted in zip(columns, key, strict=False):
        values = given_values(question.columns.get(column.name, ()), column)
        if isinstance(values, pa.ChunkedArray):
            found = values.unique().to_pylist()
        else:
            found = [value_of_json(value, column) for value in values]
        if not all(_are_same(value, wanted, column) for value in found):
            raise InputError(
                f"The key was given, and rows have others in the column {column.name!r}: leave "
                "that column out, or the key."
            )


def _are_same(value: Any, wanted: Any, column: KeyColumn) -> bool:
    """Whether two values are one key: NaN is, and the two 02:30 of an autumn night are two."""
    if isinstance(value, dt.datetime):
        return key_bytes(value, [column]) == key_bytes(wanted, [column])
    return bool(value == wanted or (value != value and wanted != wanted))


def candidates_of(served: Served, key: Key) -> Candidates:
    """Return the models that may answer for a key; of none at all, the empty key."""
    named = _told_apart(key if isinstance(key, tuple) else (key,))
    try:
        found: Candidates | None = served.met.get(named)
    except TypeError:  # a list or the like, which is refused as a key
        return _find_candidates(served, key)
    if found is None:
        found = _find_candidates(served, key)
        if len(served.met) >= _MOST_MET:
            served.met.clear()
        served.met[named] = found
    return found


def _told_apart(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values of a key such that a dict tells it from others.

    For Python 1, 1.0 and True are equal, and so are the two 02:30 of an autumn night.
    """
    return tuple((value, type(value), _offset(value)) for value in values)


def _offset(value: Any) -> dt.timedelta | None:
    is_zoned = isinstance(value, dt.datetime) and value.tzinfo is not None
    return value.utcoffset() if is_zoned else None


def _find_candidates(served: Served, key: Key) -> Candidates:
    columns = served.key_columns
    name = partition_id(key, columns) if columns else OF_ALL
    values = key if isinstance(key, tuple) else (key,)
    by_name = dict(zip((column.name for column in columns), values, strict=bool(columns)))
    models = []
    for number, level in enumerate(served.levels):
        own = tuple(by_name[column.name] for column in level.key_columns)
        name_there = name
        if level.key_columns != columns:
            name_there = partition_id(own, level.key_columns) if own else OF_ALL
        place = level.place(name_there)
        if place is not None:
            used = UsedModel(run_id=place.run_id, key=key_text(own) if own else "", level=number)
            models.append(Candidate(level, place, used))
    return Candidates(key, tuple(models))


def _keys_of_rows(
    question: Question, columns: Sequence[KeyColumn]
) -> Iterator[tuple[Key, np.ndarray]]:
    """Yield each key that rows have, and the places of its rows, in the order of their first."""
    given = [given_values(question.columns[column.name], column) for column in columns]
    if all(isinstance(each, pa.ChunkedArray) for each in given):
        table = pa.table(given, names=[column.name for column in columns])
        check_key_classes(columns, key_columns(table.schema, table.column_names), "the models")
        yield from rows_by_key(normalize_keys(table, columns))
        return
    lists = [
        values.to_pylist() if isinstance(values, pa.ChunkedArray) else values for values in given
    ]
    places: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*lists, strict=True)):
        try:
            places.setdefault(_told_apart(values), []).append(row)
        except TypeError:  # a list or an object, which is no key
            key_of_json(list(values), columns)
            raise
    for rows in places.values():
        made = [
            value_of_json(values[rows[0]], column)
            if not isinstance(source, pa.ChunkedArray)
            else values[rows[0]]
            for values, column, source in zip(lists, columns, given, strict=True)
        ]
        yield made[0] if len(made) == 1 else tuple(made), np.array(rows)
