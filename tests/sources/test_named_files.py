"""The named inputs 75 to 98 of docs/inputs.md: schemas that differ, and files that are damaged."""

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from partwise.errors import SourceError
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.opening import open_source
from tests.named_inputs import NAMED, Cases, NamedInput, names_between

ROWS = pa.table({"k": ["a", "b"], "x": [1, 2]})
SEEN = ROWS.to_pylist()
LONG = pa.table({"k": ["a"] * 5000, "x": np.arange(5000.0)})

cases = Cases()


def read(data: Any, **options: Any) -> list[dict[str, Any]]:
    """All rows of a source."""
    source = open_source(data, **options)
    return pa.Table.from_batches(list(source.batches()), source.schema).to_pylist()


def packed(table: pa.Table = ROWS, **options: Any) -> bytes:
    """A table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def put(path: Path, content: bytes | str | pa.Table) -> Path:
    """Write a file, and the directories to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        content = packed(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def files(path: Path, *tables: pa.Table) -> Path:
    """A directory of a Parquet file for each table."""
    for index, table in enumerate(tables):
        put(path / f"{index}.parquet", table)
    return path


@cases("75-duplicate-column-names")
def duplicate_names(path: Path, row: NamedInput) -> str:
    twice = pa.table([["a"], [1], [2]], ["k", "x", "x"])
    row.is_refused(lambda: open_source(twice))
    row.is_refused(lambda: open_source(put(path / "1.csv", "k,x,x\na,1,2\n")))
    return row.is_refused(lambda: open_source(files(path / "2", twice)))


@cases("76-a-column-that-some-files-lack")
def missing_column(path: Path, row: NamedInput) -> str:
    return row.is_refused(lambda: open_source(files(path, ROWS, ROWS.select(["k"]))))


@cases("77-a-column-that-some-files-have-besides")
def extra_column(path: Path, row: NamedInput) -> str:
    more = ROWS.append_column("z", pa.array([1, 2]))
    assert read(files(path, ROWS, more)) == SEEN * 2
    return "accepted"


@cases("78-columns-in-another-order")
def other_order(path: Path, row: NamedInput) -> str:
    assert read(files(path, ROWS, ROWS.select(["x", "k"]))) == SEEN * 2
    return "accepted"


@cases("79-types-that-differ-across-files")
def other_types(path: Path, row: NamedInput) -> str:
    halves = ROWS.set_column(1, "x", pa.array([0.5, 1.5]))
    found = read(files(path / "1", ROWS, halves))
    assert [(type(seen["x"]), seen["x"]) for seen in found[1:3]] == [(float, 2.0), (float, 0.5)]
    texts = ROWS.set_column(1, "x", pa.array(["1", "2"]))
    return row.is_refused(lambda: open_source(files(path / "2", ROWS, texts)))


@cases("80-nulls-in-one-file-only")
def nulls_in_one_file(path: Path, row: NamedInput) -> str:
    strict = pa.schema([pa.field("k", pa.string()), pa.field("x", pa.int64(), nullable=False)])
    nulls = ROWS.set_column(1, "x", pa.nulls(2, pa.int64()))
    untyped = ROWS.set_column(1, "x", pa.nulls(2))
    found = read(files(path, ROWS.cast(strict), nulls, untyped))
    assert [seen["x"] for seen in found] == [1, 2, None, None, None, None]
    return "accepted"


@cases("81-dictionaries-beside-plain-columns")
def dictionaries(path: Path, row: NamedInput) -> str:
    encoded = ROWS.set_column(0, "k", ROWS["k"].dictionary_encode())
    assert read(files(path / "1", ROWS, encoded)) == SEEN * 2
    assert read(files(path / "2", encoded, ROWS)) == SEEN * 2
    return "accepted"


@cases("82-column-names-in-another-case")
def other_case(path: Path, row: NamedInput) -> str:
    assert read(pa.table({"a": [1], "A": [2]})) == [{"a": 1, "A": 2}]
    return row.is_refused(lambda: open_source(files(path, ROWS, ROWS.rename_columns(["K", "x"]))))


@cases("84-column-names-that-are-not-text")
def numbered_columns(path: Path, row: NamedInput) -> str:
    return row.is_refused(lambda: open_source(pd.DataFrame({0: [1], "k": ["a"]})))


@cases("85-truncated-parquet")
def truncated(path: Path, row: NamedInput) -> str:
    for cut in (packed()[:-20], packed()[: len(packed()) // 2], packed()[:9]):
        row.is_refused(lambda cut=cut: open_source(put(path / "x.parquet", cut)))
    return "refused"


@cases("86-zero-bytes")
def zero_bytes(path: Path, row: NamedInput) -> str:
    return row.is_refused(lambda: open_source(put(path / "x.parquet", b"")))


@cases("87-wrong-magic")
def wrong_magic(path: Path, row: NamedInput) -> str:
    return row.is_refused(lambda: open_source(put(path / "x.parquet", packed()[:-4] + b"PARX")))


@cases("88-a-flipped-byte")
def flipped_byte(path: Path, row: NamedInput) -> str:
    content = bytearray(packed(LONG, write_page_checksum=True))
    content[3000] ^= 1
    return row.is_refused(lambda: read(put(path / "x.parquet", bytes(content))))


@cases("89-csv-named-parquet")
def csv_as_parquet(path: Path, row: NamedInput) -> str:
    return row.is_refused(lambda: open_source(put(path / "x.parquet", "k,x\n" + "a,1\n" * 50)))


@cases("90-an-unsupported-codec")
def unsupported_codec(path: Path, row: NamedInput) -> str:
    # The codec stands in each column's metadata as field 4 after the path: snappy is 1, LZO is 3.
    content = packed(ROWS.select(["x"]), compression="snappy")
    marks = b"\x01x\x15\x02"
    assert content.count(marks) == 1
    changed = content.replace(marks, b"\x01x\x15\x06")
    return row.is_refused(lambda: read(put(path / "x.parquet", changed)))


class OpenKeys(pe.KmsClient):
    """Hides the keys of a test from nobody."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _name: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _name: str) -> bytes:
        return base64.b64decode(wrapped)


@cases("91-encrypted-parquet")
def encrypted(path: Path, row: NamedInput) -> str:
    # Of text the footer says how long it is: to ask for that would end the process.
    rows = ROWS.set_column(1, "x", pa.array(["1", "2"]))
    paths = []
    for plaintext in (False, True):
        config = pe.EncryptionConfiguration(
            footer_key="footer", column_keys={"own": ["x"]}, plaintext_footer=plaintext
        )
        properties = pe.CryptoFactory(OpenKeys).file_encryption_properties(
            pe.KmsConnectionConfig(), config
        )
        paths.append(path / f"{plaintext}.parquet")
        with pq.ParquetWriter(paths[-1], rows.schema, encryption_properties=properties) as writer:
            writer.write_table(rows)
    assert read(paths[1], columns=["k"]) == [{"k": "a"}, {"k": "b"}]
    assert read(paths[1], columns=["k"], filter=[("k", ">", "a")]) == [{"k": "b"}]
    with pytest.raises(SourceError, match=r"True\.parquet' cannot be read as parquet.*decrypt"):
        read(paths[1])
    with pytest.raises(SourceError, match=r"True\.parquet' cannot be.*column 'x' is encrypted"):
        read(paths[1], columns=["k"], filter=[("x", ">", "0")])
    return row.is_refused(lambda: open_source(paths[0]))


@cases("92-no-row-groups")
def no_row_groups(path: Path, row: NamedInput) -> str:
    empty = ROWS.slice(0, 0)
    assert read(files(path / "1", empty, ROWS)) == SEEN
    return row.is_refused(lambda: open_source(files(path / "2", empty)))


@cases("93-csv-with-bom-latin-1-quotes-and-ragged-rows")
def odd_csv(path: Path, row: NamedInput) -> str:
    assert read(put(path / "bom.csv", "\ufeffk,x\na,1\nb,2\n")) == SEEN
    quoted = put(path / "quotes.csv", 'k,x\r\n"a ""b"", c\nd",1\r\n')
    assert read(quoted) == [{"k": 'a "b", c\nd', "x": 1}]
    for name, content in (("ragged.csv", b"k,x\na,1\nb\n"), ("empty.csv", b"")):
        with pytest.raises(SourceError, match=rf"{name}' cannot be read as csv"):
            open_source(put(path / name, content))
    head = put(path / "head.csv", "caf\u00e9,x\na,1\n".encode("latin-1"))
    row.is_refused(lambda: open_source(head))
    latin = put(path / "latin.csv", "k,x\ncaf\u00e9,1\n".encode("latin-1"))
    assert read(Files(latin, csv=CsvOptions(encoding="latin-1"))) == [{"k": "caf\u00e9", "x": 1}]
    return row.is_refused(lambda: open_source(latin))


@cases("94-a-file-that-changes-in-use")
def changing(path: Path, row: NamedInput) -> str:
    for change in ("rewritten", "deleted"):
        file = put(path / f"{change}.parquet", LONG)
        batches = open_source(file).batches()
        next(batches)
        if change == "deleted":
            file.unlink()
            with pytest.raises(SourceError, match=r"deleted\.parquet' cannot be read: No such"):
                list(batches)
        else:
            put(file, ROWS)
            row.is_refused(lambda batches=batches: list(batches))
    code = (
        "import os, sys\n"
        "from partwise.sources.opening import open_source\n"
        "batches = open_source(sys.argv[1]).batches()\n"
        "next(batches)\n"
        "os.truncate(sys.argv[1], 100)\n"
        "list(batches)\n"
    )
    pq.write_table(LONG, path / "cut.parquet", row_group_size=1000)
    command = [sys.executable, "-c", code, str(path / "cut.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # A mapped file would have killed the process instead.
    assert (done.returncode, "SourceError: File" in done.stderr) == (1, True), done.stderr
    return "refused"


@cases("95-links-and-loops")
def links(path: Path, row: NamedInput) -> str:
    put(path / "data" / "a.parquet", ROWS)
    (path / "data" / "again").symlink_to(path / "data")
    put(path / "elsewhere" / "b.parquet", ROWS)
    (path / "data" / "more").symlink_to(path / "elsewhere")
    (path / "data" / "c.parquet").symlink_to(path / "data" / "a.parquet")
    assert read(path / "data") == SEEN * 2
    assert read(f"{path}/data/**/*.parquet") == SEEN * 2
    (path / "loop.parquet").symlink_to(path / "loop.parquet")
    with pytest.raises(SourceError, match=r"loop\.parquet' cannot be read: Too many levels"):
        open_source(path / "loop.parquet")
    (path / "data" / "gone.parquet").symlink_to(path / "nowhere")
    row.is_refused(lambda: open_source(path / "data" / "*.parquet"))
    return row.is_refused(lambda: open_source(path / "data"))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this process do only what everybody may, whoever runs it."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@cases("96-files-that-may-not-be-read")
def unreadable(path: Path, row: NamedInput) -> str:
    # pytest's own folder is closed to others.
    with tempfile.TemporaryDirectory(prefix="partwise-tests-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        put(folder / "x.parquet", ROWS).chmod(0)
        (folder / "closed").mkdir(mode=0)
        with as_nobody():
            with pytest.raises(SourceError, match=r"closed' cannot be read: Permission denied"):
                open_source(folder / "closed")
            return row.is_refused(lambda: open_source(folder / "x.parquet"))


@cases("97-hidden-and-temporary-files")
def hidden(path: Path, row: NamedInput) -> str:
    for name in ("_x.parquet", ".a.parquet.crc", ".y.parquet", "_delta_log/z.parquet", "a.tmp"):
        put(path / "data" / name, ROWS)
    put(path / "data" / "a.parquet", ROWS)
    assert read(path / "data") == read(f"{path}/data/*.parquet") == SEEN
    assert read(path / "data" / "_x.parquet") == SEEN
    with pytest.raises(SourceError, match=r"begins with '\.' or '_', which marks leftovers"):
        open_source(f"{path}/data/_*.parquet")
    return "accepted"


@cases("83-columns-named-like-our-own")
def own_names(path: Path, row: NamedInput) -> str:
    names = ["partition_id", "status", "rows", "key", "prediction", "", "a\nb", "__index_level_0__"]
    table = pa.table({name: [index] for index, name in enumerate(names)})
    assert read(files(path, table)) == table.to_pylist()
    return "accepted"


@cases("98-a-hive-value-against-the-column")
def hive(path: Path, row: NamedInput) -> str:
    put(path / "1" / "k=a" / "y=8" / "a.parquet", ROWS.filter(pc.equal(ROWS["k"], "a")))
    assert [seen["y"] for seen in read(path / "1")] == [8]
    put(path / "2" / "x=7" / "y=8" / "a.parquet", ROWS)
    return row.is_refused(lambda: read(path / "2"))


@pytest.mark.parametrize("name", cases)
def test_file(tmp_path, name):
    assert cases[name](tmp_path, NAMED[name]) == NAMED[name].outcome


def test_every_row_of_the_page_has_a_test():
    assert set(cases) == names_between(75, 98)
