"""Values that are equal as numbers, and different as written: codes of CSV and of directories."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import ColumnError
from partwise.sources.files import csv_files
from partwise.sources.files.file_set import Files
from partwise.sources.opening import keyed_by, open_source
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn


def keys(data, name="code", trained=()):
    """The keys that a run would be partitioned by."""
    source = keyed_by(open_source(data), [name], trained)
    fragments = source.fragments([name])
    batches = [b for f in fragments for b in source.selection.batches(f)]
    return pa.Table.from_batches(batches)[name].to_pylist()


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
    ],
)
def test_a_key_of_csv_is_text_where_its_numbers_are_codes(tmp_path, texts, expected):
    path = tmp_path / "a.csv"
    path.write_text("code,y\n" + "".join(f"{text},1\n" for text in texts))
    assert keys(str(path)) == expected


def test_quotes_say_nothing_where_all_values_have_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"code","y"\n"1","2"\n')
    assert keys(str(path)) == [1]


def test_a_code_in_a_later_block_is_refused_as_a_key(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 64)
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
