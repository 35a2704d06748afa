"""Every row lands in exactly one partition, in the order of the source."""

import datetime as dt
import math
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError, InputError, NullKeyError, SourceError
from partwise.runs.ledger import in_order_of_keys
from partwise.shuffle import sort as sorting
from partwise.shuffle import sorted_shards as sorted_module
from partwise.shuffle.plan import ShardedRows, shard_rows
from partwise.shuffle.shard_count import default_n_shards
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns, key_values, partition_id


def in_batches(table: pa.Table, rows: int) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=rows), table.schema)


def shard_table(table: pa.Table, by: list[str], n_shards: int, directory: Path, **policy):
    """Shard and sort a table; the shards and a list of (key, partition ID, rows, fingerprint)."""
    source = open_source(table)
    columns = key_columns(source.schema, by)
    sharded = shard_rows(source, columns, n_shards, directory / "sharded", **policy)
    return sharded, read_back(sharded, directory / "sorted")


def read_back(sharded: ShardedRows, directory: Path):
    partitions = []
    for shard in sharded.shards:
        done = sort_shard(shard, sharded.key_columns, directory)
        assert done.number == shard.number
        assert done.offsets.dtype == np.int64
        assert done.offsets[0] == 0
        assert done.offsets[-1] == shard.rows
        keys = sharded.keys_of(shard.number)
        keys = keys.take(in_order_of_keys(keys))
        assert str(keys.to_pydict()) == str(done.keys.to_pydict())
        reader = ShardReader(done.path)
        bounds = zip(done.offsets[:-1].tolist(), done.offsets[1:].tolist(), strict=True)
        for key, name, (start, stop) in zip(
            key_values(done.keys), done.partition_ids, bounds, strict=True
        ):
            rows = reader.partition(start, stop)
            partitions.append((key, name, rows, reader.fingerprint(start, stop)))
    return partitions


KEYS = {
    "integer": (pa.int64(), st.integers(-3, 3)),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "text": (pa.string(), st.sampled_from(["", "..", "a/b", "é", "e\u0301", "x" * 300, "\0", "a"])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 3))),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"a"])),
    "category": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "c"])),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    names = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(1, 60))
    columns = {}
    for name in names:
        data_type, values = KEYS[name]
        drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, data_type, from_pandas=False)
    columns["row"] = pa.array(range(rows))
    columns["text_value"] = pa.array([None if i % 5 == 0 else f"value {i}" for i in range(rows)])
    columns["list_value"] = pa.array([list(range(i % 3)) for i in range(rows)])
    table = pa.table(columns)
    return in_batches(table, draw(st.integers(1, rows))), names


def plain(key) -> tuple:
    """A key as a tuple in which NaN equals NaN, and -0.0 equals 0.0."""
    values = key if isinstance(key, tuple) else (key,)
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in values)


@settings(max_examples=60)
@given(tables(), st.integers(1, 5), st.sampled_from([1, 7, sorting.PIECE_BYTES]))
def test_partitions_are_the_input(tmp_path_factory, drawn, n_shards, piece_bytes):
    table, names = drawn
    with pytest.MonkeyPatch.context() as patch:
        # Tiny limits take the paths of huge shards.
        patch.setattr(sorting, "PIECE_BYTES", piece_bytes)
        patch.setattr(sorted_module, "_BATCH_ROWS", 4)
        sharded, partitions = shard_table(
            table, names, n_shards, tmp_path_factory.mktemp("shards"), null_keys="keep"
        )
    expected: dict[tuple, list[int]] = {}
    keys = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    for row, key in enumerate(keys):
        expected.setdefault(plain(tuple(key)), []).append(row)

    assert {plain(key): rows["row"].to_pylist() for key, _, rows, _ in partitions} == expected
    assert sharded.rows == table.num_rows
    assert sharded.partitions == len(partitions) == len({name for _, name, _, _ in partitions})
    for key, name, rows, _ in partitions:
        assert name == partition_id(key, sharded.key_columns)
        assert rows.schema == sharded.schema
        taken = table.combine_chunks().take(rows["row"])
        for column in table.column_names:
            assert str(rows[column].to_pylist()) == str(taken[column].to_pylist())


