"""Files whose columns differ are read by a stated policy, and paths give columns of their own."""

import datetime as dt
import json
import os
import pickle

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.files.file_set import Files
from partwise.sources.files.written_numbers import check_whole
from partwise.sources.opening import data_of_recipe, open_source
from tests.sources.reopening import reopened


def rows(data, **options) -> list[dict]:
    source = open_source(data, **options)
    batches = list(source.batches())
    assert all(batch.schema.equals(source.schema) for batch in batches)
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def write(folder, **files: str) -> str:
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return str(folder)


@pytest.mark.parametrize("format_", ["csv", "parquet", "jsonl", "orc", "arrow"])
def test_each_policy_on_files_that_gain_and_lose_columns(tmp_path, format_):
    tables = [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y"], "c": [0.5]})]
    for index, table in enumerate(tables):
        put(tmp_path / f"{index}.{format_}", table)
    with pytest.raises(ColumnError, match=r"Column 'a' of .*0\.\w+' is missing in .*1\.\w+'"):
        open_source(tmp_path)
    with pytest.raises(ColumnError, match=r"Column 'a' of .*0\.\w+' is missing"):
        open_source(Files(tmp_path, schema="strict"))
    union = Files(tmp_path, schema="union")
    assert rows(union) == [{"a": 1, "b": "x", "c": None}, {"a": None, "b": "y", "c": 0.5}]
    assert rows(union, columns=["c"]) == [{"c": None}, {"c": 0.5}]
    assert rows(union, columns=["b"], filter=[("a", "=", 1)]) == [{"b": "x"}]
    assert len(open_source(union, filter=[("a", "=", 1)]).fragments()) == 1, "null never passes"


@pytest.mark.parametrize("format_", ["csv", "parquet", "jsonl"])
def test_files_of_one_schema_are_sent_to_workers_with_it_once(tmp_path, format_):
    columns = [f"x{number}" for number in range(50)]
    for index in range(20):
        there = columns[1:] if index == 10 else columns
        put(tmp_path / f"{index:02}.{format_}", pa.table({name: [index] for name in there}))
    source = open_source(Files(tmp_path, schema="union"))
    fragments = source.fragments()
    few, many = (len(pickle.dumps(fragments[:count])) for count in (2, 9))
    assert (many - few) / 7 < 500, "bytes of a file"
    expected = [dict.fromkeys(columns, index) for index in range(20)]
    expected[10]["x0"] = None
    assert rows(Files(tmp_path, schema="union")) == expected


def put(path, table: pa.Table) -> None:
    import pyarrow.csv as pacsv
    import pyarrow.orc as paorc

    match path.suffix:
        case ".csv":
            pacsv.write_csv(table, path)
        case ".parquet":
            pq.write_table(table, path)
        case ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        case ".orc":
            paorc.write_table(table, path)
        case ".arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)


DRIFTS = {
    "int-then-double": ("1", "2.5", [1.0, 2.5]),
    "double-then-int": ("2.5", "1", [2.5, 1.0]),
    "null-then-int": ("null", "1", [None, 1]),
    "int-then-null": ("1", "null", [1, None]),
    "null-then-text": ("null", '"x"', [None, "x"]),
    "null-then-bool": ("null", "true", [None, True]),
    "null-then-list": ("null", "[1]", [None, [1]]),
    "null-then-object": ("null", '{"y":1}', [None, {"y": 1}]),
    "time-then-null": ('"2026-01-01T10:00:00"', "null", [pd.Timestamp("2026-01-01 10:00"), None]),
}


@pytest.mark.parametrize("name", DRIFTS)
@pytest.mark.parametrize("policy", ["cast", "union"])
def test_inferred_types_of_json_files_widen_without_loss(tmp_path, name, policy):
    first, second, expected = DRIFTS[name]
    write(tmp_path, **{"1_jsonl": f'{{"x":{first}}}\n', "2_jsonl": f'{{"x":{second}}}\n'})
    assert [row["x"] for row in rows(Files(tmp_path, schema=policy))] == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1", "2.5", [1.0, 2.5]),
        ("", "7", [None, 7]),
        ("7", "", [7, None]),
        ("", "x", ["", "x"]),
        ("2026-01-01", "", [dt.date(2026, 1, 1), None]),
    ],
)
def test_inferred_types_of_csv_files_widen_without_loss(tmp_path, first, second, expected):
    write(tmp_path, **{"1_csv": f"x,y\n{first},1\n", "2_csv": f"x,y\n{second},1\n"})
    assert [row["x"] for row in rows(tmp_path)] == expected


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 + 1])
def test_whole_numbers_that_are_no_doubles_are_refused_beside_doubles(tmp_path, suffix, value):
    for place, kind in enumerate((pa.uint64() if value >= 2**63 else pa.int64(), pa.float64())):
        numbers = pa.array([2.5 if place else value, 1], kind)
        put(tmp_path / f"{place}.{suffix}", pa.table({"x": numbers, "y": [1, 2]}))
    with pytest.raises(ColumnError, match=rf"'x' of file '.*0\.{suffix}' is of .*types="):
        rows(tmp_path)
    assert len(rows(tmp_path, columns=["y"])) == 4
    declared = Files(tmp_path, types={"x": "double"})
    if suffix != "parquet":
        assert rows(declared, columns=["x"])[0] == {"x": float(value)}
        texts = rows(Files(tmp_path, types={"x": "string"}), columns=["x"])
        assert texts[0] == {"x": str(value)}


