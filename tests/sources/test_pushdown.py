"""What a filter excludes by footers and paths is not read, and what it lets pass is never lost."""

import datetime as dt
import math
import tempfile
from decimal import Decimal
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given

from partwise.sources.files.file_set import Files
from partwise.sources.files.rows import FileRows
from partwise.sources.opening import open_source


def groups(source) -> list[list[int]]:
    return [list(fragment.pieces) for fragment in source.fragments()]


def read(source) -> list[dict]:
    return [
        row
        for fragment in source.fragments()
        for batch in source.selection.batches(fragment)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ([("day", ">=", "2026-01-08")], [[7, 8, 9]]),
        ([("day", "=", "2026-01-03")], [[2]]),
        ([("day", "in", ["2026-01-01", "2026-01-10"])], [[0], [9]]),
        ([[("day", "<", "2026-01-02")], [("number", ">", 95)]], [[0], [9]]),
        ([("day", ">", "2027-01-01")], []),
        ([("text", "=", "never")], []),
    ],
)
def test_row_groups_that_hold_nothing_are_not_read(tmp_path, filter_, expected):
    days = [dt.date(2026, 1, 1 + i // 10) for i in range(100)]
    table = pa.table({"day": days, "number": range(100), "text": ["a", "b"] * 50})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    source = open_source(tmp_path, filter=filter_, columns=["number"])
    assert groups(source) == expected
    assert source.fragments() == [] or read(source)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float16(), pa.decimal128(21, 20)])
@pytest.mark.parametrize("operator", ["<", "<=", "=", "!=", ">=", ">", "in", "not in"])
def test_a_filter_compares_what_a_file_has_in_the_type_of_all_files(tmp_path, kind, operator):
    wide = pa.table({"x": [0.1, 0.3], "row": [2, 3]})
    exact = pa.array([Decimal("0.1"), Decimal("0.30000000000000000001")])
    values = exact if pa.types.is_decimal(kind) else pa.array([0.1, 0.3])
    narrow = pa.table({"x": values.cast(kind), "row": [0, 1]})
    pq.write_table(narrow, tmp_path / "1.parquet", row_group_size=1)
    pq.write_table(wide, tmp_path / "2.parquet")
    table = pa.Table.from_pylist(read(open_source(tmp_path)))
    assert table.schema.field("x").type == pa.float64()
    for value in (0.1, 0.3):
        filter_ = [("x", operator, [value] if "in" in operator else value)]
        wanted = read(open_source(table, filter=filter_))
        assert read(open_source(tmp_path, filter=filter_)) == wanted


def test_row_groups_of_whole_numbers_beside_doubles_are_left_out(tmp_path):
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "1.parquet", row_group_size=50)
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "2.parquet")
    assert groups(open_source(tmp_path, filter=[("x", ">", 70.5)])) == [[1]]


@pytest.mark.parametrize("names", [("a.b", "a"), ("a", "a.b")])
def test_a_leaf_of_a_struct_is_no_column_of_its_path(tmp_path, names):
    columns = {"a.b": ["x", "x"], "a": [{"b": "y"}, {"b": "z"}]}
    pq.write_table(pa.table({name: columns[name] for name in names}), tmp_path / "x.parquet")
    (fragment,) = FileRows(Files(tmp_path)).fragments(names, None, ["a.b"])
    assert fragment.known == {"a.b": pa.scalar("x")}


def test_files_whose_paths_exclude_them_are_not_opened(tmp_path):
    for year in (2024, 2025, 2026):
        for store in ("a", "b"):
            folder = tmp_path / f"year={year}" / f"store={store}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"x": [year]}), folder / "x.parquet")
    source = open_source(tmp_path, filter=[("year", ">", 2024), ("store", "=", "b")])
    # Files that are not read may be anything by now.
    for path in tmp_path.rglob("*.parquet"):
        if "year=2024" in str(path) or "store=a" in str(path):
            path.write_bytes(b"")
    assert [row["x"] for row in read(source)] == [2025, 2026]


KINDS = {
    pa.int64(): (st.integers(-3, 3), st.sampled_from([-9, -1, 0, 2, 9])),
    pa.float64(): (
        st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.nan, math.inf]),
        st.sampled_from([-1.5, 0.0, 2.0, 9.0]),
    ),
    pa.string(): (
        st.sampled_from(["", "a", "b", "é", "zz"]),
        st.sampled_from(["", "a", "m", "zz"]),
    ),
    pa.date32(): (
        st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 4)),
        st.sampled_from(["2026-01-01", "2026-01-03", "2030-01-01"]),
    ),
    pa.bool_(): (st.booleans(), st.booleans()),
}


@st.composite
def filtered_tables(draw):
    size = draw(st.integers(1, 25))
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    columns, conditions = {}, []
    for index, kind in enumerate(kinds):
        values, compared = KINDS[kind]
        cells = st.one_of(st.none(), values) if draw(st.booleans()) else values
        data = draw(st.lists(cells, min_size=size, max_size=size))
        if draw(st.booleans()):
            data = sorted(data, key=lambda value: (value is not None, str(value)))
        columns[f"c{index}"] = pa.array(data, kind, from_pandas=False)
        operators = ["=", "==", "!=", "<", "<=", ">", ">="] if kind != pa.bool_() else ["=", "!="]
        one = st.tuples(st.just(f"c{index}"), st.sampled_from(operators), compared)
        several = st.tuples(
            st.just(f"c{index}"),
            st.sampled_from(["in", "not in"]),
            st.lists(compared, min_size=1, max_size=3),
        )
        conditions.append(st.one_of(one, several))
    any_of = st.lists(st.one_of(conditions), min_size=1, max_size=2)
    filter_ = draw(st.lists(any_of, min_size=1, max_size=2))
    return pa.table(columns), filter_, draw(st.integers(1, 10))


@given(filtered_tables())
@example((pa.table({"c0": [0.0]}), [("c0", "in", [0.0])], 1))
@example((pa.table({"c0": [-0.0, 1.0]}), [("c0", "in", [0.0])], 1))
@example((pa.table({"c0": [-0.0, 1.0]}), [("c0", "not in", [0])], 1))
def test_a_pruned_and_filtered_file_is_the_filtered_table(case):
    table, filter_, group_size = case
    # nan is not equal to itself.
    expected = [str(row) for row in read(open_source(table, filter=filter_))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        pq.write_table(table, path, row_group_size=group_size)
        assert [str(row) for row in read(open_source(path, filter=filter_))] == expected
        dataset = pads.dataset(path)
        assert [str(row) for row in read(open_source(dataset, filter=filter_))] == expected
