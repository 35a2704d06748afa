"""The partitions that a generation at work has no outcome of yet: PENDING, or RUNNING.

    generations/000N.keys-000M.parquet  the keys of all that it is to work on, the rows of each

It is written before the generation is begun, by the process of the claim M; of several, the newest
is the one that has begun it. Nobody needs it once the generation has ended. It is one file:
a run of a million partitions has some 12 MB of keys, while one file for each shard would take a
bucket hundreds of requests more before any work, and as many at each look.

RUNNING is what the process at work says was begun (`Standing`), and is not kept yet: where it is
done, its row is written with the next segment of its shard.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from partwise.errors import PartwiseError, RunFormatError
from partwise.outcomes import PartitionStatus
from partwise.runs.contents import write_segment
from partwise.runs.documents import RunDocument, keys_claim, keys_file, run_path
from partwise.runs.ledger import (
    ARTIFACT,
    COLUMNS,
    KEY_PREFIX,
    RUNNING_SINCE,
    in_order_of_keys,
    read_table,
)
from partwise.runs.own_checksums import check_own_signature
from partwise.runs.trials import TRIAL, TRIAL_KEY
from partwise.store.lease import read_word
from partwise.store.signing import is_configured
from partwise.store.store import Store
from partwise.tables.keys.one_table import one_table
from partwise.tables.keys.partition_keys import hash_keys, normalize_keys, partition_ids

ROWS = "rows"


class Standing(BaseModel):
    """Where a generation stands, as the process at work says every few seconds."""

    model_config = ConfigDict(frozen=True)

    generation: int
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    """When it said so, by its own clock."""
    counts: dict[str, int] = {}
    """Partitions that have ended, by status; what is not written to the store yet counts, too."""
    kept: int = 0
    """Of these, the ones that a resume found done."""
    running: int = 0
    """Partitions that run just now."""
    begun: dict[int, tuple[int, int, AwareDatetime]] = {}
    """Of each shard at work: how many of its partitions were begun, in the order of their keys;
    which of them runs (-1: none of them, or all), and since when."""


def write_keys(store: Store, path: str, keys: pa.Table, rows: np.ndarray | None) -> None:
    """Write down what a generation is to work on: normalized keys, and how many rows each has."""
    table = keys.rename_columns([f"{KEY_PREFIX}{name}" for name in keys.column_names])
    counts = pa.nulls(len(keys), pa.int64()) if rows is None else pa.array(rows, pa.int64())
    table = table.append_column(ROWS, counts)
    store.create(path, write_segment(store, table, path, is_signed=is_configured(store)))


def read_keys(
    store: Store, document: RunDocument, generation: int
) -> tuple[pa.Table, pa.ChunkedArray] | None:
    """Return what `write_keys` wrote; None: nothing, as releases before it.

    Raises:
        NewerFormatError: A newer release wrote it.
        RunFormatError: It is damaged, or holds what partwise never writes.
        SignatureError: No key of ours signed it, and this process was given some.
    """
    names = store.list_folder(run_path(document.run_id, "generations"))
    claim = max((keys_claim(name, generation) for name in names), default=0)
    path = run_path(document.run_id, keys_file(generation, claim))
    where = f"{store.url}/{path}"
    try:
        content = store.read(path)
    except FileNotFoundError:
        return None
    if is_configured(store):
        check_own_signature(content, path, where, store)
    table = read_table(content, where, as_ledger=True)
    names = [f"{KEY_PREFIX}{column.name}" for column in document.keys]
    try:
        table.validate(full=True)
        if table.column_names != [*names, ROWS] or table[ROWS].type != pa.int64():
            raise RunFormatError(f"it has the columns {table.column_names}"[:200])
        keys = table.drop_columns(ROWS).rename_columns(document.partition_by)
        return normalize_keys(keys, document.keys), table[ROWS]
    except (pa.ArrowException, PartwiseError) as error:
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise RunFormatError(f"{where} does not hold the keys of this run: {reason}.") from error


def read_standing(store: Store, run_id: str, generation: int) -> Standing | None:
    """Return what the process that works on a generation said last.

    None: it has not said anything yet, or there is none, as far as this machine can know.
    """
    word = read_word(store, run_path(run_id))
    try:
        standing = None if word is None else Standing.model_validate(word)
    except ValidationError:
        return None
    return standing if standing is not None and standing.generation == generation else None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is to be said of a generation at work besides its rows.

    It is read before the rows are: so what is not said to run any more has its row.
    """

    document: RunDocument
    generation: int
    keys: pa.Table
    """Normalized."""
    rows: pa.ChunkedArray
    """How many each has."""
    standing: Standing | None

    def add_to(self, ledger: pa.Table | None) -> pa.Table:
        """Return the rows of a ledger, and one of each partition that has none yet, by key."""
        keys = self.keys
        names = [f"{KEY_PREFIX}{name}" for name in keys.column_names]
        hashes = hash_keys(keys)
        shards = (hashes % np.uint64(self.document.n_shards)).astype(np.int32)
        if (self.document.kind, self.document.keys) == ("tune", TRIAL_KEY):
            # Each trial is a shard by itself.
            shards = keys[TRIAL].to_numpy().astype(np.int32)
        status = np.full(len(hashes), PartitionStatus.PENDING.value, object)
        since = np.full(len(hashes), None, object)
        begun = {} if self.standing is None else self.standing.begun
        for shard, (count, place, began) in begun.items():
            places = np.flatnonzero(shards == shard)
            places = places[in_order_of_keys(keys.take(pa.array(places))).to_numpy()]
            status[places[:count]] = PartitionStatus.RUNNING.value
            since[places[place : place + 1]] = began
        missing = np.arange(len(hashes))
        if ledger is not None:
            missing = np.flatnonzero(~np.isin(hashes, hash_keys(ledger.select(names))))
        chosen = pa.array(missing)
        keys = keys.take(chosen)
        rows = _blank_rows(
            keys,
            partition_id=pa.array(partition_ids(keys, self.document.keys), pa.string()),
            shard=pa.array(shards[missing]),
            generation=pa.array(np.full(len(missing), self.generation, np.int32)),
            status=pa.array(status[missing], pa.string()),
            attempts=pa.array(np.zeros(len(missing), np.int32)),
            rows=self.rows.take(chosen),
        )
        running_since = pa.array(since[missing], pa.timestamp("us", tz="UTC"))
        rows = rows.append_column(RUNNING_SINCE, running_since)
        tables = [rows] if ledger is None else [ledger, rows]
        table = one_table(tables)
        return table.take(in_order_of_keys(table.select(names)))


def _blank_rows(keys: pa.Table, **columns: pa.Array) -> pa.Table:
    """Return ledger rows of normalized keys with these columns, and nothing in all others."""
    none = pa.array(np.zeros(keys.num_rows + 1, np.int32))
    empty = {
        "metrics": pa.MapArray.from_arrays(
            none, pa.array([], pa.string()), pa.array([], pa.float64())
        ),
        "artifacts": pa.ListArray.from_arrays(none, pa.array([], ARTIFACT)),
    }
    found = {f"{KEY_PREFIX}{name}": keys[name] for name in keys.column_names}
    for column in COLUMNS:
        known = columns.get(column.name, empty.get(column.name))
        found[column.name] = pa.nulls(keys.num_rows, column.type) if known is None else known
    return pa.table(found)
