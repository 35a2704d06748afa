"""Blocks of rows and samples: each row is in one block, and a sample is the same each time."""

import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.sources.derived import in_blocks, sampled
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source


def rows_of(source: Source) -> pa.Table:
    return pa.Table.from_batches(list(source.batches()), source.schema)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files with row groups of many sizes, 1,000 rows in all."""
    path = tmp_path_factory.mktemp("rows")
    start = 0
    files = [(250, 250), *[(3, 3)] * 12, (1, 1), (463, 170), (250, 20)]
    for number, (rows, group) in enumerate(files):
        row = np.arange(start, start + rows)
        table = pa.table({"row": row, "text": [f"t{i % 7}" for i in row], "x": row * 0.5})
        pq.write_table(table, path / f"{number:02d}.parquet", row_group_size=group)
        start += rows
    return path


@settings(max_examples=40)
@given(
    most=st.integers(1, 12) | st.integers(1, 400),
    size_bytes=st.sampled_from([1, 900, 5_000, 1 << 26]),
    low=st.none() | st.integers(0, 990),
)
def test_each_row_is_in_one_block_and_blocks_are_in_order(folder, most, size_bytes, low) -> None:
    source = open_source(folder, filter=None if low is None else [("row", ">=", low)])
    blocks = in_blocks(source, most, size_bytes)
    table = rows_of(blocks)
    assert table["row"].to_pylist() == list(range(low or 0, 1000))
    names = table["block"].to_pylist()
    assert names == sorted(names)
    assert max(Counter(names).values()) <= most
    # What is known of a fragment without reading it is what its rows say.
    for fragment in blocks.fragments(["block"]):
        same = pickle.loads(pickle.dumps(fragment))
        read = pa.Table.from_batches(list(same.batches()), blocks.schema)
        if "block" in fragment.known:
            assert set(read["block"].to_pylist()) == {fragment.known["block"].as_py()}
            assert fragment.rows == read.num_rows
    assert rows_of(in_blocks(source, most, size_bytes)).equals(table)


def test_narrowed_blocks_keep_their_names_and_a_column_of_that_name_stays() -> None:
    table = pa.table({"block": range(9), "y": range(9)})
    blocks = in_blocks(open_source(table), 4)
    assert rows_of(blocks)["block"].to_pylist() == list(range(9))
    narrow = blocks.narrowed(["y"])
    assert narrow.schema.names == ["y", "block_"]
    assert rows_of(narrow)["block_"].equals(rows_of(blocks)["block_"])
    about, other = blocks.description(), in_blocks(open_source(table), 5).description()
    assert about.fingerprint != other.fingerprint != open_source(table).description().fingerprint


@settings(max_examples=40)
@given(most=st.integers(1, 1300))
def test_a_sample_is_the_same_rows_each_time(folder, most) -> None:
    source = open_source(folder)
    table = rows_of(sampled(source, "rank", 0, most))
    assert table.equals(rows_of(sampled(source, "rank", 0, most)))
    assert set(table["rank"].to_pylist()) == {0}
    rows = table["row"].to_pylist()
    assert len(set(rows)) == len(rows) <= max(most, 32)
    assert table["x"].to_pylist() == [row * 0.5 for row in rows]


def test_a_sample_with_a_filter_looks_at_all_fragments(folder) -> None:
    source = open_source(folder, filter=[("row", "=", 991)])
    assert rows_of(sampled(source, "rank", 0))["row"].to_pylist() == [991]


def test_a_sample_of_one_large_fragment_is_spread_over_it(tmp_path) -> None:
    pq.write_table(pa.table({"row": np.arange(100_000)}), tmp_path / "rows.parquet")
    rows = rows_of(sampled(open_source(tmp_path), "rank", 0, 1000))["row"].to_numpy()
    assert len(rows) == 1000
    assert np.histogram(rows, 10, (0, 100_000))[0].min() > 50
