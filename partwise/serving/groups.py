"""Rows by their keys, and the models that may answer for each key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.catalogs.rows import OF_ALL
from partwise.errors import ColumnError, InputError
from partwise.formatting import key_text
from partwise.runs.run import ONLY
from partwise.serving.keys import key_of_json, value_of_json
from partwise.serving.levels import Level, Place
from partwise.serving.questions import Question
from partwise.serving.served import Served
from partwise.tables.keys.partition_keys import (
    Key,
    KeyColumn,
    check_key_classes,
    hash_keys,
    key_columns,
    key_values,
    normalize_keys,
    partition_id,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one key, and the models that may answer for them, by level."""

    key: Key
    rows: np.ndarray | None
    """Their places; None: all."""
    places: tuple[tuple[int, Place], ...]


def groups_of(served: Served, question: Question) -> Iterator[Group]:
    """Yield the rows of each key, with the models that may answer for it."""
    columns = served.key_columns
    if not columns:
        if question.key is not ONLY:
            raise InputError(f"{served.reference} has one model for all rows: leave the key out.")
        yield _group(served, (), None)
    elif question.key is not ONLY:
        yield _group(served, question.key, None)
    else:
        names = [column.name for column in columns]
        if missing := [name for name in names if name not in question.columns]:
            raise ColumnError(
                f"{served.reference} has a model for each key: name the key, or send the column "
                f"{missing[0]!r} with the rows."
            )
        for key, rows in _keys_of_rows(question, columns):
            yield _group(served, key, rows)


def _group(served: Served, key: Key, rows: np.ndarray | None) -> Group:
    own = values_of(key, served.key_columns) if served.key_columns else ()
    by_name = dict(zip((column.name for column in served.key_columns), own, strict=True))
    name = partition_id(key, served.key_columns) if served.key_columns else OF_ALL
    places = []
    for number, level in enumerate(served.levels):
        if not level.key_columns:
            name_there = OF_ALL
        elif level.key_columns == served.key_columns:
            name_there = name
        else:
            values = tuple(by_name[column.name] for column in level.key_columns)
            name_there = partition_id(values, level.key_columns)
        place = level.place(name_there)
        if place is not None:
            places.append((number, place))
    return Group(key, rows, tuple(places))


def values_of(key: Key, columns: Sequence[KeyColumn]) -> tuple[Any, ...]:
    """Return the values of a key; KeyClassError where it has too few or many."""
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(columns):
        # In the words that every key of a wrong length gets.
        partition_id(key, columns)
    return values


def _keys_of_rows(
    question: Question, columns: Sequence[KeyColumn]
) -> Iterator[tuple[Key, np.ndarray]]:
    """Yield each key that rows have, and the places of its rows, in the order of their first."""
    given = [question.columns[column.name] for column in columns]
    if all(isinstance(values, pa.ChunkedArray) for values in given):
        table = pa.table(given, names=[column.name for column in columns])
        check_key_classes(columns, key_columns(table.schema, table.column_names), "the models")
        normalized = normalize_keys(table, columns)
        hashes = hash_keys(normalized)
        order = np.argsort(hashes, kind="stable")
        starts = np.flatnonzero(hashes[order][1:] != hashes[order][:-1]) + 1
        parts = np.split(order, starts) if len(order) else []
        parts.sort(key=lambda part: int(part[0]))
        firsts = normalized.take(pa.array([int(part[0]) for part in parts], pa.int64()))
        yield from zip(key_values(firsts), parts, strict=True)
        return
    lists = [
        values.to_pylist() if isinstance(values, pa.ChunkedArray) else values for values in given
    ]
    places: dict[tuple[Any, ...], list[int]] = {}
    # By type as well: 1, 1.0 and True are one key of a dict.
    for row, values in enumerate(zip(*lists, strict=True)):
        try:
            places.setdefault((*values, *map(type, values)), []).append(row)
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


def own_key_text(served: Served, level: Level, key: Key) -> str:
    """Return the key that a model has in its level, as text."""
    if not level.key_columns:
        return ""
    values = values_of(key, served.key_columns)
    by_name = dict(zip((column.name for column in served.key_columns), values, strict=True))
    return key_text([by_name[column.name] for column in level.key_columns])
