"""What is special to single formats: text whose types drift, parts of big files, buckets' keys."""

import datetime as dt
import gzip
import pickle
import tempfile
from decimal import Decimal
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc as paorc
import pyarrow.parquet as pq
import pytest
import xlsxwriter
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.files import formats as formats_module
from partwise.sources.files import parquet_files
from partwise.sources.files import parts as parts_module
from partwise.sources.files.file_set import Files
from partwise.sources.opening import open_source
from partwise.store.credentials import known_credentials, set_credentials


def rows(data, **options) -> list[dict]:
    return [row for batch in open_source(data, **options).batches() for row in batch.to_pylist()]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(formats_module, "_TEXT_BLOCK_BYTES", 64)


def lines(path, *objects: str) -> str:
    path.write_text("\n".join(objects) + "\n")
    return str(path)


def test_json_that_changes_its_type_is_named_or_declared(tmp_path, small_blocks):
    path = lines(tmp_path / "x.jsonl", *['{"a": 1}'] * 20, '{"a": 2.5}')
    with pytest.raises(SourceError, match=r"x\.jsonl' cannot be read as json: .*int64.*2\.5"):
        rows(path)
    assert rows(Files(path, types={"a": "double"}))[-1] == {"a": 2.5}


def test_a_json_field_that_comes_up_late_is_not_lost(tmp_path, small_blocks):
    path = lines(tmp_path / "x.jsonl", *['{"a": 1}'] * 20, '{"a": 2, "late": "2026-01-01"}')
    with pytest.raises(SourceError, match=r"field that none of its first 8 MB has.*types="):
        rows(path)
    found = rows(Files(path, types={"late": "date32"}))
    assert found[0] == {"a": 1, "late": None}
    assert found[-1] == {"a": 2, "late": dt.date(2026, 1, 1)}


def test_json_columns_that_other_files_have_beyond_the_first_are_not_read(tmp_path):
    lines(tmp_path / "1.jsonl", '{"a": 1}')
    lines(tmp_path / "2.jsonl", '{"b": [1], "a": 2}', '{"a": 3}')
    assert rows(tmp_path) == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        ("string", "5", "5"),
        ("string", '"2026-01-01"', "2026-01-01"),
        ("date32", '"2026-01-01"', dt.date(2026, 1, 1)),
        ("timestamp[us]", '"2026-01-01T10:00:00"', pd.Timestamp("2026-01-01 10:00")),
        ("int8", "5", 5),
        ("double", "5", 5.0),
        ("bool", "true", True),
    ],
)
def test_declared_types_of_json(tmp_path, kind, said, value):
    path = lines(tmp_path / "x.jsonl", '{"a": null}', f'{{"a": {said}}}')
    assert rows(Files(path, types={"a": kind})) == [{"a": None}, {"a": value}]
    after = lines(tmp_path / "y.jsonl", f'{{"a": {said}}}', '{"a": null}')
    assert rows(Files(after, types={"a": kind})) == [{"a": value}, {"a": None}]