@settings(max_examples=20)
@given(tables(), st.integers(1, 4), st.integers(1, 4))
def test_a_fingerprint_is_that_of_the_rows_alone(tmp_path_factory, drawn, n_shards, other_n):
    table, names = drawn
    folder = tmp_path_factory.mktemp("shards")
    _, first = shard_table(table, names, n_shards, folder / "a", null_keys="keep")
    again = in_batches(table.combine_chunks(), 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_module, "_BATCH_ROWS", 3)
        patch.setattr(sorting, "PIECE_BYTES", 1)
        _, second = shard_table(again, names, other_n, folder / "b", null_keys="keep")
    assert {i: f for _, i, _, f in first} == {i: f for _, i, _, f in second}


def fingerprints(table: pa.Table, folder: Path) -> dict[str, str]:
    _, partitions = shard_table(table, ["k"], 2, folder)
    return {name: fingerprint for _, name, _, fingerprint in partitions}


def test_a_fingerprint_sees_values_names_types_and_order(tmp_path):
    table = pa.table({"k": [1, 1, 2], "x": [1.0, 2.0, 3.0]})
    base = fingerprints(table, tmp_path / "0")
    others = [
        pa.table({"k": [1, 1, 2], "x": [1.0, 2.5, 3.0]}),
        pa.table({"k": [1, 1, 2], "x": [2.0, 1.0, 3.0]}),
        pa.table({"k": [1, 1, 2], "y": [1.0, 2.0, 3.0]}),
        pa.table({"k": [1, 1, 2], "x": pa.array([1, 2, 3], pa.float32())}),
        pa.table({"k": [1, 1, 2], "x": [1.0, None, 3.0]}),
        pa.table({"k": [1, 1, 1, 2], "x": [1.0, 2.0, 2.0, 3.0]}),
    ]
    one, two = partition_id(1, key_columns(table.schema, ["k"])), sorted(base)[-1]
    for index, other in enumerate(others, 1):
        found = fingerprints(other, tmp_path / str(index))
        assert found[one] != base[one]
    assert fingerprints(others[0], tmp_path / "again")[two] == base[two]
    with_metadata = table.replace_schema_metadata({"made": "today"})
    assert fingerprints(with_metadata, tmp_path / "metadata") == base


def test_a_fingerprint_does_not_depend_on_categories_or_what_is_under_nulls(tmp_path):
    text = pa.array(["b", "a", None, "b"])
    key = pa.array([1, 1, 1, 2])
    few = pa.table({"k": key, "c": text.dictionary_encode()})
    codes = pa.array([3, 1, None, 3], pa.int32())
    many = pa.DictionaryArray.from_arrays(codes, pa.array(["z", "a", "y", "b"]))
    assert fingerprints(few, tmp_path / "a") == fingerprints(
        pa.table({"k": key, "c": many}), tmp_path / "b"
    )
    clean = pa.array([1, None, 3, 4], pa.int64())
    buffer = pa.py_buffer(np.array([1, 999, 3, 4], np.int64))
    dirty = pa.Array.from_buffers(pa.int64(), 4, [clean.buffers()[0], buffer])
    assert dirty.equals(clean)
    assert fingerprints(pa.table({"k": key, "x": clean}), tmp_path / "c") == fingerprints(
        pa.table({"k": key, "x": dirty}), tmp_path / "d"
    )


def test_a_partition_of_many_batches_reads_and_fingerprints_as_one(tmp_path, monkeypatch):
    table = pa.table({"k": [0, *[1] * 500, 2], "x": range(502)})
    _, whole = shard_table(table, ["k"], 1, tmp_path / "a")
    monkeypatch.setattr(sorted_module, "_BATCH_ROWS", 10)
    monkeypatch.setattr(sorted_module, "_LONG_BATCH_ROWS", 64)
    sharded, cut = shard_table(table, ["k"], 1, tmp_path / "b")
    assert [f for *_, f in whole] == [f for *_, f in cut]
    assert cut[1][2]["x"].to_pylist() == list(range(1, 501))
    assert [batch.num_rows for batch in cut[1][2].to_batches()] == [64] * 7 + [52]
    assert sharded.rows == 502


