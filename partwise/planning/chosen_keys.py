"""Which keys a training is of, where it is not of all: those of a list, a table or a run."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from partwise.catalogs.evaluated import Evaluated
from partwise.datasets.dataset import resolve_references
from partwise.errors import InputError, RunIdError, RunNotFoundError, SourceError
from partwise.runs.documents import RUN_SCHEME, check_run_id
from partwise.runs.key_texts import parse_key
from partwise.runs.run import Run
from partwise.sources.frames.tables import table_of
from partwise.sources.opening import ChosenKeys, RowsOwner, keyed_by, open_source
from partwise.store.store import Store
from partwise.tables.keys.given_keys import (
    KEYS_URL,
    check_holds,
    keys_of_table,
    keys_of_url,
    keys_of_values,
)
from partwise.tables.keys.key_classes import KeyColumn

OPTION = "only="


def keys_to_train(run: Run) -> pa.Table:
    """Return the key columns of what got worse or had no model, as a run of evaluation found it.

    Raises:
        InputError: The run is of another kind.
    """
    if run.kind != "evaluate":
        raise InputError(
            f"The run {run.run_id!r} says of no key that its model got worse: it is of the kind "
            f"{run.kind!r}. Give {OPTION} keys, or a table with the key columns."
        )
    return Evaluated.of(run).keys_to_train()


def chosen_keys(
    only: Any, columns: tuple[KeyColumn, ...], rows: pa.Schema, store: Callable[[], Store]
) -> ChosenKeys | None:
    """Return the keys that a caller chose of some rows; None: all.

    `only` is a list of keys, as values or as texts that `parse_key` takes; a table or frame with
    the key columns, or the path, URL or dataset of one; the ID of a run; empty for all.

    Raises:
        InputError: There are none, or they cannot be read.
        KeyClassError: They are of other classes, or beyond the type of a key column.
    """
    if only is None or (isinstance(only, str) and not only):
        return None
    if isinstance(only, str) and only.startswith(KEYS_URL):
        # A document has integers by their 64 bits, and what was refused is not in it.
        keys = keys_of_table(keys_of_url(only), columns, OPTION)
    elif isinstance(only, list | tuple | set | frozenset):
        keys = keys_of_values([_value_of(each, columns) for each in only], columns, rows)
    else:
        keys = _keys_of(only, columns, store)
        check_holds(rows, keys)
    if not keys.num_rows:
        raise InputError(f"{OPTION} has no keys: nothing is to be trained. Leave it out for all.")
    return ChosenKeys.of(keys, columns)


def _keys_of(only: Any, columns: tuple[KeyColumn, ...], store: Callable[[], Store]) -> pa.Table:
    if isinstance(only, str) and (run := _run_of(only, store)) is not None:
        return keys_of_table(keys_to_train(run), columns, OPTION)
    found = resolve_references(only, store)
    try:
        if isinstance(found, str | os.PathLike | RowsOwner):
            names = [column.name for column in columns]
            source = keyed_by(open_source(found), names, columns)
            source = source.narrowed([name for name in names if name in source.schema.names])
            found = pa.Table.from_batches(source.batches(), source.schema)
        table = table_of(found)
    except SourceError as error:
        raise InputError(
            f"{OPTION} is neither a list of keys, nor a table with the key columns, nor a run of "
            f"this store. {error}"
        ) from error
    return keys_of_table(table, columns, OPTION)


def _value_of(key: Any, columns: Sequence[KeyColumn]) -> Any:
    """Return a key, which is typed or sent as a text where its class is another."""
    if isinstance(key, list):  # as JSON has several values
        return tuple(key)
    return parse_key(key, tuple(columns)) if isinstance(key, str) else key


def _run_of(text: str, store: Callable[[], Store]) -> Run | None:
    """Return the run that a text names; None: it is a path, or names none that is there."""
    if text.startswith(RUN_SCHEME):
        return Run.open(text.removeprefix(RUN_SCHEME), store())
    if os.path.exists(text):
        return None
    try:
        check_run_id(text)
        return Run.open(text, store())
    except (RunIdError, RunNotFoundError):
        return None
