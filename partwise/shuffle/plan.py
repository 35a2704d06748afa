"""Shards: the rows of a source, divided by the hash of their key.

What a shard consists of stands in the order of the source: messages in part files, and fragments of
the source itself that hold nothing but rows of one key. These are not moved: whoever works on the
shard reads them where they are.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from partwise.choices import NullKeys
from partwise.errors import SourceError
from partwise.shuffle.part_file import PartIndex, read_part_keys
from partwise.shuffle.shard_count import check_n_shards
from partwise.shuffle.write import Division, KeyRows, refuse_null, write_fragments
from partwise.sources.descriptions import Source
from partwise.sources.fragments import Fragment, Place, Selection
from partwise.tables.dictionaries import merge_dictionaries, same_dictionaries, write_dictionaries
from partwise.tables.keys.partition_keys import KeyColumn, hash_keys, normalize_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRows:
    """Rows of one shard in a part file."""

    path: str
    """The file, or where it lies in the artifact store."""
    positions: np.ndarray
    """int64, shape (messages,): the number of the fragment that each message's last row is of."""
    spans: np.ndarray
    """int64, shape (messages, 2): offset and size of each message in the file."""
    digests: np.ndarray | None
    """uint8, shape (messages, 32): the SHA-256 of each message in a store; None on a disk."""
    dictionaries: int
    """Which of the batches in the shard's file of dictionaries the codes are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """A fragment of the source with rows of one key only."""

    position: int
    """Its number in the source."""
    fragment: Fragment
    keys: pa.RecordBatch
    """One row: the normalized key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsortedShard:
    """The rows of one shard, not sorted yet."""

    number: int
    """The hash of its keys modulo the number of shards."""
    rows: int
    """How many rows it has, at least one."""
    size_bytes: int
    """Their size in Arrow memory; of fragments, an estimate."""
    written: tuple[ShardRows, ...]
    keyed: tuple[KeyedRows, ...]
    selection: Selection | None
    """What is taken of `keyed`; None where there are none."""
    dictionaries: str
    """A file of batches of no rows: first in the schema of the rows, with the dictionaries of the
    whole source; then those of parts whose codes are of others."""
    dictionaries_sha256: str = ""
    """Of that file, where it went by way of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRows:
    """A source that was divided over shards."""

    key_columns: tuple[KeyColumn, ...]
    """The columns by which it was divided."""
    n_shards: int
    """Among how many shards the rows were divided."""
    shards: tuple[UnsortedShard, ...]
    """Those that have rows, by number."""
    rows: int
    """Rows in all shards."""
    key_hashes: np.ndarray
    """uint64, shape (partitions,): the distinct hashes of keys, sorted."""
    key_rows: np.ndarray
    """int64, shape (partitions,): the rows of each."""
    keys: pa.Table
    """The normalized keys, in the order of their hashes."""
    dropped_rows: int
    """Rows left out because their key was null (policy "drop")."""
    schema: pa.Schema
    """The schema of the rows as readers of the sorted shards see them."""
    empty_columns: frozenset[str]
    """The columns in which every value is null."""
    only: frozenset[int] | None = None
    """The hashes of the keys that are meant, of those in `shards`; None: all."""

    @property
    def partitions(self) -> int:
        """Distinct keys, counted by their 64-bit hash."""
        return len(self.key_hashes)

    def keys_of(self, shard: int) -> pa.Table:
        """Return the keys of one shard, of those that are meant."""
        return self.keys.filter(pa.array(self.key_hashes % np.uint64(self.n_shards) == shard))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPart:
    """A part file, with its index."""

    path: str
    """The file, or where it lies in the artifact store."""
    index: PartIndex
    read: Callable[[int, int], bytes]
    """Gives bytes of the file, by offset and size."""


def keyed_fragments(
    fragments: Sequence[Fragment], division: Division, places: Collection[Place]
) -> tuple[list[KeyedRows], list[tuple[int, Fragment]], int]:
    """Find the fragments that hold rows of one key only.

    With a filter, or with dictionaries, of which stored codes are those of the whole source, all
    fragments have to be read first. `places`: where a fragment has to be, to be read by whoever
    works on its shard.

    Returns:
        Those fragments; all others with their numbers; how many rows were left out because their
        key is null.
    """
    names = [column.name for column in division.key_columns]
    selection = division.selection
    numbered = list(enumerate(fragments))
    if selection.conditions or any(map(pa.types.is_dictionary, selection.schema.types)):
        return [], numbered, 0
    keyed: list[KeyedRows] = []
    others: list[tuple[int, Fragment]] = []
    dropped = 0
    for position, fragment in numbered:
        is_known = fragment.rows is not None and all(name in fragment.known for name in names)
        if not is_known or fragment.place not in places:
            others.append((position, fragment))
            continue
        rows = fragment.rows or 0
        if rows == 0:
            continue
        values = {name: fragment.known[name] for name in names}
        arrays = [pa.array([value.as_py()], value.type) for value in values.values()]
        one = pa.RecordBatch.from_arrays(arrays, names=names)
        keys = normalize_keys(one, division.key_columns)
        if selection.only is not None and not selection.only.holds(keys)[0]:
            continue
        null = next((name for name, value in values.items() if not value.is_valid), None)
        if null is not None and division.null_keys == "error":
            refuse_null(null, str(fragment))
        if null is not None and division.null_keys == "drop":
            dropped += rows
            continue
        keyed.append(KeyedRows(position=position, fragment=fragment, keys=keys))
    return keyed, others, dropped


def merge_parts(
    source: Source,
    parts: Sequence[IndexedPart],
    keyed: Sequence[KeyedRows],
    division: Division,
    dropped_rows: int,
    dictionaries_path: str,
) -> ShardedRows:
    """Put shards together of what was written, and of fragments that are read where they lie.

    `parts` are in the order of the source; `dropped_rows` were left out besides those that the
    parts count themselves.
    """
    counts = KeyRows()
    for part in parts:
        # Not all at once: each part may have all keys.
        if (keys := read_part_keys(part.read, part.index, part.path)) is not None:
            counts.add(part.index.key_hashes, part.index.key_rows, keys)
    by_shard: dict[int, list[KeyedRows]] = {}
    for rows in keyed:
        hashes = hash_keys(rows.keys)
        one = pa.Table.from_batches([rows.keys])
        counts.add(hashes, np.array([rows.fragment.rows or 0]), one)
        by_shard.setdefault(int(hashes[0] % np.uint64(division.n_shards)), []).append(rows)
    key_hashes, key_rows, all_keys = counts.totals()
    dropped = dropped_rows + sum(part.index.dropped_rows for part in parts)
    if all_keys is None or not len(key_hashes):
        _refuse_empty(source, dropped)
    merged = merge_dictionaries(division.selection.schema, [p.index.dictionaries for p in parts])
    numbers, batches = [], [merged]
    for part in parts:
        if same_dictionaries(own := part.index.dictionaries, merged):
            numbers.append(0)
        else:
            numbers.append(len(batches))
            batches.append(own)
    write_dictionaries(dictionaries_path, batches)
    filled = frozenset().union(*(part.index.filled for part in parts))
    names = frozenset(division.selection.schema.names)
    return ShardedRows(
        key_columns=division.key_columns,
        n_shards=division.n_shards,
        shards=_shards(parts, numbers, by_shard, division, dictionaries_path),
        rows=int(key_rows.sum()),
        key_hashes=key_hashes,
        key_rows=key_rows,
        keys=all_keys,
        dropped_rows=dropped,
        schema=merged.schema,
        # Of fragments that nobody has read yet, it is not known.
        empty_columns=frozenset() if keyed else names - filled,
    )


def read_local(path: str, offset: int, size: int) -> bytes:
    """Read bytes of a file on this machine's disk."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _refuse_empty(source: Source, dropped: int) -> NoReturn:
    if dropped:
        raise SourceError(
            f"All {dropped} rows have a null key, and null_keys='drop' leaves none of them: "
            "check partition_by, or pass null_keys='keep'."
        )
    source.refuse_empty()
    raise SourceError("The source has no rows: there is nothing to partition.")