@settings(max_examples=25, deadline=None)
@given(
    files=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=14),
    batch_rows=st.integers(1, 12),
)
def test_files_of_one_key_each_give_what_their_rows_together_do(
    tmp_path_factory, files, batch_rows
):
    """Also where several small partitions share a batch, and a big one has many."""
    folder = tmp_path_factory.mktemp("keyed")
    keys = np.repeat(*np.array(files).T)
    table = pa.table({"x": range(len(keys)), "key": keys})
    start = 0
    for number, (key, rows) in enumerate(files):
        place = folder / "hive" / f"key={key}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(start, rows).select(["x"]), place / f"{number:02}.parquet")
        start += rows
    source = open_source(folder / "hive")
    columns = key_columns(source.schema, ["key"])
    sharded = shard_rows(source, columns, 2, folder / "sharded")
    assert sum(len(shard.keyed) for shard in sharded.shards) == len(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_module, "_BATCH_ROWS", batch_rows)
        found = {key: rest for key, *rest in read_back(sharded, folder / "sorted")}
    _, expected = shard_table(table, ["key"], 2, folder / "of one table")
    assert len(found) == len(expected)
    for key, name, rows, fingerprint in expected:
        own = found[key]
        assert (own[0], own[1].to_pylist(), own[2]) == (name, rows.to_pylist(), fingerprint)
        assert own[1].num_rows > batch_rows or own[1]["x"].num_chunks == 1, "cut in two"


def test_partitions_are_views_of_the_mapped_file(tmp_path):
    table = pa.table({"k": np.repeat(np.arange(100), 1000), "x": np.random.rand(100_000)})
    before = pa.total_allocated_bytes()
    _, partitions = shard_table(table, ["k"], 1, tmp_path)
    assert len(partitions) == 100
    assert pa.total_allocated_bytes() - before < 100_000


def test_batches_of_a_source_may_carry_different_dictionaries(tmp_path):
    parts = [["a", "b", "a"], ["c", "a", None], ["b", "c", "d"]]
    chunks = [pa.array(part).dictionary_encode() for part in parts]
    table = pa.table({"k": pa.chunked_array(chunks), "c": pa.chunked_array(chunks[::-1])})
    sharded, partitions = shard_table(table, ["k"], 2, tmp_path, null_keys="keep")
    found = {key: rows["c"].to_pylist() for key, _, rows, _ in partitions}
    assert found == {
        "a": ["b", "d", "a"], "b": ["c", "a"], "c": ["c", "b"], None: [None], "d": ["a"],
    }  # fmt: skip
    assert sharded.schema.field("c").type == pa.dictionary(pa.int32(), pa.string())
    assert {key: rows["c"].chunk(0).dictionary.to_pylist() for key, _, rows, _ in partitions} == {
        "a": ["a", "b", "d"], "b": ["a", "c"], "c": ["b", "c"], None: [], "d": ["a"],
    }  # fmt: skip


def test_unused_categories_make_no_partition_and_order_is_kept(tmp_path):
    codes = pa.array([2, 0, None], pa.int8())
    sizes = pa.DictionaryArray.from_arrays(codes, ["small", "medium", "large"], ordered=True)
    sharded, partitions = shard_table(pa.table({"k": sizes}), ["k"], 3, tmp_path, null_keys="keep")
    assert {key for key, *_ in partitions} == {"large", "small", None}
    assert sharded.schema.field("k").type.ordered
    assert all(rows.schema.field("k").type.ordered for _, _, rows, _ in partitions)


