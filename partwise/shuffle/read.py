"""The rows of a shard as they lie on disk before they are sorted, in the order of the source."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import SourceError
from partwise.shuffle.plan import KeyedRows, ShardRows, UnsortedShard
from partwise.sources.fetching import fetched_ahead
from partwise.sources.fragments import Fragment
from partwise.tables.dictionaries import (
    ColumnStorage,
    decode_batch,
    read_dictionaries,
    recode,
    stored_schema,
)
from partwise.tables.keys.key_classes import KeyColumn
from partwise.tables.keys.partition_keys import normalize_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """Rows of a shard in part files, mapped into memory."""

    rows: pa.Table
    """As they are stored: codes in place of dictionary columns."""
    dictionaries: pa.RecordBatch
    """A batch of no rows in the schema of the source, with the dictionaries that codes are of."""

    def keys(self, key_columns: Sequence[KeyColumn]) -> pa.Table:
        """The normalized keys of all rows."""
        chosen = self.dictionaries.select([column.name for column in key_columns])
        batches = self.rows.select(chosen.schema.names).to_batches()
        shown = pa.Table.from_batches([decode_batch(batch, chosen) for batch in batches])
        return normalize_keys(shown, key_columns)


@contextmanager
def stored_rows(
    shard: UnsortedShard, key_columns: Sequence[KeyColumn], spool: Path
) -> Iterator[StoredRows]:
    """Give the rows of a shard.

    `spool` is a file for the rows of fragments that are in no part file; it is gone afterwards.
    """
    numbers = {0, *(rows.dictionaries for rows in shard.written)}
    dictionaries = read_dictionaries(shard.dictionaries, numbers)
    merged = dictionaries[0]
    stored = stored_schema(merged.schema)
    batches: list[tuple[int, int, pa.RecordBatch]] = []
    for rows in shard.written:
        for position, batch in _messages(rows, stored):
            if rows.dictionaries:
                batch = recode(batch, dictionaries[rows.dictionaries], merged)
            batches.append((position, len(batches), batch))
    try:
        if shard.keyed:
            for position, batch in _spooled(shard, key_columns, spool, stored):
                batches.append((position, len(batches), batch))
        # Batches of one fragment stay in their order; a batch itself cannot be compared.
        batches.sort(key=lambda item: item[:2])
        table = pa.Table.from_batches([batch for *_, batch in batches], stored)
        yield StoredRows(rows=table, dictionaries=merged)
    finally:
        spool.unlink(missing_ok=True)


def _messages(rows: ShardRows, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    source = pa.memory_map(rows.path).read_buffer()
    for position, (offset, size) in zip(rows.positions.tolist(), rows.spans.tolist(), strict=True):
        yield position, pa.ipc.read_record_batch(source.slice(offset, size), schema)


def _spooled(
    shard: UnsortedShard, key_columns: Sequence[KeyColumn], spool: Path, schema: pa.Schema
) -> list[tuple[int, pa.RecordBatch]]:
    """Write the rows of fragments to a file, and map it."""
    positions: list[int] = []
    with pa.OSFile(str(spool), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for keyed, batches in read_keyed(shard, shard.keyed, key_columns):
            for batch in batches:
                writer.write_batch(batch)
                positions.append(keyed.position)
    batches = pa.ipc.open_stream(pa.memory_map(str(spool))).read_all().to_batches()
    return list(zip(positions, batches, strict=True))


def read_keyed(
    shard: UnsortedShard, chosen: Iterable[KeyedRows], key_columns: Sequence[KeyColumn]
) -> Iterator[tuple[KeyedRows, Iterator[pa.RecordBatch]]]:
    """Give fragments of a shard that have one key each, with their rows as they are stored.

    The rows of one are to be read before the next is asked for.
    """
    if shard.selection is None:
        return
    # One for all of them: no column has a dictionary, so it learns nothing of the rows.
    storage = ColumnStorage(shard.selection.schema)

    def batches(keyed: KeyedRows, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        for batch in selection.batches(fragment):
            keys = normalize_keys(batch.select(keyed.keys.schema.names), key_columns)
            _check_keys(keys, keyed)
            yield storage.store(batch)

    selection, some = shard.selection, list(chosen)
    for keyed, fragment in zip(some, fetched_ahead([each.fragment for each in some]), strict=True):
        yield keyed, batches(keyed, fragment)


def _check_keys(keys: pa.RecordBatch, keyed: KeyedRows) -> None:
    """Raise `SourceError` where rows have another key than their fragment is known to have."""
    for name, column, known in zip(keys.schema.names, keys.columns, keyed.keys, strict=True):
        value = known[0]
        same = column.null_count == len(column)
        if value.is_valid:
            # NaN, which Arrow calls equal to nothing, is a key like others.
            is_nan = pa.types.is_floating(value.type) and value.as_py() != value.as_py()
            equal = pc.is_nan(column) if is_nan else pc.equal(column, value)
            same = not column.null_count and bool(pc.all(equal).as_py())
        if not same:
            raise SourceError(
                f"Column {name!r} has other values than {value.as_py()!r} in {keyed.fragment}, "
                "though the file's path or statistics say so: write the file again."
            )
