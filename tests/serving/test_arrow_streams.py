import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from partwise.errors import ColumnError, InputError
from partwise.serving.arrow_streams import from_stream
from partwise.tables.ipc_streams import table_bytes

EVERY_TYPE = pa.table(
    {
        "null": pa.nulls(2),
        "boolean": [True, None],
        "integer": pa.array([1, None], pa.int8()),
        "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
        "half": pa.array([1.5, None], pa.float32()),
        "float": [float("nan"), None],
        "decimal": [Decimal("1.50"), None],
        "large decimal": pa.array([Decimal(1), None], pa.decimal256(70)),
        "text": ["ä", None],
        "large text": pa.array(["", None], pa.large_string()),
        "bytes": [b"\x00", None],
        "large bytes": pa.array([b"", None], pa.large_binary()),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "date": [dt.date(2026, 1, 1), None],
        "time": [dt.time(1), None],
        "moment": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]),
        "duration": [dt.timedelta(1), None],
    }
)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_table_of_every_plain_type_comes_through(rows):
    table = EVERY_TYPE.slice(2 - rows).replace_schema_metadata({"a": "ü"})
    assert str(from_stream(table_bytes(table)).to_pylist()) == str(table.to_pylist())
    assert from_stream(table_bytes(table)).schema.equals(table.schema, check_metadata=True)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_stream_is_refused_before_it_takes_memory(codec):
    table = pa.table({"a": pa.nulls(1_000_000, pa.int64()).fill_null(0)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match="is compressed"):
        from_stream(body)
    assert pa.total_allocated_bytes() - before < 1_000_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a" * 100]).dictionary_encode(),
        pa.array([[1]]),
        pa.array(["a"], pa.string_view()),
        pa.RunEndEncodedArray.from_arrays([2**30], ["a" * 100]),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_that_could_be_larger_than_their_body_are_refused(column):
    with pytest.raises(InputError, match="Column 'a' of the Arrow stream is of type"):
        from_stream(table_bytes(pa.table({"a": column})))


def test_a_column_that_stands_there_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ColumnError, match="more than one column named 'a'"):
        from_stream(table_bytes(table))


def test_whatever_bytes_are_changed_a_table_or_an_error_comes_of_it():
    draw = random.Random(34)
    body = table_bytes(pa.concat_tables([EVERY_TYPE, EVERY_TYPE]))
    read = refused = 0
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        if draw.random() < 0.2:
            del changed[draw.randrange(len(changed)) :]
        try:
            table = from_stream(bytes(changed))
        except InputError:
            refused += 1
        else:
            read += 1
            assert table.nbytes <= len(body)
    assert read > 100
    assert refused > 1000