def test_views_and_encodings_become_plain_columns(tmp_path):
    table = pa.table(
        {
            "k": pa.array(["a", "b", "a"], pa.string_view()),
            "bytes": pa.array([b"1", None, b"3"], pa.binary_view()),
            "runs": pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"]),
            "deep": pa.array([["p"], None, ["q", None]], pa.list_(pa.string())).cast(
                pa.list_(pa.string_view())
            ),
        }
    )
    sharded, partitions = shard_table(table, ["k"], 1, tmp_path)
    assert sharded.schema.types == [pa.string(), pa.binary(), pa.string(), pa.list_(pa.string())]
    assert [rows.to_pylist() for _, _, rows, _ in partitions] == [
        [
            {"k": "a", "bytes": b"1", "runs": "x", "deep": ["p"]},
            {"k": "a", "bytes": b"3", "runs": "y", "deep": ["q", None]},
        ],
        [{"k": "b", "bytes": None, "runs": "x", "deep": None}],
    ]


def test_keys_are_sorted_within_a_shard_with_nulls_last(tmp_path):
    table = pa.table({"a": [2, None, 1, 1, None], "b": ["x", "x", None, "y", "x"]})
    _, partitions = shard_table(table, ["a", "b"], 1, tmp_path, null_keys="keep")
    assert [key for key, *_ in partitions] == [(1, "y"), (1, None), (2, "x"), (None, "x")]


def test_composite_keys_do_not_run_together(tmp_path):
    table = pa.table({"a": ["a_b", "a", "a_b"], "b": ["c", "b_c", "c"]})
    _, partitions = shard_table(table, ["a", "b"], 1, tmp_path)
    assert [(key, rows.num_rows) for key, _, rows, _ in partitions] == [
        (("a", "b_c"), 1),
        (("a_b", "c"), 2),
    ]
    assert len({name for _, name, *_ in partitions}) == 2


def test_wide_composite_keys_do_not_overflow(tmp_path):
    rows = 3000
    names = [f"k{i}" for i in range(7)]
    table = pa.table({name: range(rows) for name in names})
    sharded, partitions = shard_table(table, names, 1, tmp_path)
    assert sharded.partitions == rows
    assert [key[0] for key, *_ in partitions] == list(range(rows))


def test_null_keys_are_refused_with_column_and_row(tmp_path):
    table = in_batches(pa.table({"a": [1, 2, 3, 4], "b": ["x", "y", None, "z"]}), 1)
    with pytest.raises(NullKeyError, match=r"'b' is null in row 2 .*null_keys='drop'"):
        shard_table(table, ["a", "b"], 2, tmp_path)


def test_null_keys_can_be_dropped(tmp_path):
    table = pa.table({"a": [1, None, 3, None], "x": range(4)})
    sharded, partitions = shard_table(table, ["a"], 2, tmp_path, null_keys="drop")
    assert (sharded.rows, sharded.dropped_rows, sharded.partitions) == (2, 2, 2)
    assert sorted(rows["x"][0].as_py() for _, _, rows, _ in partitions) == [0, 2]


def test_no_rows_are_refused_with_the_reason(tmp_path):
    table = pa.table({"a": pa.array([None, None], pa.int64())})
    with pytest.raises(SourceError, match=r"All 2 rows have a null key.*null_keys='keep'"):
        shard_table(table, ["a"], 2, tmp_path / "a", null_keys="drop")
    path = tmp_path / "head.csv"
    path.write_text("a,b\n")
    source = open_source(path)
    with pytest.raises(SourceError, match="source has no rows"):
        shard_rows(source, key_columns(source.schema, ["a"]), 2, tmp_path / "b")


def test_empty_columns_are_reported(tmp_path):
    table = in_batches(
        pa.table(
            {
                "k": [1, 2, 3],
                "none": pa.array([None] * 3, pa.float64()),
                "null": pa.nulls(3),
                "last": [None, None, 1.0],
                "category": pa.array([None] * 3, pa.string()).dictionary_encode(),
            }
        ),
        1,
    )
    sharded, _ = shard_table(table, ["k"], 2, tmp_path)
    assert sharded.empty_columns == {"none", "null", "category"}


