"""Which models partitions have, of several sets: held against a plain search for each of them."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.engine.trained_models import ShardModels, models_by_shard
from partwise.errors import IntegrityError
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.shuffle.plan import ShardedRows, UnsortedShard
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn, hash_keys, key_identities

REGION = KeyColumn(name="region", key_class=KeyClass.STRING)
SHOP = KeyColumn(name="shop", key_class=KeyClass.INTEGER)
KEYS = (REGION, SHOP)
PAIRS = list(itertools.product(["north", "south", None], [1, 2, 3, None]))
LEVELS = [(), (REGION,), (SHOP,), KEYS, (SHOP, REGION)]

Key = tuple[Any, ...]
Sets = list[tuple[tuple[KeyColumn, ...], list[Key]]]


def keys_of(columns: Sequence[KeyColumn], rows: Sequence[Key]) -> pa.Table:
    types = {"region": pa.string(), "shop": pa.int64()}
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(
        {
            column.name: pa.array(own, types[column.name])
            for column, own in zip(columns, values, strict=True)
        }
    )


def name_of(level: int, key: Key) -> str:
    return f"{level}-{key}"


def set_of(level: int, columns: tuple[KeyColumn, ...], keys: list[Key]) -> ModelSet:
    hashes = hash_keys(keys_of(columns, keys)).tolist() if columns else [None] * len(keys)
    artifact = {
        "filename": "m",
        "bundle": "bundles/b",
        "offset": 0,
        "size_bytes": 1,
        "stored_bytes": 1,
        "compression": "stored",
        "serde": "plain",
    }
    rows = [
        {
            "hash": value,
            "run_id": f"run-{level}",
            "owner": name_of(level, key),
            "model": artifact | {"sha256": name_of(level, key), "offset": place},
        }
        for place, (value, key) in enumerate(zip(hashes, keys, strict=True))
    ]
    table = pa.Table.from_pylist(rows, MODELS)
    return ModelSet(name=f"run://run-{level}", key_columns=columns, models=table)


def sharded_of(keys: list[Key], n_shards: int) -> ShardedRows:
    return sharded_of_table(keys_of(KEYS, keys), n_shards)


def sharded_of_table(table: pa.Table, n_shards: int) -> ShardedRows:
    hashes = hash_keys(table)
    order = np.argsort(hashes)
    numbers = sorted({int(value) for value in hashes % np.uint64(n_shards)})
    return ShardedRows(
        key_columns=KEYS,
        n_shards=n_shards,
        shards=tuple(shard_of(number) for number in numbers),
        rows=table.num_rows,
        key_hashes=hashes[order],
        key_rows=np.ones(table.num_rows, np.int64),
        keys=table.take(pa.array(order)),
        dropped_rows=0,
        schema=table.schema,
        empty_columns=frozenset(),
    )


def shard_of(number: int) -> UnsortedShard:
    return UnsortedShard(
        number=number,
        rows=1,
        size_bytes=1,
        written=(),
        keyed=(),
        selection=None,
        dictionaries="",
    )


@st.composite
def model_sets(draw) -> Sets:
    found: Sets = []
    for columns in draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4)):
        names = [KEYS.index(column) for column in columns]
        every = sorted({tuple(pair[i] for i in names) for pair in PAIRS}, key=repr)
        most = 1 if not columns else None
        found.append((columns, draw(st.lists(st.sampled_from(every), unique=True, max_size=most))))
    return found


@given(
    model_sets(),
    st.lists(st.sampled_from(PAIRS), unique=True, min_size=1),
    st.integers(1, 5),
)
def test_a_partition_has_the_model_of_its_key_at_each_level(sets, keys, n_shards) -> None:
    sharded = sharded_of(keys, n_shards)
    given_sets = [set_of(level, *each) for level, each in enumerate(sets)]
    tables = models_by_shard(given_sets, sharded)
    for shard in sharded.shards:
        own = sharded.keys_of(shard.number)
        if shard.number not in tables:
            assert not any(wanted(sets, key) for key in pairs_of(own))
            continue
        models = ShardModels(tables[shard.number], own)
        places = range(own.num_rows)
        located = models.locate(places, Store.parse("file:///nowhere"), "/nowhere")
        for place, key in enumerate(pairs_of(own)):
            names = [name_of(*each) for each in wanted(sets, key)]
            found = located.get(place, [])
            assert [model.owner for model in found] == names
            assert [model.artifact.sha256 for model in found] == names
            assert models.checksum(place, of_all=False) == (names[0] if names else None)
            for level, at_level in wanted(sets, key):
                assert models.owner(place, f"run-{level}") == (name_of(level, at_level), None)
            assert models.owner(place, "another") is None


@pytest.mark.parametrize(("then", "now"), [(pa.int64(), pa.uint64()), (pa.uint64(), pa.int64())])
def test_a_key_has_no_model_of_another_one_of_the_same_bits(then, now) -> None:
    values = {pa.int64(): [1, -1], pa.uint64(): [1, 2**64 - 1]}
    nowhere = pa.nulls(2, pa.string())
    theirs = pa.table({"region": nowhere, "shop": pa.array(values[then], then)})
    rows = [{"run_id": "run", "owner": str(key)} for key in values[then]]
    models = pa.Table.from_pylist(rows, MODELS)
    keys = pa.table({"region": nowhere, "shop": pa.array(values[now], now)})
    sharded = sharded_of_table(keys, 1)
    for columns in (KEYS, (SHOP,)):
        names = [column.name for column in columns]
        hashes = pa.array(key_identities(theirs.select(names)))
        of_level = models.set_column(0, "hash", hashes)
        one = ModelSet(name="run://run", key_columns=columns, models=of_level)
        (found,) = models_by_shard([one], sharded).values()
        assert found["owner"].to_pylist() == ["1"]


def test_the_checksum_of_all_models_tells_their_levels_apart() -> None:
    sharded = sharded_of([("north", 1)], 1)
    both = [set_of(0, KEYS, [("north", 1)]), set_of(1, (REGION,), [("north",)])]
    swapped = [both[1], both[0]]
    sums = []
    for sets in (both, swapped, both[:1]):
        (table,) = models_by_shard(sets, sharded).values()
        sums.append(ShardModels(table, sharded.keys).checksum(0, of_all=True))
    assert len(set(sums)) == 3


def test_of_a_bundle_that_ends_early_only_the_models_behind_its_end_are_damaged(
    tmp_path, monkeypatch
) -> None:
    store = Store.parse(tmp_path)
    # As in a bucket, from which models are read before a child is given them.
    monkeypatch.setattr(Store, "local_path", lambda self, path: None)
    keys = [("north", 1), ("north", 2), ("north", 3)]
    (table,) = models_by_shard([set_of(0, KEYS, keys)], sharded_of(keys, 1)).values()
    whole = [b"a", b"b", b"c"]
    rows = table.sort_by("hash").to_pylist()
    for row in rows:
        content = whole[row["model"]["offset"]]
        row["model"] |= {"sha256": hashlib.sha256(content).hexdigest()}
    sharded = sharded_of(keys, 1)
    models = ShardModels(pa.Table.from_pylist(rows, table.schema), sharded.keys)
    for there in (b"abc", b"ab", b""):
        store.write("runs/run-0/bundles/b", there)
        found = models.locate(range(3), store, str(tmp_path))
        for place, key in enumerate(pairs_of(sharded.keys)):
            (model,) = found[place]
            at = keys.index(key)
            if at < len(there):
                assert model.file.content() == whole[at]
            else:
                with pytest.raises(IntegrityError):
                    model.file.content()


def pairs_of(keys: pa.Table) -> Iterator[Key]:
    return zip(*(column.to_pylist() for column in keys.columns), strict=True)


def wanted(sets: Sets, key: Key) -> list[tuple[int, Key]]:
    """Return the level and key of each model that a partition has, by a plain search."""
    found = []
    for level, (columns, keys) in enumerate(sets):
        at_level = tuple(key[KEYS.index(column)] for column in columns)
        if at_level in keys:
            found.append((level, at_level))
    return found
