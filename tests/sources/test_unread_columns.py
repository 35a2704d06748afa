"""A column that is not read is not decoded: what is damaged in it harms nobody."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import SourceError
from partwise.sources.opening import open_source

ROWS = 2_000
MARK = b"here is damage"
TABLE = pa.table(
    {
        "k": np.arange(ROWS) % 5,
        "bad": pa.array([(MARK + b" %d" % i).decode() for i in range(ROWS)]),
        "x": np.arange(ROWS) / 7,
    }
)


def write_parquet(path: Path) -> None:
    pq.write_table(TABLE, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    path.write_bytes(content.replace(MARK, MARK[::-1], 40))


def write_ipc(path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(path, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE)
    _spoil_compressed(path)


def write_stream(path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(path, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE)
    _spoil_compressed(path)


def _spoil_compressed(path: Path) -> None:
    """Damage the text; lz4 leaves its beginning as it is."""
    content = bytearray(path.read_bytes())
    place = content.index(MARK[:5])
    content[place : place + 200] = bytes(200)
    path.write_bytes(content)


def write_json(path: Path) -> None:
    lines = [json.dumps(row) for row in TABLE.to_pylist()]
    # Beyond the first block its type is another, and a field comes up that was never there.
    lines[-1] = '{"k": 1, "bad": 7, "x": 1.5, "late": true}'
    path.write_text("\n".join(lines))


WRITERS = {
    "x.parquet": write_parquet,
    "x.arrow": write_ipc,
    "x.arrows": write_stream,
    "x.jsonl": write_json,
}


@pytest.mark.parametrize("name", WRITERS)
def test_damage_in_a_column_that_is_not_read(name, tmp_path, monkeypatch):
    monkeypatch.setattr("partwise.sources.files.formats._TEXT_BLOCK_BYTES", 4_000)
    path = tmp_path / name
    WRITERS[name](path)
    for columns in (None, ["bad"]):
        with pytest.raises(SourceError, match=rf"{name}' cannot be read as"):
            list(open_source(path, columns=columns).batches())
    for columns in (["k", "x"], ["x", "k"], ["x"]):
        source = open_source(path, columns=columns)
        found = pa.Table.from_batches(list(source.batches()), source.schema)
        assert found.column_names == columns
        assert found.num_rows == ROWS
        assert found.slice(0, ROWS - 1) == TABLE.select(columns).slice(0, ROWS - 1)
    filtered = open_source(path, columns=["x"], filter=[("k", "==", 3)])
    assert sum(batch.num_rows for batch in filtered.batches()) == ROWS // 5


def test_a_file_of_which_no_column_is_read_has_its_rows(tmp_path):
    """The key stands in the path."""
    for name in ("k=1", "k=2"):
        (tmp_path / name).mkdir()
        with pa.ipc.new_file(tmp_path / name / "x.arrow", TABLE.select(["x"]).schema) as writer:
            writer.write_table(TABLE.select(["x"]))
        (tmp_path / "json" / name).mkdir(parents=True)
        (tmp_path / "json" / name / "x.jsonl.gz").write_bytes(gzip.compress(b'{"x":1}\n{"x":2}\n'))
    for path, rows in ((tmp_path / "*" / "x.arrow", ROWS), (tmp_path / "json", 2)):
        found = [b["k"].to_pylist() for b in open_source(path, columns=["k"]).batches()]
        assert sum(map(len, found)) == 2 * rows