def test_part_files_stand_alone(tmp_path):
    """What is in the files is all that another machine needs."""
    table = pa.table({"k": [1, 2], "c": pa.array(["a", None]).dictionary_encode()})
    sharded, partitions = shard_table(table, ["k"], 1, tmp_path)
    (tmp_path / "sharded").rename(tmp_path / "elsewhere")
    shard = sharded.shards[0]
    moved = replace(
        shard,
        dictionaries=shard.dictionaries.replace("/sharded/", "/elsewhere/"),
        written=tuple(
            replace(rows, path=rows.path.replace("/sharded/", "/elsewhere/"))
            for rows in shard.written
        ),
    )
    done = sort_shard(moved, sharded.key_columns, tmp_path / "there")
    assert ShardReader(done.path).partition(0, 1).equals(partitions[0][2])
    names = sorted(path.name for path in (tmp_path / "there").iterdir())
    assert names == ["00000.arrow", "00000.arrow.categories"]


def test_pieces_leave_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "PIECE_BYTES", 100)
    table = pa.table({"k": [3, 1, 2] * 100, "x": range(300)})
    _, partitions = shard_table(table, ["k"], 1, tmp_path)
    assert [key for key, *_ in partitions] == [1, 2, 3]
    assert [path.name for path in (tmp_path / "sorted").iterdir()] == ["00000.arrow"]


def test_shard_numbers_are_those_of_the_hash(tmp_path):
    """Frozen: a training run and its inference must agree on these for years."""
    table = pa.table({"k": [f"store-{i}" for i in range(20)]})
    sharded, _ = shard_table(table, ["k"], 7, tmp_path)
    rows = {shard.number: shard.rows for shard in sharded.shards}
    assert rows == {0: 4, 1: 2, 2: 3, 3: 1, 4: 1, 5: 5, 6: 4}


@pytest.mark.parametrize("n_shards", [0, -1, 65_537])
def test_n_shards_out_of_range(tmp_path, n_shards):
    with pytest.raises(InputError, match=rf"n_shards is {n_shards}: .* 1 to 65536"):
        shard_table(pa.table({"k": [1]}), ["k"], n_shards, tmp_path)


def test_many_shards_need_few_open_files(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        sharded, _ = shard_table(pa.table({"k": range(2000)}), ["k"], 500, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sharded.rows == 2000


def test_invalid_text_in_a_key_is_refused(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([b"\xff"]).buffers()[1],
                                                 pa.py_buffer(b"\xff")])  # fmt: skip
    with pytest.raises(ColumnError, match=r"'k' holds text that is not valid UTF-8"):
        shard_table(pa.table({"k": bad}), ["k"], 1, tmp_path)


def test_unions_are_refused_before_anything_is_written(tmp_path):
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    )
    with pytest.raises(ColumnError, match=r"Column 'u' of type sparse_union.* leave it out"):
        shard_table(pa.table({"k": [1, 2], "u": union}), ["k"], 1, tmp_path)


def test_dictionaries_in_list_views_are_refused_before_anything_is_written(tmp_path):
    lists = pa.array([["a"], None], pa.list_view(pa.dictionary(pa.int8(), pa.string())))
    with pytest.raises(ColumnError, match=r"Column 'x' of type list_view.* leave it out"):
        shard_table(pa.table({"k": [1, 2], "x": lists}), ["k"], 1, tmp_path)


def test_default_n_shards_keeps_all_slots_busy_and_shards_small():
    assert default_n_shards(rows=0, size_bytes=0, slots=1) == 8
    assert default_n_shards(rows=1000, size_bytes=10_000, slots=2) == 16
    assert default_n_shards(rows=8_000, size_bytes=80_000, slots=2) == 20
    assert default_n_shards(rows=100_000, size_bytes=10**6, slots=2) == 24
    assert default_n_shards(rows=600_000, size_bytes=6 * 10**6, slots=2) == 30
    assert default_n_shards(rows=10_000_000, size_bytes=8 * 10**8, slots=2) == 64
    assert default_n_shards(rows=None, size_bytes=0, slots=1) == 8
    assert default_n_shards(rows=None, size_bytes=6 * 10**7, slots=1) == 30
    assert default_n_shards(rows=10**9, size_bytes=2 * 10**10, slots=8) == 298
    assert default_n_shards(rows=10**9, size_bytes=10**10, slots=100) == 1200
    assert default_n_shards(rows=10**11, size_bytes=10**15, slots=100_000) == 65_536