def _shards(
    parts: Sequence[IndexedPart],
    dictionaries: Sequence[int],
    keyed: dict[int, list[KeyedRows]],
    division: Division,
    dictionaries_path: str,
) -> tuple[UnsortedShard, ...]:
    """Return the shards; `dictionaries`: which batch of the file the codes of each part are of."""
    rows = np.zeros(division.n_shards, np.int64)
    sizes = np.zeros(division.n_shards, np.int64)
    written: dict[int, list[ShardRows]] = {}
    for part, own in zip(parts, dictionaries, strict=True):
        index = part.index
        rows += np.bincount(index.shards, index.rows, division.n_shards).astype(np.int64)
        sizes += np.bincount(index.shards, index.spans[:, 1], division.n_shards).astype(np.int64)
        # Stable, so that the messages of a shard keep the order of the source.
        order = np.argsort(index.shards, kind="stable")
        numbers, starts = np.unique(index.shards[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            here = ShardRows(
                path=part.path,
                positions=index.positions[places],
                spans=index.spans[places],
                digests=None if index.digests is None else index.digests[places],
                dictionaries=own,
            )
            written.setdefault(number, []).append(here)
    for number, fragments in keyed.items():
        rows[number] += sum(one.fragment.rows or 0 for one in fragments)
        sizes[number] += sum(one.fragment.size_bytes for one in fragments)
    return tuple(
        UnsortedShard(
            number=number,
            rows=int(rows[number]),
            size_bytes=int(sizes[number]),
            written=tuple(written.get(number, ())),
            keyed=tuple(keyed.get(number, ())),
            selection=division.selection if number in keyed else None,
            dictionaries=dictionaries_path,
        )
        for number in np.flatnonzero(rows).tolist()
    )


def shard_rows(
    source: Source,
    key_columns: Sequence[KeyColumn],
    n_shards: int,
    directory: str | os.PathLike[str],
    *,
    null_keys: NullKeys = "error",
) -> ShardedRows:
    """Divide a source over shards in this process alone: all that has to be read is one part.

    `directory` is made if it is missing.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    division = Division(
        selection=source.selection,
        key_columns=tuple(key_columns),
        n_shards=check_n_shards(n_shards),
        null_keys=null_keys,
    )
    fragments = source.fragments([column.name for column in key_columns])
    keyed, others, dropped = keyed_fragments(fragments, division, ("anywhere", "disk"))
    path = os.path.join(directory, "00000.part")
    parts = []
    if others:
        index = write_fragments(division, others, path, first_row=0 if not keyed else None)
        parts = [IndexedPart(path=path, index=index, read=partial(read_local, path))]
    dictionaries = os.path.join(directory, "dictionaries")
    return merge_parts(source, parts, keyed, division, dropped, dictionaries)