def test_infinity_is_no_whole_number_that_was_rounded():
    check_whole(pa.array([1.0, float("inf"), -float("inf"), None]), "x", "file 'x.csv'")
    with pytest.raises(ColumnError, match="but holds 9007199254740992: from"):
        check_whole(pa.array([float("inf"), 2.0**53]), "x", "file 'x.csv'")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_whole_numbers_beside_doubles_are_these_where_no_digit_is_lost(tmp_path, suffix):
    exact = 2**53 - 1
    put(tmp_path / f"1.{suffix}", pa.table({"x": [exact, -exact]}))
    put(tmp_path / f"2.{suffix}", pa.table({"x": [1e300, 0.5]}))
    assert [row["x"] for row in rows(tmp_path)] == [exact, -exact, 1e300, 0.5]


def test_dates_are_no_times_until_that_is_declared(tmp_path):
    write(tmp_path, **{"1_csv": "x\n2026-01-01\n", "2_csv": "x\n2026-01-02 10:00:00\n"})
    with pytest.raises(ColumnError, match=r"timestamp\[s\] in .*date32\[day\] in .*types="):
        open_source(tmp_path)
    found = rows(Files(tmp_path, types={"x": "timestamp[us]"}))
    assert found == [{"x": pd.Timestamp("2026-01-01")}, {"x": pd.Timestamp("2026-01-02 10:00")}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_text_and_numbers_have_no_common_type_until_one_is_declared(tmp_path, suffix):
    said = {
        "csv": ("zip,n\n01234,1\n", "zip,n\nA1,2\n"),
        "jsonl": ('{"zip":1234,"n":1}\n', '{"zip":"A1","n":2}\n'),
    }[suffix]
    write(tmp_path, **{f"1_{suffix}": said[0], f"2_{suffix}": said[1]})
    with pytest.raises(ColumnError, match=r"'zip' is of type string in .*2\.\w+.*types=\.\.\."):
        open_source(tmp_path)
    found = rows(Files(tmp_path, types={"zip": "string", "n": "double"}))
    assert found[0] == {"zip": "01234" if suffix == "csv" else "1234", "n": 1.0}
    assert found[1] == {"zip": "A1", "n": 2.0}


def test_strict_names_file_and_column(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [2], "a": [2]}), tmp_path / "2.parquet")
    strict = Files(tmp_path, schema="strict")
    assert rows(strict) == [{"a": 1, "b": 1}, {"a": 2, "b": 2}], "the order of columns is no matter"
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": [1]}), tmp_path / "3.parquet")
    with pytest.raises(ColumnError, match=r"'a' is of type int32 in file '.*3\.parquet', but of"):
        open_source(strict)
    assert len(rows(tmp_path)) == 3
    pq.write_table(pa.table({"a": [1], "b": [1], "c": [1]}), tmp_path / "3.parquet")
    with pytest.raises(ColumnError, match=r"'c' of file '.*3\.parquet' is missing in .*1\.parq"):
        open_source(strict)