def test_a_value_that_does_not_fit_its_declared_type_is_refused(tmp_path):
    path = lines(tmp_path / "x.jsonl", '{"a": "hello"}')
    with pytest.raises(ColumnError, match=r"Column 'a' of file '.*x\.jsonl'.*int64.*hello"):
        rows(Files(path, types={"a": "int64"}))
    (tmp_path / "x.csv").write_text("a\nhello\n")
    with pytest.raises(SourceError, match=r"x\.csv' cannot be read as csv: .*hello"):
        rows(Files(tmp_path / "x.csv", types={"a": "int64"}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.jsonl", b'{"a": 1}\n{"a": ', "cannot be read as json"),
        ("array.jsonl", b'[{"a": 1}]', "cannot be read as json"),
        ("twice.jsonl", b'{"a": 1, "a": 2}\n', "specified twice"),
        ("empty.jsonl", b"", "Empty JSON stream"),
        ("bad.jsonl.gz", b"not zipped", "cannot be read as json"),
        ("bad.orc", b"no ORC file at all", "cannot be read as orc"),
        ("zero.orc", b"", "cannot be read as orc"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        rows(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_whose_name_says_nothing_is_read_as_told(tmp_path):
    (tmp_path / "part-0").write_text("a\n1\n")
    with pytest.raises(SourceError, match=r"cannot be determined from its name.*format="):
        open_source(tmp_path / "part-0")
    assert rows(Files(tmp_path / "part-0", format="csv")) == [{"a": 1}]
    (tmp_path / "part-1.gz").write_bytes(gzip.compress(b"a\n2\n"))
    (tmp_path / "_SUCCESS").write_text("")
    assert rows(Files(tmp_path, format="csv")) == [{"a": 1}, {"a": 2}]


NUMBERS = pa.table({"n": range(1000), "text": ["a text of some length"] * 1000})


def write_parts(folder, format_: str) -> str:
    path = str(folder / f"x.{format_}")
    match format_:
        case "arrow":
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, NUMBERS.schema) as out:
                out.write_table(NUMBERS, max_chunksize=100)
        case "orc":
            paorc.write_table(NUMBERS, path, stripe_size=1024, batch_size=100)
        case "parquet":
            pq.write_table(NUMBERS, path, row_group_size=100)
    return path


@pytest.mark.parametrize("format_", ["arrow", "orc", "parquet"])
def test_a_big_file_is_read_in_parts_that_share_nothing(tmp_path, monkeypatch, format_):
    path = write_parts(tmp_path, format_)
    (whole,) = open_source(path).fragments()
    monkeypatch.setattr(parts_module, "_PART_BYTES", whole.size_bytes // 4)
    fragments = open_source(path).fragments()
    assert 3 <= len(fragments) <= 10
    found = [[n for batch in part.batches() for n in batch["n"].to_pylist()] for part in fragments]
    assert list(chain(*found)) == list(range(1000))
    assert all(found)
    assert sum(part.size_bytes for part in fragments) == pytest.approx(whole.size_bytes, rel=0.01)
    assert len(pickle.dumps(fragments)) < 2000 * len(fragments)


NESTED = pa.list_(pa.struct({"n": pa.int64(), "s": pa.string()}))


@given(
    numbers=st.lists(st.none() | st.floats(allow_nan=False), min_size=1, max_size=60),
    texts=st.lists(st.none() | st.text(max_size=30), min_size=1, max_size=60),
    group_rows=st.integers(1, 40),
    batch_rows=st.integers(1, 50),
    dictionaries=st.booleans(),
    columns=st.sets(st.sampled_from(["number", "text", "code", "nested"]), min_size=1),
)
def test_row_groups_of_all_sizes_give_the_rows_that_were_written(
    numbers, texts, group_rows, batch_rows, dictionaries, columns
):
    words = [texts[place % len(texts)] for place in range(len(numbers))]
    table = pa.table(
        {
            "number": pa.array(numbers, pa.float64()),
            "text": pa.array(words, pa.string()),
            "code": pa.array(words, pa.string()).dictionary_encode(),
            "nested": pa.array([word and [{"n": 1, "s": word}] for word in words], NESTED),
        }
    ).select(sorted(columns))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "_BATCH_ROWS", batch_rows)
        path = Path(folder) / "x.parquet"
        pq.write_table(table, path, row_group_size=group_rows, use_dictionary=dictionaries)
        batches = list(open_source(path).batches())
    assert max((batch.num_rows for batch in batches), default=0) <= batch_rows
    assert [row for batch in batches for row in batch.to_pylist()] == table.to_pylist()


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        # Two pages of eight bytes each: at once, so that no batch has rows of two row groups.
        (np.random.default_rng(0).random(20), [7, 3, 7, 3]),
        # A dictionary of one value, and codes of no bits.
        (np.zeros(20_000), [7_000, 7_000, 6_000]),
        # One text may stand once in the file, and be in each row: nobody knows how large they are.
        (np.array(["a text"] * 20, object), [7, 7, 6]),
    ],
)
def test_a_row_group_whose_columns_have_few_pages_is_read_at_once(
    tmp_path, monkeypatch, values, sizes
):
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", sizes[0])
    rows = len(values)
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet", row_group_size=rows // 2)
    batches = list(open_source(tmp_path / "x.parquet").batches())
    assert [batch.num_rows for batch in batches] == sizes
    assert np.concatenate([batch.column(0) for batch in batches]).tolist() == values.tolist()


@pytest.mark.parametrize("written", [True, ["other"], False], ids=str)
def test_an_order_of_categories_counts_where_the_file_has_it(tmp_path, written):
    values = pa.DictionaryArray.from_arrays(
        pa.array([2, 0], pa.int8()), pa.array(["low", "mid", "high"]), ordered=True
    )
    path = str(tmp_path / "x.parquet")
    # Without a dictionary Arrow says high < low, as values come.
    pq.write_table(pa.table({"other": ["a", "b"], "x": values}), path, use_dictionary=written)
    source = open_source(path)
    assert source.schema.field("x").type.ordered is (written is True)
    found = pa.Table.from_batches(source.batches(), source.schema)["x"]
    assert found.to_pylist() == ["high", "low"]


def test_orc_keeps_its_types(tmp_path):
    table = pa.table(
        {
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
            "day": pa.array([dt.date(2026, 1, 1), None]),
            "time": pa.array([pd.Timestamp("2026-01-01 10:00"), None], pa.timestamp("ns")),
            "list": [[1, 2], None],
            "small": pa.array([1, None], pa.int8()),
        }
    )
    paorc.write_table(table, tmp_path / "x.orc")
    source = open_source(tmp_path)
    assert source.schema.types == table.schema.types
    assert pa.Table.from_batches(list(source.batches())).to_pylist() == table.to_pylist()
    assert source.description().rows == 2
    (tmp_path / "y=1").mkdir()
    (tmp_path / "x.orc").rename(tmp_path / "y=1" / "x.orc")
    assert rows(tmp_path, columns=["y"]) == [{"y": 1}] * 2, "a column of the path alone"


@pytest.mark.parametrize(
    "url",
    ["http://host/x.csv", "https://host/x.csv", "ftp://host/x.csv", "sftp://host/x.csv",
     "hdfs://host/x.csv", "memory://x.csv", "github://a:b@/x.csv", "data:,x", "s3::http://x/y.csv"],
)  # fmt: skip
def test_protocols_that_reach_into_networks_are_refused(url):
    with pytest.raises(SourceError, match=r"use a local path or one of the protocols|no file"):
        open_source(url)


@pytest.mark.parametrize("format_", ["arrow", "orc", "parquet", "csv", "csv.zst", "jsonl", "xlsx"])
def test_every_format_is_read_from_a_bucket(s3_store_url, tmp_path, format_):
    import fsspec

    path = tmp_path / f"x.{format_}"
    match format_:
        case "csv":
            path.write_text("n\n1\n2\n")
        case "csv.zst":
            path.write_bytes(
                pa.Codec("zstd").compress("n;m\n1;\n2;\n".encode("utf-16"), asbytes=True)
            )
        case "xlsx":
            with xlsxwriter.Workbook(path) as book:
                book.add_worksheet().write_column(0, 0, ["n", 1, 2])
        case "jsonl":
            path.write_text('{"n":1}\n{"n":2}\n')
        case _:
            write_parts(tmp_path, format_)
    url = f"{s3_store_url}/formats/k=1/x.{format_}"
    fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(url, path.read_bytes())
    files = Files(f"{s3_store_url}/formats", file_column="file")
    source = open_source(files, columns=["k", "n", "file"], filter=[("n", "<=", 2)])
    (fragment,) = pickle.loads(pickle.dumps(list(source.fragments())))
    found = [row for batch in source.selection.batches(fragment) for row in batch.to_pylist()]
    expected = [{"k": 1, "n": n, "file": f"k=1/x.{format_}"} for n in (0, 1, 2)]
    assert found == (expected[1:] if format_ in ("csv", "csv.zst", "jsonl", "xlsx") else expected)


def test_keys_are_in_no_recipe_and_no_pickle(s3_store_url, tmp_path):
    import fsspec

    url = f"{s3_store_url}/keys/x.csv"
    fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(url, b"n\n1\n")
    bucket = "/".join(s3_store_url.split("/")[:3])
    keys = {"key": "an-access-key-id", "secret": "a-very-secret-key"}
    set_credentials(bucket, keys)
    try:
        source = open_source(url)
        sent = pickle.dumps((source.fragments(), source.selection, source.description()))
        assert b"secret" not in sent
        assert b"an-access-key-id" not in sent
        assert known_credentials(source.buckets()) == {bucket: keys}
        several = open_source([Files(url), NUMBERS.select(["n"])])
        assert known_credentials(several.buckets()) == {bucket: keys}
    finally:
        set_credentials(bucket, {})
    assert known_credentials(source.buckets()) == {}
    with pytest.raises(InputError, match=r"takes no credentials named password; it takes key, "):
        set_credentials("s3://b", {"password": "x"})
