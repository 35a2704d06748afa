"""The order of ordered categories that several files declare, each for itself."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partwise.connector.categories import with_categories_once
from partwise.connector.data_connector import DataConnector
from partwise.connector.spooling import read_spooled, write_spooled
from partwise.tables.categories import with_own_categories
from partwise.tables.dictionaries import ColumnStorage, decode_batch, merge_dictionaries, recode

KIND = pa.dictionary(pa.int8(), pa.string(), ordered=True)
SCHEMA = pa.schema([pa.field("c", KIND, metadata={"unit": "t"}), ("row", pa.int64())])
LETTERS = [*"hgfedcba"]


@st.composite
def orders(draw) -> list[list[str]]:
    """What some files declare: parts of one order, and perhaps one of another."""
    order = draw(st.permutations(LETTERS))[: draw(st.integers(1, 8))]
    masks = st.lists(st.booleans(), min_size=len(order), max_size=len(order))
    found = [list(itertools.compress(order, draw(masks))) for _ in range(draw(st.integers(1, 5)))]
    if draw(st.booleans()):
        found.append(draw(st.permutations(order)))
    return draw(st.permutations(found))


def expected_order(declared: list[list[str]]) -> list[str] | None:
    """Look at all orders of the values: the only one in which each file's is; None: there are more.

    It is quick, since each value has to be followed by one that a file has behind it.
    """
    values = set().union(*declared)
    before = {pair for one in declared for pair in itertools.combinations(one, 2)}
    for _ in values:
        before |= {(a, d) for a, b in before for c, d in before if b == c}
    ranks = {value: sum((other, value) in before for other in values) for value in values}
    if any((value, value) in before for value in values) or len(set(ranks.values())) < len(values):
        return None
    return sorted(values, key=ranks.__getitem__)


def coded(order: list[str]) -> pa.DictionaryArray:
    codes = pa.array(range(len(order))[::-1], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, pa.array(order, pa.string()), ordered=True)


def batches_of(declared: list[list[str]]) -> list[pa.RecordBatch]:
    rows = itertools.count()
    columns = [(coded(one), pa.array([next(rows) for _ in one], pa.int64())) for one in declared]
    return [pa.RecordBatch.from_arrays(list(each), schema=SCHEMA) for each in columns]


def check(column: pa.ChunkedArray, declared: list[list[str]]) -> None:
    """See that a column has the order of all files, and the values of all rows."""
    order = expected_order(declared)
    assert column.type.ordered == (order is not None)
    assert column.to_pylist() == [value for one in declared for value in one[::-1]]
    for chunk in column.chunks if order is not None else ():
        assert chunk.dictionary.to_pylist() == order


EXAMPLES = (
    [["low", "high"], ["low", "mid", "high"]],
    [["mid", "high"], ["low", "mid"]],
    [["low", "high"], ["low", "mid"]],
    [["low", "high"], ["high", "low"]],
    [["low", "high"], ["other"]],
)


def each_example(test):
    for one in EXAMPLES:
        test = example(one)(test)
    return test


@given(orders(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_shards_have_the_order_of_all_files_however_these_are_divided(declared, n_parts, random):
    batches = batches_of(declared)
    storages = [ColumnStorage(SCHEMA) for _ in range(n_parts)]
    of_batch = [random.choice(storages) for _ in batches]
    stored = [storage.store(batch) for storage, batch in zip(of_batch, batches, strict=True)]
    parts = [storage.dictionaries() for storage in storages]
    merged = merge_dictionaries(SCHEMA, parts)
    assert merged.schema.field("c").metadata == {b"unit": b"t"}
    shown = [
        decode_batch(recode(batch, parts[storages.index(storage)], merged), merged)
        for storage, batch in zip(of_batch, stored, strict=True)
    ]
    check(pa.Table.from_batches(shown, merged.schema).column("c"), declared)


@given(orders())
@each_example
def test_spooled_rows_and_tables_have_it_too(tmp_path_factory, declared):
    path = tmp_path_factory.mktemp("rows") / "x"
    write_spooled(str(path), batches_of(declared), SCHEMA)
    with pa.OSFile(str(path)) as file:
        spooled = read_spooled(file)
    table = pa.Table.from_batches(batches_of(declared), SCHEMA)
    for found in (spooled, with_categories_once(table), with_own_categories(table)):
        # Of a table without an order, `with_own_categories` sorts the values.
        check(found.column("c"), declared)


def test_pandas_gets_the_order_too():
    table = pa.Table.from_batches(batches_of([["low", "high"], ["low", "mid", "high"]]), SCHEMA)
    column = DataConnector(table).to_pandas()["c"]
    assert column.cat.ordered
    assert [*column.cat.categories] == ["low", "mid", "high"]
    assert [*column] == ["high", "low", "high", "mid", "low"]


def test_a_null_or_a_repeated_value_in_a_dictionary_changes_no_order():
    values = pa.array(["low", None, "high", "low"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 1, 3, 0], pa.int8()), values, ordered=True)
    found = with_categories_once(pa.table({"c": column})).column("c")
    assert found.type.ordered
    assert found.chunk(0).dictionary.to_pylist() == ["low", "high"]
    assert found.to_pylist() == ["high", None, "low", "low"]


def test_a_long_order_is_found_quickly():
    names = [f"{number:06}" for number in range(30_000)]
    column = pa.chunked_array([coded_long(names[::2]), coded_long(names), coded_long(names[1::2])])
    found = with_own_categories(pa.table({"c": column})).column("c")
    assert found.type.ordered
    assert found.chunk(0).dictionary.to_pylist() == names


def coded_long(names: list[str]) -> pa.DictionaryArray:
    codes = pa.array(range(len(names)), pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(names), ordered=True)


@pytest.mark.parametrize("ordered", [False, True])
def test_codes_are_as_wide_as_the_values_of_all_chunks_together_need(ordered) -> None:
    """Arrow joins dictionaries only where the codes of all fit into the type that they have."""
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()),
            [f"{i:03}" for i in range(start, start + 100)],
            ordered=ordered,
        )
        for start in (0, 50, 100)
    ]
    table = with_categories_once(pa.table({"c": pa.chunked_array(chunks)}))
    assert table["c"].to_pylist() == [value for chunk in chunks for value in chunk.to_pylist()]
    assert table["c"].chunk(0).dictionary.to_pylist() == [f"{i:03}" for i in range(200)]
    nothing = pa.table({"c": pa.nulls(3, pa.dictionary(pa.int8(), pa.null()))})
    assert with_categories_once(nothing)["c"].null_count == 3
