"""Per-partition parameters: a table or mapping keyed as the partitions are, split by shard."""

import hashlib
import os
import pickle
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from partwise.engine.params_file import write_params
from partwise.errors import InputError, SourceError
from partwise.sources.frames.tables import table_of
from partwise.sources.opening import keyed_by, open_source
from partwise.tables.keys.given_keys import keys_of_table, keys_of_values
from partwise.tables.keys.key_classes import KeyColumn
from partwise.tables.keys.partition_keys import Key, hash_keys, partition_id, partition_ids

_PLAIN_TYPES = frozenset({bool, bytes, float, int, str, type(None)})


def given_params(params: Any, columns: Sequence[KeyColumn]) -> Any:
    """Return per-partition parameters as `shard_params` takes them, read where they are a path.

    They are a table, frame or mapping, or the path or URL of a file of one, which is read with the
    classes of the keys if it has no types; empty or None for none.
    """
    if isinstance(params, str | os.PathLike):
        if not str(params):
            return None
        source = keyed_by(open_source(params), [column.name for column in columns], columns)
        return pa.Table.from_batches(source.batches(), source.schema)
    return None if isinstance(params, Mapping) and not params else params


def values_of(params: Any, columns: Sequence[KeyColumn]) -> Sequence[Mapping[str, Any]]:
    """Return the parameters of each partition that has any, as `shard_params` takes them."""
    if params is None:
        return []
    return _by_partition(params, columns)[2]


def shard_params(
    params: Any,
    columns: Sequence[KeyColumn],
    n_shards: int,
    directory: str | os.PathLike[str],
) -> dict[int, str]:
    """Split per-partition parameters by shard into small files.

    `params` is a table or frame with the key columns and columns of values, or a mapping from key
    to a mapping from name to value; None for none. Keys of no partition are fine. `directory` is
    made if it is missing.

    Returns:
        The path of its file for every shard that has parameters.

    Example:
        >>> shard_params({"store-1": {"rounds": 50}}, sharded.key_columns, 64, "/tmp/params")
        {17: '/tmp/params/params-00017.arrow'}
    """
    if params is None:
        return {}
    ids, hashes, values = _by_partition(params, columns)
    fingerprints = [_fingerprint(value) for value in values]
    numbers = (hashes % np.uint64(n_shards)).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    paths: dict[int, str] = {}
    for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        if not len(rows):
            continue
        number = int(numbers[rows[0]])
        paths[number] = str(Path(directory) / f"params-{number:05d}.arrow")
        Path(directory).mkdir(parents=True, exist_ok=True)
        chosen = rows.tolist()
        write_params(
            paths[number],
            [ids[row] for row in chosen],
            [fingerprints[row] for row in chosen],
            [_pickled(ids[row], values[row]) for row in chosen],
        )
    return paths


def _by_partition(
    params: Any, columns: Sequence[KeyColumn]
) -> tuple[list[str], np.ndarray, list[dict[str, Any]]]:
    """Return which partitions have parameters, the hashes of their keys, and what they have."""
    if isinstance(params, Mapping):
        ids, hashes, values = _of_mapping(params, columns)
    else:
        ids, hashes, values = _of_table(_params_table(params), columns)
    name, count = Counter(ids).most_common(1)[0] if ids else ("", 0)
    if count > 1:
        raise InputError(f"params has more than one entry for partition {name!r}: keep one.")
    return ids, hashes, values


def _params_table(params: Any) -> pa.Table:
    try:
        return table_of(params)
    except SourceError as exc:
        raise InputError(
            f"params of type {type(params).__name__} cannot be read: give a table or frame with "
            "the key columns, or a mapping from key to a mapping of values."
        ) from exc


def _fingerprint(values: Mapping[str, Any]) -> str:
    from partwise.fingerprints.canonical import canonical_bytes

    try:
        return hashlib.sha256(canonical_bytes(dict(values))).hexdigest()
    except TypeError:
        # Equal to no other, so that these partitions run again: what is unknown counts as changed.
        return f"unknown-{secrets.token_hex(16)}"


def _pickled(name: str, values: Mapping[str, Any]) -> bytes:
    # cloudpickle can carry what the caller defined in a script, at ten times the price.
    if all(type(value) in _PLAIN_TYPES for value in values.values()):
        return pickle.dumps(dict(values))
    try:
        return bytes(cloudpickle.dumps(dict(values)))  # type: ignore[no-untyped-call]
    except Exception as exc:  # a user's object may raise anything when it is pickled
        raise InputError(
            f"The params of partition {name!r} cannot be sent to a worker: "
            f"{type(exc).__name__}: {exc}."
        ) from exc


def _of_table(
    table: pa.Table, columns: Sequence[KeyColumn]
) -> tuple[list[str], np.ndarray, list[dict[str, Any]]]:
    names = [column.name for column in columns]
    keys = keys_of_table(table, columns, "params")
    values = table.drop_columns(names).to_pylist()
    return partition_ids(keys, columns), hash_keys(keys), values


def _of_mapping(
    params: Mapping[Key, Any], columns: Sequence[KeyColumn]
) -> tuple[list[str], np.ndarray, list[dict[str, Any]]]:
    for key, values in params.items():
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise InputError(
                f"The params of key {key!r} are {type(values).__name__}: "
                "give a mapping from parameter names to values."
            )
    ids = [partition_id(key, columns) for key in params]
    hashes = hash_keys(keys_of_values(params, columns))
    return ids, hashes, [dict(values) for values in params.values()]