def test_a_file_column_tells_files_apart(tmp_path):
    for name in ("a/1.csv", "a/2.csv", "b/1.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"x\n{name[-5]}\n")
    names = ["a/1.csv", "a/2.csv", "b/1.csv"]
    for given in (tmp_path, tmp_path / "*/*.csv", [tmp_path / name for name in names]):
        files = Files(given, file_column="file")
        assert [row["file"] for row in rows(files)] == names
        source = open_source(files, columns=["x", "file"])
        known = [fragment.known for fragment in source.fragments(keys=["file"])]
        assert known == [{"file": pa.scalar(name)} for name in names]
        (only,) = open_source(files, filter=[("file", "=", "b/1.csv")]).fragments()
        assert only.file.path == str(tmp_path / "b/1.csv")
    assert rows(Files(tmp_path / "a/2.csv", file_column="f")) == [{"x": 2, "f": "2.csv"}]
    pair = Files([tmp_path / "a", tmp_path / "b"], file_column="file")
    assert [row["file"] for row in rows(pair)] == names
    with pytest.raises(ColumnError, match="have a column 'x' of their own"):
        open_source(Files(tmp_path, file_column="x"))
    assert rows(Files(tmp_path, file_column="f", types={"f": "string"}))[0]["f"] == names[0]
    with pytest.raises(
        ColumnError, match=r"^Files\(types=\.\.\.\) declares 'f' as int64, and it is"
    ):
        open_source(Files(tmp_path, file_column="f", types={"f": "int64"}))


def test_a_column_in_file_and_path_must_say_the_same(tmp_path):
    """A hive value that contradicts the column."""
    folder = tmp_path / "day=2026-01-02"
    folder.mkdir()
    day = dt.date(2026, 1, 2)
    pq.write_table(pa.table({"day": [day, day], "x": [1, 2]}), folder / "1.parquet")
    assert rows(tmp_path) == [{"day": day, "x": 1}, {"day": day, "x": 2}]
    for wrong in (dt.date(2026, 1, 3), None):
        pq.write_table(
            pa.table({"day": pa.array([day, wrong], pa.date32()), "x": [1, 2]}),
            folder / "1.parquet",
        )
        with pytest.raises(ColumnError, match=r"'day' of file .* but its path says .*2026, 1, 2"):
            rows(tmp_path)
        assert rows(tmp_path, columns=["x"]) == [{"x": 1}, {"x": 2}], "what is not read may be odd"
    pq.write_table(pa.table({"day": [5]}), folder / "1.parquet")
    with pytest.raises(ColumnError, match=r"day=2026-01-02, which is not a value of type int64"):
        open_source(tmp_path)


def test_columns_of_paths_have_declared_types(tmp_path):
    for index, value in enumerate(("2026-01-02", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"day={value}" / "zip=01234"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [index]}), folder / "x.parquet")
    assert rows(tmp_path)[0] == {"x": 0, "day": "2026-01-02", "zip": 1234}
    files = Files(tmp_path, types={"day": "date32", "zip": "string"})
    assert rows(files) == [
        {"x": 0, "day": dt.date(2026, 1, 2), "zip": "01234"},
        {"x": 1, "day": None, "zip": "01234"},
    ]
    assert rows(files, filter=[("day", ">", "2026-01-01")], columns=["x"]) == [{"x": 0}]
    with pytest.raises(ColumnError, match="day=2026-01-02, which is not a value of type int64"):
        open_source(Files(tmp_path, types={"day": "int64"}))
    with pytest.raises(ColumnError, match="declares column 'dya', which no file has"):
        open_source(Files(tmp_path, types={"dya": "date32"}))


