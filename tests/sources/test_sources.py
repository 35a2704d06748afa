"""Every kind of data reads as the same stream of batches, and bad data is refused beforehand."""

import datetime as dt
import gzip
import hashlib
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from partwise.errors import ColumnError, InputError, NoRowsError, SourceError
from partwise.sources.files import csv_files, parquet_files
from partwise.sources.files.discovery import find_files
from partwise.sources.files.file_set import Files
from partwise.sources.files.rows import FileRows
from partwise.sources.opening import open_source
from tests.sources.reopening import reopened

TABLE = pa.table(
    {
        "store": ["a", "b", None, "a"],
        "sales": [1, 2, 3, None],
        "price": [0.5, 1.5, None, 2.5],
        "day": pa.array([18_000, 18_001, 18_002, None], pa.date32()),
    }
)


def rows(data, **options) -> list[dict]:
    source = open_source(data, **options)
    batches = list(source.batches())
    assert all(batch.schema.equals(source.schema) for batch in batches)
    assert list(source.batches()) == batches, "a source reads the same again"
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def write(path: Path, table: pa.Table = TABLE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=2)
        case ".csv":
            pacsv.write_csv(table, path)
        case ".gz":
            plain = write(path.with_suffix(""), table)
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        case ".arrows":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
                out.write_table(table, max_chunksize=3)
        case _:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table, max_chunksize=3)
    return path


