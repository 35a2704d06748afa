"""Values that are equal as numbers, and different as written: codes of CSV and of directories."""

import logging
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partwise.errors import ColumnError, SourceError
from partwise.sources.files import csv_files
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.files.written_numbers import code_in, is_canonical
from partwise.sources.opening import keyed_by, open_source
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn


def keys(data, name="code", trained=()):
    """The keys that a run would be partitioned by."""
    source = keyed_by(open_source(data), [name], trained)
    fragments = source.fragments([name])
    batches = [b for f in fragments for b in source.selection.batches(f)]
    return pa.Table.from_batches(batches)[name].to_pylist()


def small_blocks(monkeypatch, size=64):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", size)
    monkeypatch.setattr(csv_files, "_START_BYTES", size)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["01", "1", "001"], ["01", "1", "001"]),
        (["+1", "1"], ["+1", "1"]),
        (["0x10", "16"], ["0x10", "16"]),
        (["-0", "0"], ["-0", "0"]),
        (["250.0", "250.00"], ["250.0", "250.00"]),
        (["01.5", "2"], ["01.5", "2"]),
        (['"1"', '"2"'], ["1", "2"]),
        (["1", "-20", "0", "NA", ""], [1, -20, 0, None, None]),
        (["0.5", "1.25"], [0.5, 1.25]),
        ([str(2**63), str(2**63 + 1), "7"], [2**63, 2**63 + 1, 7]),
        ([str(2**63), "-7"], [Decimal(2**63), Decimal(-7)]),
        ([str(2**64), str(2**64 + 1)], [Decimal(2**64), Decimal(2**64 + 1)]),
        ([str(2**63), "07"], [str(2**63), "07"]),
        ([str(10**40), "7"], [str(10**40), "7"]),
        (["0.5", str(2**53 + 1)], ["0.5", str(2**53 + 1)]),
    ],
)
def test_a_key_of_csv_is_text_where_its_numbers_are_codes(tmp_path, texts, expected):
    path = tmp_path / "a.csv"
    path.write_text("code,y\n" + "".join(f"{text},1\n" for text in texts))
    assert keys(str(path)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([["1.0", "2.5"], ["1", "2"]], [1.0, 2.5, 1.0, 2.0]),
        ([["1", "2"], ["1.0", "2.5"]], [1.0, 2.0, 1.0, 2.5]),
        ([["0.0", "1.5"], ["-0.0"]], [0.0, 1.5, -0.0]),
        ([["0.0", "1.5"], ["-0.0"], ["0"]], [0.0, 1.5, -0.0, 0.0]),
        ([["2.50", "3.75"], ["3.00"]], [2.5, 3.75, 3.0]),
        ([["1e-07", "2.5"], ["1e-07"]], [1e-07, 2.5, 1e-07]),
        ([["1.0", "nan"], ["1", ""]], [1.0, None, 1.0, None]),
        ([["1.10"], ["1.1"]], ["1.10", "1.1"]),
        ([["1.0"], ["1e0", "2.5"]], ["1.0", "1e0", "2.5"]),
        ([["2.5", "1E5"], ["100000"]], ["2.5", "1E5", "100000"]),
        ([["2.50"], ["2.500"]], ["2.50", "2.500"]),
        ([["2.5"], ["1"], ["1.10"]], ["2.5", "1", "1.10"]),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_doubles_of_several_files_are_as_many_keys_as_are_written(
    tmp_path, files, expected, as_list, caplog
):
    paths = [tmp_path / f"{place}.csv" for place in range(len(files))]
    for path, texts in zip(paths, files, strict=True):
        path.write_text("code,y\n" + "".join(f"{text},1\n" for text in texts))
    found = keys(list(map(str, paths)) if as_list else str(tmp_path))
    assert list(map(repr, found)) == list(map(repr, expected))
    said = "Key column 'code' is read as text, since the files write its numbers in different ways"
    assert sum(said in message for message in caplog.messages) == isinstance(expected[0], str)


def test_a_double_that_a_file_writes_in_another_way_later_is_refused(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    (tmp_path / "a.csv").write_text("code,y\n" + "1.5,1\n" * 99)
    (tmp_path / "b.csv").write_text("code,y\n" + "2.5,1\n" * 99 + "1.50,1\n")
    message = (
        r"^Key column 'code' of file .*b.csv.* then holds '1.50', which would be the key 1\.5\."
    )
    with pytest.raises(ColumnError, match=message):
        keys(str(tmp_path))
    declared = keys(Files(str(tmp_path), types={"code": "double"}))
    assert set(declared) == {1.5, 2.5}


@pytest.mark.parametrize("seed", range(30))
def test_no_key_of_several_files_is_of_two_written_values(tmp_path, monkeypatch, seed):
    """But that 1 and 1.0, and -0.0 and 0.0, are one: another file is often another program's."""
    rng = np.random.default_rng(seed)
    small_blocks(monkeypatch, int(rng.choice([64, 8192])))
    ways = [
        repr,
        lambda x: f"{x:.2f}",
        lambda x: f"{x:.1e}",
        lambda x: str(int(x)),
        lambda x: f"{x:g}",
    ]
    texts = []
    for place in range(3):
        way = ways[rng.integers(5)] if rng.random() < 0.5 else repr
        numbers = (rng.integers(-8, 8, 30) / 4).tolist()
        own = [way(number) for number in numbers]
        if rng.random() < 0.3:
            own[-1] = "1.50"
        texts += own
        (tmp_path / f"{place}.csv").write_text("y,code\n" + "".join(f"1,{t}\n" for t in own))
    try:
        found = keys(str(tmp_path))
    except (ColumnError, SourceError):
        return
    if isinstance(found[0], str):
        assert found == texts
    elif isinstance(found[0], float):
        same = {text.removesuffix(".0") if float(text) else "0" for text in texts}
        assert found == [float(text) for text in texts]
        assert len({value + 0.0 for value in found}) == len(same)


DOTS = {"thousands": ".", "decimal": ","}
COMMAS = {"decimal": ","}


@pytest.mark.parametrize(
    ("options", "files", "as_key", "as_column", "said"),
    [
        # Equal numbers that the files write in two ways.
        (DOTS, [["1.000", "2"], ["1000"]], None, [1000, 2, 1000], "equal numbers"),
        (DOTS, [["1000", "2"], ["1.000"]], None, [1000, 2, 1000], "equal numbers"),
        (DOTS, [["1.000,5"], ["1000,5"]], None, [1000.5, 1000.5], "equal numbers"),
        (DOTS, [["1.000", "2"], ["2,5", "1000"]], None, [1000.0, 2.0, 2.5, 1000.0], "equal num"),
        ({"thousands": " "}, [["1\u202f000"], ["1000"]], None, [1000, 1000], "equal numbers"),
        # Thousands that are read as decimals.
        ({}, [["1.000", "2"], ["1000"]], None, [1.0, 2.0, 1000.0], "'.' is read as the decimal"),
        ({}, [["1000"], ["7", "1.234"]], None, [1000.0, 7.0, 1.234], "'.' is read as the decimal"),
        ({}, [["1.000", "2.500"], ["1000.0"]], None, [1.0, 2.5, 1000.0], "'.' is read as the dec"),
        (COMMAS, [["1,000"], ["1000"]], None, [1.0, 1000.0], "',' is read as the decimal"),
        (
            {"thousands": ","},
            [["1,000", "2,500"], ["1.000", "2.500"]],
            None,
            [1000.0, 2500.0, 1.0, 2.5],
            "'.' is read as the decimal",
        ),
        # One way, or nothing that says another.
        (DOTS, [["1.000", "2"], ["2.000", "7"]], [1000, 2, 2000, 7], [1000, 2, 2000, 7], ""),
        (DOTS, [["1000", "2"], ["7"], ["999"]], [1000, 2, 7, 999], [1000, 2, 7, 999], ""),
        ({}, [["1.25", "2.125"], ["1000"]], [1.25, 2.125, 1000.0], [1.25, 2.125, 1000.0], ""),
        ({}, [["0.125", "2.125"], ["1000"]], [0.125, 2.125, 1000.0], [0.125, 2.125, 1000.0], ""),
        ({}, [["1.125", "2.125"], ["100"]], [1.125, 2.125, 100.0], [1.125, 2.125, 100.0], ""),
    ],
)
def test_thousands_that_files_write_in_different_ways(
    tmp_path, options, files, as_key, as_column, said, caplog
):
    texts = [text for file in files for text in file]
    for place, own in enumerate(files):
        body = "code;y\n" + "".join(f"{text};1\n" for text in own)
        (tmp_path / f"{place}.csv").write_text(body)
    data = Files(str(tmp_path), csv={"delimiter": ";"} | options)

    assert keys(data) == (texts if as_key is None else as_key)
    warned = [message for message in caplog.messages if "in different ways" in message]
    assert len(warned) == (as_key is None)
    caplog.clear()

    found = [value for batch in open_source(data).batches() for value in batch["code"].to_pylist()]
    assert found == as_column
    warned = [message for message in caplog.messages if "in different ways" in message]
    assert len(warned) == bool(said)
    for message in warned:
        assert said in message
        assert all(f"{place}.csv" in message for place in range(len(files)))
        assert sum(repr(text) in message for text in texts) == 2
    caplog.clear()

    kind = str(open_source(data).schema.field("code").type)
    declared = Files(str(tmp_path), csv=data.csv, types={"code": kind})
    assert keys(declared) == as_column
    assert caplog.messages == []


def test_thousands_that_a_file_writes_in_another_way_later_are_refused(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    (tmp_path / "a.csv").write_text("code;y\n" + "1.000;1\n" * 99)
    for late in ("2000", "1.00"):
        (tmp_path / "b.csv").write_text("code;y\n" + "3.000;1\n" * 99 + f"{late};1\n")
        with pytest.raises(ColumnError, match=rf"^Key column 'code' of file .*b.csv.*'{late}'"):
            keys(Files(str(tmp_path), csv={"delimiter": ";"} | DOTS))


def test_a_negative_zero_beside_a_zero_is_no_code(tmp_path, caplog):
    """Rounding makes it of small negative numbers; as keys the two are one, as everywhere."""
    path = tmp_path / "a.csv"
    path.write_text("code,y\n0.0,1\n-0.0,1\n2.5,1\n")
    assert keys(str(path)) == [0.0, 0.0, 2.5]
    open_source(str(path))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("options", "texts", "expected"),
    [
        ({"decimal": ","}, ["01", "1"], ["01", "1"]),
        ({"decimal": ","}, ["2,5", "2,50"], ["2,5", "2,50"]),
        ({"decimal": ","}, ["2,5", "3"], [2.5, 3.0]),
        ({"thousands": "."}, ["001", "1"], ["001", "1"]),
        ({"thousands": "."}, ["1.000", "1000"], ["1.000", "1000"]),
        ({"thousands": "."}, ["1.000", "999", "-"], [1000, 999, None]),
        ({"thousands": "."}, ["1.000", "2,5"], [1000.0, 2.5]),
        ({"thousands": "."}, ["9.223.372.036.854.775.808", "7"], [2**63, 7]),
        ({"thousands": "."}, ['"1.000"', '"2"'], ["1.000", "2"]),
        ({"skip_rows": 2}, ["01", "1"], ["01", "1"]),
        ({"skip_rows": 2}, ['"1"', '"2"'], ["1", "2"]),
        ({"column_names": ["code", "y"], "skip_rows": 3}, ['"1"', "2"], ["1", "2"]),
        ({"quote": "'"}, ["'1'", "'2'"], ["1", "2"]),
        ({"quote": ""}, ["01", "1"], ["01", "1"]),
        ({"encoding": "utf-16"}, ['"1"', '"2"'], ["1", "2"]),
        ({"null_words": ["00"]}, ["00", "1"], [None, 1]),
    ],
)
def test_codes_are_found_in_files_of_all_forms(tmp_path, options, texts, expected):
    options = {"decimal": "," if "thousands" in options else ".", "null_words": ["-"]} | options
    path = tmp_path / "a.csv"
    title = "of a shop\n" * min(2, options.get("skip_rows", 0))
    body = f"{title}code;y\n" + "".join(f"{text};1\n" for text in texts)
    path.write_text(body, encoding=options.get("encoding", "utf-8"))
    assert keys(Files(str(path), csv={"delimiter": ";"} | options)) == expected


def written(number, rng, options):
    """A number as one of the ways in which people write it."""
    text = (
        f"{number:,}"
        if options.get("thousands") and rng.random() < options["grouped"]
        else str(number)
    )
    text = text.replace(",", "~").replace(".", options["decimal"])
    text = text.replace("~", options.get("thousands", ""))
    ways = [f"0{text}", f"+{text}", f" {text}"]
    if options["decimal"] in text:
        ways.append(f"{text}0")
    return str(rng.choice(ways)) if rng.random() < options["odd"] else text


@pytest.mark.parametrize("seed", range(60))
def test_no_key_is_of_two_written_values(tmp_path, monkeypatch, seed):
    """Whatever numbers stand in whichever block: they are as many keys, or the run is refused."""
    rng = np.random.default_rng(seed)
    small_blocks(monkeypatch, int(rng.choice([64, 512, 8192])))
    options = [{"decimal": "."}, {"decimal": ","}, {"decimal": ",", "thousands": "."}][seed % 3]
    habits = {"odd": rng.choice([0.0, 0.05]), "grouped": rng.choice([0.0, 0.5, 1.0])}
    near = (10, 1000, 2**53, 2**63, 2**64, 10**37, 10**40)[rng.integers(7)]
    numbers = [near + step for step in rng.integers(-9, 9, 40).tolist()]
    if rng.random() < 0.4:
        numbers[20:] = [number / 4 for number in rng.integers(0, 9, 20).tolist()]
    if rng.random() < 0.5:
        numbers = [numbers[place] for place in rng.permutation(40)]
    texts = [written(number, rng, options | habits) for number in numbers]
    path = tmp_path / "a.csv"
    path.write_text("y;code\n" + "".join(f"1;{text}\n" for text in texts))
    try:
        found = keys(Files(str(path), csv={"delimiter": ";"} | options))
    except (ColumnError, SourceError):
        return
    assert len(set(found)) == len(set(texts))
    assert [Decimal(value) if isinstance(value, float) else value for value in found] == [
        text if isinstance(value, str) else Decimal(plain(text, options))
        for value, text in zip(found, texts, strict=True)
    ]


def plain(text, options):
    return text.replace(options.get("thousands") or "~", "").replace(options["decimal"], ".")


def test_files_of_small_and_of_large_integers_have_keys_of_one_type(tmp_path):
    for form in ("csv", "jsonl"):
        folder = tmp_path / form
        folder.mkdir()
        for place, number in enumerate((7, 2**63 + 1)):
            row = f"code,y\n{number},1\n" if form == "csv" else f'{{"code": {number}, "y": 1}}\n'
            (folder / f"{place}.{form}").write_text(row)
        assert keys(str(folder)) == [7, 2**63 + 1]


@pytest.mark.parametrize("other", ["1.5", "1e40"])
def test_whole_numbers_of_json_that_are_one_double_are_no_keys(tmp_path, other):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"code": {other}}}\n{{"code": {2**53 + 1}}}\n')
    with pytest.raises(ColumnError, match=r"'code' of .* several whole numbers are one double"):
        keys(str(path))