def test_values_of_directory_names_that_are_no_text_are_not_taken_for_one_another(tmp_path):
    for index, value in enumerate(("100%", "%C3%A9", "%ff", "%fe")):
        (tmp_path / f"k={value}").mkdir()
        pq.write_table(pa.table({"x": [index]}), tmp_path / f"k={value}" / "x.parquet")
    assert rows(tmp_path / "k=1*/*") == [{"x": 0, "k": "100%"}]
    assert rows(tmp_path / "k=%C*/*") == [{"x": 1, "k": "\u00e9"}]
    with pytest.raises(SourceError, match=r"'k=%fe', which stands for bytes that are not UTF-8"):
        open_source(tmp_path)


def test_a_recipe_opens_the_same_rows_elsewhere(tmp_path, monkeypatch):
    write(tmp_path, **{"1_txt": "a\n1\n", "2_txt": "b\n2\n"})
    monkeypatch.chdir(tmp_path)
    files = Files("*.txt", format="csv", schema="union", types={"a": "double"}, file_column="f")
    source = open_source(files, columns=["a", "f"], filter=[("b", "=", 2)])
    about = source.description()
    recipe = json.loads(json.dumps(about.recipe))
    monkeypatch.chdir("/")
    assert data_of_recipe(recipe) == files
    again = reopened(recipe)
    assert again.description() == about
    assert [row for batch in again.batches() for row in batch.to_pylist()] == [
        {"a": None, "f": "2.txt"}
    ]


def test_recipes_of_before_are_read(tmp_path):
    path = write(tmp_path, **{"1_csv": "a\n1\n"})
    recipe = {"paths": [path], "columns": None, "filter": None}
    assert data_of_recipe(recipe) == [path]
    assert open_source(path).description().recipe == recipe


def test_a_recipe_of_several_sources(tmp_path):
    write(tmp_path, **{"1_csv": "a,b\n1,x\n", "2_jsonl": '{"b":"y","a":2.5}\n'})
    given = [Files(tmp_path / "1.csv", types={"a": "int64"}), str(tmp_path / "2.jsonl")]
    about = open_source(given).description()
    again = reopened(about.recipe)
    assert again.description() == about
    assert rows(given) == [{"a": 1.0, "b": "x"}, {"a": 2.5, "b": "y"}]
    mixed = open_source([given[0], pa.table({"a": [3], "b": ["z"]})])
    assert mixed.description().recipe is None
    os.utime(tmp_path / "2.jsonl", ns=(1, 1))
    assert open_source(given).description().fingerprint != about.fingerprint


def test_known_keys_of_several_sources_are_of_their_common_type(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "k=1").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), tmp_path / name / "k=1" / "x.parquet")
    given = [Files(tmp_path / "a", types={"k": "int32"}), Files(tmp_path / "b")]
    found = [fragment.known["k"] for fragment in open_source(given).fragments(["k"])]
    assert found == [pa.scalar(1, pa.int64())] * 2


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({"paths": []}, SourceError, "has no path"),
        ({"paths": "x", "format": "xml"}, InputError, "format='xml'.*use parquet, csv, json"),
        ({"paths": "x", "schema": "loose"}, InputError, "schema='loose'.*cast, strict, union"),
        ({"paths": "x", "types": {"a": "number"}}, InputError, "column 'a' as 'number'"),
        ({"paths": "x", "password": "p"}, InputError, "but not password"),
        ({"schema": "cast"}, InputError, "it needs paths"),
    ],
)
def test_what_makes_no_files_is_refused(said, error, message):
    with pytest.raises(error, match=message):
        Files.from_recipe(said)
