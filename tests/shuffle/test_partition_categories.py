"""Codes of dictionary columns in sorted shards: a matter of the partition, not of others."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.shuffle import partition_categories, sort, sorted_shards
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.opening import open_source
from partwise.tables.categories import with_own_categories
from partwise.tables.keys.partition_keys import key_columns, key_values

SIZES = ["small", "medium", "large"]
SIZED = pa.schema(
    [("k", pa.int64()), ("size", pa.dictionary(pa.int8(), pa.string(), ordered=True))]
)
LETTERS = [*"zyxwvutsrqponmlkjihgfedcba"]


def partitions(data, directory, n_shards: int = 3) -> dict:
    """The rows, and both fingerprints, of each partition."""
    source = open_source(data)
    columns = key_columns(source.schema, ["k"])
    sharded = shard_rows(source, columns, n_shards, directory / "sharded")
    found = {}
    for shard in sharded.shards:
        done = sort_shard(shard, columns, directory / "sorted")
        reader = ShardReader(done.path)
        bounds = itertools.pairwise(done.offsets.tolist())
        for key, (start, stop) in zip(key_values(done.keys), bounds, strict=True):
            rows = reader.partition(start, stop)
            rows.validate(full=True)
            codes = reader.codes_fingerprint(start, None)
            found[key] = rows, reader.fingerprint(start, stop), codes
    return found


def letters(values: list, order: list[str]) -> pa.DictionaryArray:
    codes = pa.array([None if v is None else order.index(v) for v in values], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(order))


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5), st.none() | st.sampled_from(LETTERS), st.none() | st.sampled_from(SIZES)
    ),
    min_size=1,
    max_size=60,
)


def table_of(rows: list, order: list[str]) -> pa.Table:
    keys, first, second = zip(*rows, strict=True)
    sizes = [None if size is None else SIZES.index(size) for size in second]
    return pa.table(
        {
            "k": pa.array(keys),
            "c": letters(list(first), order),
            "n": range(len(rows)),
            "size": pa.DictionaryArray.from_arrays(
                pa.array(sizes, pa.int8()), pa.array(SIZES), ordered=True
            ),
        }
    )


@settings(max_examples=50)
@given(rows=ROWS, others=ROWS, order=st.permutations(LETTERS), shards=st.sampled_from([1, 4]))
def test_neighbours_make_no_difference(rows, others, order, shards, tmp_path_factory):
    """A partition is what a loop over groups has, whatever was added to others, and before them."""
    folder = tmp_path_factory.mktemp("shards")
    table = table_of(rows, LETTERS)
    alone = partitions(table, folder / "alone", shards)
    more = [(key + 10, first, second) for key, first, second in others]
    with_others = pa.concat_tables([table_of(more, order), table_of(rows, order)])
    together = partitions(with_others, folder / "together", 4)
    for key, (found, fingerprint, codes) in alone.items():
        group = with_own_categories(table.filter(pc.equal(table["k"], key)))
        assert found.combine_chunks().equals(group.combine_chunks().cast(found.schema))
        again, fingerprint_again, codes_again = together[key]
        assert again.drop_columns("n").combine_chunks() == found.drop_columns("n").combine_chunks()
        assert codes == codes_again
        assert codes is not None
        assert len(fingerprint) == len(fingerprint_again)


@pytest.mark.parametrize("narrow", [True, False])
def test_many_values_and_pieces(narrow, tmp_path, monkeypatch):
    """Also where marks for all pairs would be too many, and partitions span pieces and batches."""
    monkeypatch.setattr(sort, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(sorted_shards, "_BATCH_ROWS", 300)
    monkeypatch.setattr(sorted_shards, "_LONG_BATCH_ROWS", 500)
    monkeypatch.setattr(sorted_shards, "_HASH_ROWS", 250)
    random = np.random.default_rng(1)
    count, kinds = 6_000, 40 if narrow else 3_000
    keys = np.minimum(random.geometric(0.05, count), 60) * (random.random(count) < 0.6)
    values = pa.array([f"kind {kind}" for kind in random.integers(0, kinds, count)])
    values = pc.if_else(pa.array(random.random(count) < 0.1), None, values)
    table = pa.table({"k": keys, "c": values.dictionary_encode(), "x": random.normal(size=count)})
    monkeypatch.setattr(partition_categories, "MARKS_PER_ROW", 1 << 20 if narrow else 0)
    found = partitions(table, tmp_path, 2)
    assert len(found) == len(set(keys.tolist()))
    for key, (rows, *_) in found.items():
        group = with_own_categories(table.filter(pc.equal(table["k"], key)))
        assert rows.combine_chunks().equals(group.combine_chunks().cast(rows.schema))


def test_an_order_counts_and_an_encoding_does(tmp_path):
    """What the function sees is what is compared: codes, and in an order the meaning of each."""
    values = ["small", "large", "small"]
    found = {}
    for name, column in {
        "plain": pa.array(values),
        "coded": pa.array(values).dictionary_encode(),
        "coded otherwise": pa.array(values[::-1]).dictionary_encode().take(pa.array([2, 1, 0])),
        "ordered": table_of([(1, None, value) for value in values], LETTERS)["size"],
        "in another order": pa.DictionaryArray.from_arrays(
            pa.array([1, 0, 1]), pa.array(["large", "small"]), ordered=True
        ),
        "with more in between": pa.DictionaryArray.from_arrays(
            pa.array([0, 2, 0]), pa.array(["small", "tiny", "large"]), ordered=True
        ),
    }.items():
        _, rows, codes = partitions(pa.table({"k": [1, 1, 1], "c": column}), tmp_path / name)[1]
        found[name] = rows, codes
    assert len({rows for rows, _ in found.values()}) == 1, "the values are the same"
    assert found["plain"][1] is None
    assert found["coded"] == found["coded otherwise"]
    assert found["ordered"] == found["with more in between"]
    assert len({codes for _, codes in found.values()}) == 4


def test_only_columns_that_matter_are_compared(tmp_path):
    table = pa.table({"k": pa.array(["a"]).dictionary_encode(), "x": [1]})
    columns = key_columns(table.schema, ["k"])
    sharded = shard_rows(open_source(table), columns, 1, tmp_path / "sharded")
    reader = ShardReader(sort_shard(sharded.shards[0], columns, tmp_path / "sorted").path)
    assert reader.codes_fingerprint(0, None) is not None
    assert reader.codes_fingerprint(0, frozenset({"x"})) is None


STEPS = st.lists(
    st.tuples(
        ROWS,
        st.permutations(LETTERS),
        st.permutations(SIZES),
        st.sampled_from(["coded", "plain", "unordered"]),
        st.sampled_from([1, 3]),
    ),
    min_size=2,
    max_size=5,
)


def seen(rows: pa.Table) -> tuple:
    """All that a function can make a model of."""
    columns = [column.combine_chunks() for column in rows.columns]
    shown = [
        (column.dictionary.to_pylist(), column.indices.to_pylist())
        if pa.types.is_dictionary(column.type)
        else column.to_pylist()
        for column in columns
    ]
    return str(rows.schema), str(shown)


@settings(max_examples=50)
@given(steps=STEPS)
def test_what_is_kept_is_what_a_fresh_run_would_make(steps, tmp_path_factory):
    """Random histories of rows: equal fingerprints mean that a function sees the same."""
    folder = tmp_path_factory.mktemp("steps")
    kept: dict = {}
    for number, (rows, letters_order, sizes_order, kind, shards) in enumerate(steps):
        table = table_of(rows, letters_order).drop_columns("n")
        sizes = table["size"].cast(pa.string())
        codes = pc.index_in(sizes, value_set=pa.array(sizes_order)).combine_chunks()
        column = pa.DictionaryArray.from_arrays(codes, pa.array(sizes_order), ordered=True)
        column = {"coded": column, "plain": sizes, "unordered": sizes.dictionary_encode()}[kind]
        table = table.set_column(2, "size", column)
        for key, (found, *fingerprints) in partitions(table, folder / str(number), shards).items():
            known, made = kept.setdefault(key, (fingerprints, seen(found)))
            if known == fingerprints:
                assert made == seen(found)
            else:
                assert made != seen(found), "what runs again has a reason"
                kept[key] = fingerprints, seen(found)


@pytest.mark.parametrize(
    ("declared", "order"),
    [
        ([["small", "large"], SIZES], SIZES),
        ([["medium", "large"], ["small", "medium"]], SIZES),
        ([["small", "large"], ["small", "medium"]], None),
        ([SIZES, SIZES[::-1]], None),
    ],
)
def test_a_partition_has_the_order_that_all_files_declare_together(tmp_path, declared, order):
    """Values that only the second file has were put behind those of the first one."""
    for number, one in enumerate(declared):
        sizes = pa.DictionaryArray.from_arrays(
            pa.array(range(len(one)), pa.int8()), pa.array(one), ordered=True
        )
        table = pa.table([pa.array([7] * len(one)), sizes], schema=SIZED)
        pq.write_table(table, tmp_path / f"{number}.parquet")
    ((rows, *_),) = partitions(tmp_path, tmp_path / "shards").values()
    column = rows.column("size").combine_chunks()
    assert column.type.ordered == (order is not None)
    assert column.dictionary.to_pylist() == (order or sorted(SIZES))
    assert column.to_pylist() == [*declared[0], *declared[1]]