def test_large_integers_that_are_no_keys_keep_their_value_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"code,y\n1,{2**63 + 1}\n2,7\n")
    assert keys(str(path), "y") == [2**63 + 1, 7]
    assert open_source(str(path)).schema.field("y").type == pa.uint64()


def test_keys_of_integers_are_of_the_class_of_training(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("code,y\n1,1\n")
    for key_class, value in ((KeyClass.FLOAT, 1.0), (KeyClass.DECIMAL, Decimal(1))):
        trained = [KeyColumn(name="code", key_class=key_class)]
        (found,) = keys(str(path), trained=trained)
        assert (found, type(found)) == (value, type(value))


@given(
    texts=st.lists(st.from_regex(r"[ \t+\-]?[0-9xX.,]{1,4} ?", fullmatch=True), max_size=5),
    decimal=st.sampled_from([".", ","]),
)
@example(texts=["0.5 "], decimal=".")
@example(texts=["-0.50", "00.5"], decimal=".")
@example(texts=["0.5"], decimal=",")
def test_a_code_is_found_wherever_one_text_is_written_as_one(texts, decimal):
    """Few texts are looked at, by how they begin: none that is a code may be passed over."""
    options = CsvOptions(decimal=decimal, thousands="")
    codes = [text for text in texts if not is_canonical(text)]
    found = code_in(pa.array(texts, pa.string()), pa.int64(), options)
    assert found == (codes[0] if codes else None)


def test_codes_are_looked_for_in_all_first_rows_of_key_columns_only(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_START_BYTES", 1024)
    path = tmp_path / "a.csv"
    path.write_text("code,y\n" + "1,1\n" * 999 + "007,02\n")
    looked_at = []

    def look(texts, kind, options):
        looked_at.append(len(texts))
        return code_in(texts, kind, options)

    monkeypatch.setattr(csv_files, "code_in", look)
    assert set(keys(str(path))) == {"1", "007"}
    assert looked_at[2:] == [1000]
    assert max(looked_at[:2]) < 300
    trained = [KeyColumn(name="code", key_class=KeyClass.STRING)]
    keys(str(path), trained=trained)
    assert looked_at[3:] == looked_at[:2]


def test_quotes_say_nothing_where_all_values_have_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"code","y"\n"1","2"\n')
    assert keys(str(path)) == [1]


def test_a_code_in_a_later_block_is_refused_as_a_key(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    path = tmp_path / "a.csv"
    path.write_text("code,y\n" + "1,1\n" * 99 + "007,1\n")
    message = r"^Key column 'code' of file .* then holds '007', which would be the key 7\. Declare"
    with pytest.raises(ColumnError, match=message):
        keys(str(path))
    assert keys(Files(str(path), types={"code": "int64"}))[-1] == 7
    assert keys(Files(str(path), types={"code": "string"}))[-1] == "007"


def test_numbers_of_all_widths_are_keys_as_written(tmp_path):
    powers = [sign * 10**e + step for e in range(19) for sign in (1, -1) for step in (-1, 0, 1)]
    drawn = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 500).tolist()
    numbers = [*powers, *drawn, -(2**63), 2**63 - 1]
    path = tmp_path / "a.csv"
    path.write_text("code,y\n" + "".join(f"{number},1\n" for number in numbers))
    assert keys(str(path)) == numbers


def test_the_class_of_a_training_run_is_that_of_csv_and_directories(tmp_path):
    (tmp_path / "a.csv").write_text("code,y\n1,1\n")
    (tmp_path / "code=01").mkdir()
    pq.write_table(pa.table({"y": [1]}), tmp_path / "code=01" / "a.parquet")
    for source, text in ((str(tmp_path / "a.csv"), "1"), (str(tmp_path / "code=*/*"), "01")):
        for key_class, value in ((KeyClass.STRING, text), (KeyClass.INTEGER, 1)):
            trained = [KeyColumn(name="code", key_class=key_class)]
            assert keys(source, trained=trained) == [value]


def test_directories_that_are_written_as_codes_are_text_as_keys(tmp_path):
    for number, name in enumerate(("code=01", "code=1")):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"y": [number]}), tmp_path / name / "a.parquet")
    assert keys(str(tmp_path)) == ["01", "1"]


def test_a_code_that_is_no_key_is_told_once(tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text("code,y\n01,1\n")
    source = open_source(str(path))
    with caplog.at_level(logging.WARNING, "partwise"):
        assert [batch["code"].to_pylist() for batch in source.batches()] == [[1]]
        list(source.batches())
        list(open_source(Files(str(path), types={"code": "int64"})).batches())
    (record,) = caplog.records
    assert "'code' is read as int64, but values such as 01 are written" in record.getMessage()


def test_rows_that_were_read_are_keyed_as_rows_that_were_not(tmp_path, caplog):
    (tmp_path / "sales.csv").write_text("k,n\n01,1\n1,2\n")
    source = open_source(str(tmp_path / "sales.csv"))
    for _ in range(2):
        assert pa.Table.from_batches(source.batches())["k"].to_pylist() == [1, 1]
    assert caplog.text.count("Column 'k' is read as int64, but values such as 01") == 1
    keyed = keyed_by(source, ["k"])
    assert keyed.schema.field("k").type == pa.string()
    assert pa.Table.from_batches(keyed.batches())["k"].to_pylist() == ["01", "1"]