FILES = ["x.parquet", "x.csv", "x.csv.gz", "x.arrow", "x.arrows", "x.feather", "X.PARQUET.parquet"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("given", ["path", "text", "url", "glob", "directory", "list"])
def test_files_are_found_and_read(tmp_path, name, given, monkeypatch):
    path = write(tmp_path / "data" / name)
    monkeypatch.chdir(tmp_path)
    data = {
        "path": path,
        "text": f"data/{name}",
        "url": f"file://{path}",
        "glob": "data/[xX]*.*",
        "directory": path.parent,
        "list": [path],
    }[given]
    expected = TABLE.to_pylist()
    if ".csv" in name:
        # CSV knows no null text.
        expected = [row | {"store": row["store"] or ""} for row in expected]
    assert rows(data) == expected
    about = open_source(data).description()
    assert about.rows == (4 if name.endswith(".parquet") else None)
    assert 50 < about.size_bytes < 5000
    monkeypatch.chdir("/")
    again = reopened(about.recipe)
    assert again.description() == about
    assert len(list(again.batches())) == len(list(open_source(about.recipe["paths"]).batches()))


MEMORY = {
    "table": TABLE,
    "batch": TABLE.to_batches()[0],
    "polars": pl.from_arrow(TABLE),
    "pandas": TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "list": [TABLE.slice(0, 1), pl.from_arrow(TABLE.slice(1, 2)), TABLE.slice(3)],
}


@pytest.mark.parametrize("name", MEMORY)
def test_data_in_memory_is_read(name):
    data = MEMORY[name]
    source = open_source(data)
    found = pa.Table.from_batches(list(source.batches()), source.schema)
    assert found.to_pylist() == TABLE.to_pylist()
    about = source.description()
    assert (about.rows, about.recipe) == (4, None)
    assert about.size_bytes >= TABLE.nbytes // 2


def test_a_class_with_an_arrow_stream_is_data():
    class Rows:
        def __arrow_c_stream__(self, requested_schema=None):
            return TABLE.__arrow_c_stream__(requested_schema)

    assert rows(Rows()) == TABLE.to_pylist()


def test_a_named_index_is_kept_and_an_unnamed_one_is_not():
    frame = pd.DataFrame({"x": [1, 2]}, index=[7, 8])
    assert rows(frame) == [{"x": 1}, {"x": 2}]
    assert rows(frame.rename_axis("id")) == [{"x": 1, "id": 7}, {"x": 2, "id": 8}]


def test_directories_are_read_in_order_without_markers_and_leftovers(tmp_path):
    for index in (2, 0, 1):
        write(tmp_path / f"part-{index}.parquet", pa.table({"x": [index]}))
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_temporary/0.parquet", "README.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no data")
    assert rows(tmp_path) == rows(tmp_path / "**" / "*.parquet") == [{"x": i} for i in range(3)]
    assert rows([tmp_path / "part-2.parquet", tmp_path / "part-0.parquet"]) == [{"x": 2}, {"x": 0}]


def test_hive_directories_are_columns(tmp_path):
    write(tmp_path / "year=2014" / "city=San%20Jose" / "x.parquet", pa.table({"x": [1]}))
    write(tmp_path / "year=2015" / "city=__HIVE_DEFAULT_PARTITION__" / "x.parquet",
          pa.table({"x": [2]}))  # fmt: skip
    expected = [
        {"x": 1, "year": 2014, "city": "San Jose"},
        {"x": 2, "year": 2015, "city": None},
    ]
    assert rows(tmp_path) == rows(f"{tmp_path}/*/*/*.parquet") == expected
    assert rows(tmp_path, columns=["city"], filter=[("year", ">", 2014)]) == [{"city": None}]
    assert rows(tmp_path / "year=2014" / "city=San%20Jose") == [{"x": 1}]
    write(tmp_path / "year=2016" / "x.parquet", pa.table({"x": [3]}))
    with pytest.raises(SourceError, match=r"year=2016.*name the columns \['year'\].*alike"):
        open_source(tmp_path)


def test_files_of_one_schema_may_differ_in_order_width_and_extras(tmp_path):
    write(tmp_path / "1.parquet", pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    write(tmp_path / "2.parquet", pa.table({"b": ["y"], "c": [0], "a": pa.array([2], pa.int64())}))
    write(tmp_path / "3.parquet", pa.table({"a": pa.nulls(1), "b": ["z"]}))
    write(tmp_path / "4.parquet",
          pa.table({"a": [0.5], "b": pa.array(["w"]).dictionary_encode()}))  # fmt: skip
    assert rows(tmp_path) == [
        {"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}, {"a": None, "b": "z"}, {"a": 0.5, "b": "w"},
    ]  # fmt: skip


def test_files_of_different_schemas_are_refused_by_name(tmp_path):
    write(tmp_path / "1.parquet", pa.table({"a": [1], "b": ["x"]}))
    write(tmp_path / "2.parquet", pa.table({"a": [1]}))
    with pytest.raises(ColumnError, match=r"'b' of file '.*1\.parquet' is missing in file '.*2\."):
        open_source(tmp_path)
    write(tmp_path / "2.parquet", pa.table({"a": [1], "b": [2]}))
    with pytest.raises(ColumnError, match=r"'b' is of type int64 in file '.*2\.parquet', but of"):
        open_source(tmp_path)


FILTERS = [
    ([("sales", ">", 1)], [1, 2]),
    ([("sales", ">=", 2), ("price", "<", 5)], [1]),
    ([[("sales", "=", 1)], [("store", "==", "b")]], [0, 1]),
    ([("store", "in", ["a", "z"])], [0, 3]),
    ([("store", "in", {"a"})], [0, 3]),
    ([("store", "not in", ["a"])], [1, 2]),
    ([("store", "!=", "a")], [1]),
    ([("price", "<=", 1.5)], [0, 1]),
    ([("sales", "<", 2.5)], [0, 1]),
    ([("sales", "in", [np.int8(1), 3])], [0, 2]),
    ([("day", ">", dt.date(2019, 4, 14))], [1, 2]),
    ([("day", ">", "2019-04-14")], [1, 2]),
    ([("day", "in", ["2019-04-14"])], [0]),
    ([], [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("filter_", "expected"), FILTERS)
def test_filters(tmp_path, filter_, expected):
    path = write(tmp_path / "x.parquet")
    found = [TABLE.to_pylist()[index] for index in expected]
    assert rows(path, filter=filter_) == rows(TABLE, filter=filter_) == found
    source = open_source(path, filter=filter_, columns=["price"])
    again = reopened(source.description().recipe)
    assert again.description().fingerprint == source.description().fingerprint
    assert [b.to_pylist() for b in again.batches()] == [b.to_pylist() for b in source.batches()]


def test_filters_compare_encoded_and_exact_columns():
    table = pa.table(
        {
            "c": pa.array(["a", "b"]).dictionary_encode(),
            "v": pa.array(["a", "b"], pa.string_view()),
            "r": pa.RunEndEncodedArray.from_arrays([2], [1]),
            "m": pa.array([Decimal("1.5"), Decimal("2.5")]),
            "t": pa.array([0, 3600], pa.timestamp("s", "UTC")),
            "f": [True, False],
            "x": [0, 1],
        }
    )
    for filter_ in (
        [("c", "=", "b")], [("c", "in", ["b"])], [("v", ">", "a")], [("m", "=", Decimal("2.5"))],
        [("m", ">", "2.0")], [("f", "=", False)], [("r", "=", 1), ("x", ">", 0)],
        [("t", ">", "1970-01-01T00:30:00+00:00")],
    ):  # fmt: skip
        found = open_source(table, columns=["x"], filter=filter_)
        assert [b.to_pylist() for b in found.batches()] == [[{"x": 1}]], filter_


BAD_FILTERS = [
    ([("nope", "=", 1)], ColumnError, r"The filter names column 'nope'.*its columns are 'store'"),
    ([("sales", "~", 1)], InputError, r"unknown operator '~': use one of =, "),
    (
        [[("sales", ">", 1)], []],
        InputError,
        r"has an empty list of conditions, which holds for eve",
    ),
    (
        [[], [("sales", ">", 1)]],
        InputError,
        r"has an empty list of conditions, which holds for eve",
    ),
    ({"sales": 1}, InputError, r"^{'sales': 1} is no filter: give a list of conditions, such as "),
    (pc.field("sales") > 1, InputError, r"^<pyarrow.*> is no filter: give a list of conditions"),
    ("sales > 1", InputError, r"^'sales > 1' is no filter: give a list"),
    (("sales", ">", 1), InputError, r"^\('sales', '>', 1\) is no filter: give a list"),
    ([[("sales", ">", 1)], ("sales", ">", 1)], InputError, r"'sales' is not of the form"),
    ([(1, ">", 1)], InputError, r"is not of the form"),
    ([("sales", "in", {1, "2"})], ColumnError, r"'sales' of type int64 with '2'"),
    ([("sales", "=")], InputError, r"is not of the form \(column, operator, value\)"),
    ([("sales", "=", None)], InputError, r"compares with None"),
    ([("sales", "=", float("nan"))], InputError, r"compares with nan"),
    ([("sales", "in", "abc")], InputError, r"needs a list of values"),
    ([("sales", "in", [])], InputError, r"needs a list of values"),
    ([("sales", "=", "1")], ColumnError, r"'sales' of type int64 with '1' of type str"),
    ([("store", "=", 1)], ColumnError, r"'store' of type string with 1 of type int"),
    ([("sales", "in", [1, "2"])], ColumnError, r"'sales' of type int64 with '2'"),
    ([("sales", "in", ["1"])], ColumnError, r"compares column 'sales' of type int64 with '1'"),
    ([("day", ">", "soon")], ColumnError, r"'day' of type date32\[day\] with 'soon'"),
    ([("store", "=", "\ud800")], InputError, r"on column 'store' holds '\\ud800', half of a char"),
    ([("day", "in", ["\udfff"])], InputError, r"on column 'day' holds '\\udfff', half of a char"),
]


@pytest.mark.parametrize(("filter_", "error", "message"), BAD_FILTERS)
def test_bad_filters_are_refused_before_any_row_is_read(filter_, error, message):
    with pytest.raises(error, match=message):
        open_source(TABLE, filter=filter_)


def test_a_filter_that_leaves_nothing_says_so():
    source = open_source(TABLE, filter=[("sales", ">", 100)])
    with pytest.raises(SourceError, match=r"'sales', '>', 100.* leaves none of the 4 rows"):
        list(source.batches())


@pytest.mark.parametrize("value", [1, 2**64, "a", True, 0.5])
def test_nulls_pass_not_in_alone(value):
    table = pa.table({"n": pa.nulls(2), "x": [0, 1]})
    for condition in (("n", "=", value), ("n", "!=", value), ("n", "in", [value])):
        with pytest.raises(NoRowsError, match="leaves none of the 2 rows"):
            rows(table, filter=[condition])
    assert len(rows(table, filter=[("n", "not in", [value])])) == 2


def test_columns_are_checked():
    assert rows(TABLE, columns=["price", "store"])[0] == {"price": 0.5, "store": "a"}
    with pytest.raises(ColumnError, match=r"columns names column 'nope', which"):
        open_source(TABLE, columns=["nope"])
    with pytest.raises(ColumnError, match=r"^columns names column 'sales' twice: name it once\.$"):
        open_source(TABLE, columns=["sales", "sales"])


BAD_DATA = [
    ([], SourceError, "empty list"),
    (5, SourceError, r"type builtins\.int is not a source: give a path"),
    ("", SourceError, "path of the source is ''"),
    ("/nope/x.parquet", SourceError, r"no file or directory '/nope/x\.parquet'"),
    ("/nope/*.csv", SourceError, r"No file matches '/nope/\*\.csv'"),
    (["/nope/1", "/nope/2"], SourceError, "no file or directory '/nope/1'"),
    ("http://host/x.parquet", SourceError, r"protocols s3, gs, gcs, abfs, az"),
    ("simplecache::s3://b/x.parquet", SourceError, "without chains"),
    ("s3://user:secret@b/x.csv", SourceError, "^The URL of a source holds a user or password"),
    ([TABLE, "/nope/x.parquet"], SourceError, r"no file or directory '/nope/x\.parquet'"),
    (TABLE.slice(0, 0), SourceError, "source has no rows"),
    (pd.DataFrame({0: [1]}), ColumnError, r"named 0 \(int\): rename it to a string"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), ColumnError, "more than one column named 'a'"),
    (pa.table([[1], [2]], ["a", "a"]), ColumnError, "more than one column named 'a'"),
    (
        pd.DataFrame({"x": [1, 2], "bad": ["a", 1]}, dtype=object),
        ColumnError,
        r"Column 'bad' of the frame holds values of types int, str, which have no common",
    ),
    ([TABLE, TABLE.select(["store"])], ColumnError, "'sales' of item 0 of the list is missing in"),
    ([pa.table({"a": [1]}), pa.table({"a": ["x"]})], ColumnError, "string in item 1 of the list"),
]


@pytest.mark.parametrize(("data", "error", "message"), BAD_DATA, ids=range(len(BAD_DATA)))
def test_bad_data_is_refused_in_one_line(data, error, message):
    with pytest.raises(error, match=message) as caught:
        open_source(data)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


BAD_FILES = [
    ("zero.parquet", b"", "file size is 0 bytes"),
    ("text.parquet", b"a,b\n1,2\n" * 9, "magic bytes not found"),
    ("cut.parquet", "truncated", "cannot be read as parquet"),
    ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
    ("empty.csv", b"", "Empty CSV file"),
    ("bad.csv.gz", b"not zipped", "cannot be read as csv"),
    ("bad.arrow", b"nonsense, and more of it than a header has", "cannot be read as ipc"),
    ("zero.arrow", b"", "cannot be read as ipc"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_unreadable_files_are_named_before_any_row_is_read(tmp_path, name, content, message):
    path = tmp_path / name
    if content == "truncated":
        content = write(tmp_path / "whole.parquet").read_bytes()[:-20]
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        open_source(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_page_is_named_when_it_is_read(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"x": np.random.default_rng(0).random(10_000)})
    pq.write_table(table, path, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"File '{path}' cannot be read as parquet"):
        list(open_source(path).batches())


def test_csv_that_changes_its_mind_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 64)
    path = tmp_path / "x.csv"
    path.write_text("a\n" + "1\n" * 100 + "oops\n")
    with pytest.raises(SourceError, match=rf"File '{path}' .*int64.*oops"):
        list(open_source(path).batches())


def test_csv_of_several_files_has_one_schema(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_text('b,a\n"y, and\nmore",2.5\n')
    assert rows(tmp_path) == [{"a": 1.0, "b": "x"}, {"a": 2.5, "b": "y, and\nmore"}]
    (tmp_path / "3.csv").write_bytes("\ufeffa,b\n3,é\n".encode())
    assert rows(tmp_path)[2] == {"a": 3.0, "b": "é"}


def test_mixed_formats_and_unknown_suffixes_are_refused(tmp_path):
    write(tmp_path / "x.csv"), write(tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"several formats \(csv, parquet\)"):
        open_source(tmp_path)
    with pytest.raises(SourceError, match=r"several formats \(csv, parquet\)"):
        open_source([tmp_path / "x.csv", tmp_path / "x.parquet"])
    (tmp_path / "x.txt").write_text("a")
    with pytest.raises(SourceError, match=r"'.*x\.txt' cannot be determined from its name"):
        open_source(tmp_path / "x.txt")
    (tmp_path / "none").mkdir()
    with pytest.raises(SourceError, match=r"Directory '.*none' holds no file that ends in"):
        open_source(tmp_path / "none")
    with pytest.raises(SourceError, match=r"x\.csv' is named twice"):
        open_source([tmp_path / "x.csv", tmp_path / "*.csv"])


def test_duplicate_columns_in_files_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ColumnError, match="more than one column named 'a'"):
        open_source(tmp_path / "x.csv")
    write(tmp_path / "x.parquet", pa.table([[1], [2]], ["a", "a"]))
    with pytest.raises(ColumnError, match="more than one column named 'a'"):
        open_source(tmp_path / "x.parquet")


def test_views_and_runs_are_read_as_plain_columns():
    table = pa.table(
        {
            "view": pa.array(["a", None], pa.string_view()),
            "runs": pa.RunEndEncodedArray.from_arrays([2], ["x"]),
            "category": pa.DictionaryArray.from_arrays([0, 0], pa.array(["c"], pa.string_view())),
        }
    )
    source = open_source(table, filter=[("runs", "=", "x")])
    assert source.schema.types == [
        pa.string(), pa.string(), pa.dictionary(pa.int64(), pa.string()),
    ]  # fmt: skip
    assert rows(table, filter=[("view", "=", "a")]) == [{"view": "a", "runs": "x", "category": "c"}]


def test_an_empty_table_in_a_file_is_refused(tmp_path):
    with pytest.raises(SourceError, match="source has no rows"):
        open_source(write(tmp_path / "x.parquet", TABLE.slice(0, 0)))


def test_a_file_that_changes_while_in_use_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet")
    source = open_source(path)
    write(path, TABLE.slice(1))
    with pytest.raises(SourceError, match=rf"File '{path}' changed while it was in use"):
        list(source.batches())
    path.unlink()
    with pytest.raises(SourceError, match=rf"File '{path}' cannot be read: No such file"):
        list(source.batches())


def fingerprint(data, **options) -> str:
    return open_source(data, **options).description().fingerprint


def test_fingerprints_of_files_see_every_change(tmp_path):
    path = write(tmp_path / "x.parquet")
    first = fingerprint(path)
    assert fingerprint(path) == fingerprint([path]) == fingerprint(tmp_path / "*.parquet") == first
    others = {
        fingerprint(path, columns=["store"]),
        fingerprint(path, filter=[("sales", ">", 0)]),
        fingerprint(path, filter=[("sales", ">", 1)]),
    }
    os.utime(path, ns=(1, 1))
    others.add(fingerprint(path))
    write(tmp_path / "y.parquet")
    others.add(fingerprint(tmp_path))
    assert len(others - {first}) == 5


def test_what_the_named_folder_decides_counts_in_the_fingerprint(tmp_path):
    folder = tmp_path / "data" / "part=7"
    folder.mkdir(parents=True)
    path = write(folder / "x.parquet")
    for rest in ({}, {"columns": ["store"]}):
        first = fingerprint(folder, **rest)
        assert first == fingerprint(path, **rest) == fingerprint(folder / "*.parquet", **rest)
        assert first != fingerprint(tmp_path / "data", **rest), "it has the column part as well"
        assert fingerprint(tmp_path / "data", **rest) == fingerprint(tmp_path, **rest)
    files = [Files(each, file_column="file") for each in (folder, path, tmp_path / "data")]
    named = [open_source(each) for each in files]
    texts = [next(source.batches())["file"][0].as_py() for source in named]
    assert texts == ["x.parquet", "x.parquet", "part=7/x.parquet"]
    found = [source.description().fingerprint for source in named]
    assert found[0] == found[1] != found[2]


def test_fingerprints_of_files_without_columns_in_paths_are_those_of_stored_runs(tmp_path):
    path = write(tmp_path / "x.parquet")
    asked = (path, Files(path, schema="union"))
    about = find_files([str(path)])[0]
    files = [[about.path, about.size_bytes, about.identity]]
    for source, said in zip(asked, (files, [files, {"schema": "union"}]), strict=True):
        digest = hashlib.sha256(json.dumps(said).encode())
        digest.update(json.dumps({"columns": None, "filter": None}).encode())
        assert fingerprint(source) == digest.hexdigest()


def test_fingerprints_of_memory_are_those_of_the_content():
    assert fingerprint(TABLE) == fingerprint(TABLE.slice(0))
    category = pa.table({"a": pa.array(["x"]).dictionary_encode()})
    other = pa.table({"a": pa.array(["y"]).dictionary_encode()})
    found = {fingerprint(t) for t in (TABLE, TABLE.slice(1), category, other)}
    assert len(found) == 4
    assert fingerprint(TABLE, columns=["store"]) != fingerprint(TABLE)


def test_parquet_sizes_are_those_in_memory(tmp_path):
    """Footers tell encoded sizes, which are far too small for repeated text and integers."""
    table = pa.table({"text": ["a long text that repeats"] * 50_000, "n": [7] * 50_000})
    pq.write_table(table, tmp_path / "x.parquet")
    size = open_source(tmp_path / "x.parquet").description().size_bytes
    assert 0.3 * table.nbytes < size < 2 * table.nbytes


def test_dots_in_the_names_of_parquet_columns_change_no_sizes(tmp_path):
    """A nested column has leaves whose paths look like a name with dots, which counted for it."""
    sizes = []
    for names in (("t", "n", "s", "m"), ("s.t", "s.n", "s", "s.t.n"), ("s.b.c", ".", "s", "s.")):
        nested = [{"b": {"c": 1}, "d": [2]}] * 1000
        columns = [["some text"] * 1000, range(1000), nested, [0.5] * 1000]
        pq.write_table(pa.table(columns, names=names), tmp_path / "x.parquet")
        rows = FileRows(Files(tmp_path))
        sizes.append([rows.size_bytes([name]) for name in names])
    assert sizes[1:] == [sizes[0], sizes[0]]
    assert all(sizes[0])


def test_wide_rows_come_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_BATCH_BYTES", 8_000)
    table = pa.table({f"x{i}": range(1000) for i in range(10)})
    pq.write_table(table, tmp_path / "x.parquet")
    found = list(open_source(tmp_path / "x.parquet").batches())
    assert [batch.num_rows for batch in found] == [100] * 10


def test_s3(s3_store_url):
    import fsspec

    filesystem = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    for name in ("t/k=1/x.parquet", "t/k=2/x.parquet", "c/x.csv.gz"):
        buffer = pa.BufferOutputStream()
        if name.endswith("parquet"):
            pq.write_table(TABLE, buffer)
        else:
            pacsv.write_csv(TABLE.drop_columns("store"), buffer)
        content = buffer.getvalue().to_pybytes()
        packed = gzip.compress(content) if name.endswith(".gz") else content
        filesystem.pipe_file(f"{s3_store_url}/{name}", packed)
    expected = [row | {"k": k} for k in (1, 2) for row in TABLE.to_pylist()]
    assert rows(f"{s3_store_url}/t") == rows(f"{s3_store_url}/t/*/*.parquet") == expected
    assert rows(f"{s3_store_url}/t/k=1/x.parquet") == TABLE.to_pylist()
    assert rows(f"{s3_store_url}/c/x.csv.gz") == TABLE.drop_columns("store").to_pylist()
    source = open_source(f"{s3_store_url}/t")
    about = source.description()
    assert (about.rows, reopened(about.recipe).description()) == (8, about)
    filesystem.pipe_file(f"{s3_store_url}/t/k=1/x.parquet", b"x" * 50)
    with pytest.raises(SourceError, match=r"k=1/x\.parquet' changed while it was in use"):
        list(source.batches())
    with pytest.raises(SourceError, match=rf"There is no file at '{s3_store_url}/none'"):
        open_source(f"{s3_store_url}/none")
    with pytest.raises(SourceError, match=r"'s3://no-such-bucket-\w+/x\.parquet'"):
        open_source("s3://no-such-bucket-partwise/x.parquet")


def test_files_of_a_folder_are_taken_as_they_are_named(tmp_path):
    for name in ("a[1].parquet", "a1.parquet", "k=1/*.parquet", "_x.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(TABLE.slice(0, 1), tmp_path / name)
    names = ["k=1/*.parquet", "_x.parquet", "a[1].parquet"]
    files = Files(names[1:], folder=tmp_path, file_column="file")
    read = [row["file"] for row in rows(files)]
    assert read == names[1:]
    assert [row["file"] for row in rows(Files.from_recipe(files.recipe()))] == read
    (row,) = rows(Files(names[:1], folder=f"{tmp_path}/", file_column="file"))
    assert (row["file"], row["k"]) == (names[0], 1)
    for wrong in ("../x.parquet", "", "/etc/x.parquet", "s3://b/x.parquet"):
        with pytest.raises((InputError, SourceError), match=r"not below it"):
            Files([wrong], folder=tmp_path)
    for wrong, why in (("k=1", "it is a folder"), ("b*.parquet", "No such file")):
        with pytest.raises(SourceError, match=why):
            open_source(Files([wrong], folder=tmp_path, format="parquet"))
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").touch()
    with pytest.raises(SourceError, match="belongs to the Delta table"):
        open_source(files)


def test_files_of_a_bucket_are_not_looked_for_one_by_one(s3_store_url, monkeypatch):
    import s3fs

    filesystem = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
    buffer = pa.BufferOutputStream()
    pq.write_table(TABLE, buffer)
    names = [f"t/{number}[1].parquet" for number in range(5)]
    for name in names:
        filesystem.pipe_file(f"{s3_store_url}/{name}", buffer.getvalue().to_pybytes())
    asked = []
    call = s3fs.S3FileSystem._call_s3

    async def counted(self, method, *args, **options):
        asked.append(method)
        return await call(self, method, *args, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    files = Files(names[::-1], folder=s3_store_url, file_column="file")
    source = open_source(files, columns=["file"])
    assert list(dict.fromkeys(f.constants["file"] for f in source.fragments())) == names[::-1]
    # Is there the log of a table? Of the folder and the bucket, for all files together.
    assert (asked.count("list_objects_v2"), asked.count("get_object")) == (3, 5)
    for wrong in ("", "/t/x.parquet"):
        with pytest.raises(InputError, match="not below it"):
            Files([wrong], folder=s3_store_url)
    with pytest.raises(SourceError, match=r"t/none\.parquet' cannot be read"):
        open_source(Files(["t/none.parquet"], folder=s3_store_url))


def test_importing_sources_loads_no_heavy_library():
    code = (
        "import sys, partwise.sources.opening, partwise.shuffle.plan, "
        "partwise.engine.driver.params, partwise.connector.data_connector\n"
        "print([m for m in ('pandas', 'polars', 'prefect', 'torch', 's3fs', 'fsspec', 'dask') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
