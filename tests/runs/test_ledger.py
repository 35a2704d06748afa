"""The ledger: one row per partition whoever wrote how many, and what others make of the file."""

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import RunFormatError
from partwise.runs.bundle import StoredArtifact
from partwise.runs.ledger import (
    COLUMNS,
    LedgerRow,
    merge,
    read_table,
    readable_ledger,
    segment_table,
    skip_reasons,
    write_table,
)

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ARTIFACT = StoredArtifact(
    filename="model.txt",
    bundle="bundles/00000-g0001deadbeef-001.zip",
    offset=40,
    size_bytes=10,
    stored_bytes=8,
    compression="deflate",
    sha256="0" * 64,
    serde="lightgbm",
)


def row(name: str, status: str = "DONE", **values) -> LedgerRow:
    given = {"shard": 0, "generation": 1, "rows": 1, "finished_at": BEGIN}
    return LedgerRow(partition_id=name, status=status, **(given | values))


def ledger(rows: list[LedgerRow], keys: pa.Table | None = None) -> pa.Table:
    names = pa.table({"key": pa.array([row.partition_id for row in rows], pa.string())})
    return segment_table(names if keys is None else keys, rows)


def test_a_ledger_is_read_as_it_was_written_with_a_fixed_schema() -> None:
    rows = [
        row("a", metrics={"rmse": 0.5, "n": 3.0}, artifacts=(ARTIFACT,)),
        row("b", "FAILED", error_type="ValueError", error_message="bad", metrics={}),
    ]
    table = ledger(rows)
    again = read_table(write_table(table), "x")
    assert again.replace_schema_metadata(None) == table
    assert pa.schema(list(again.schema)[1:]) == COLUMNS
    # Nothing at all is null or of another type only because of what the rows are.
    assert ledger([]).schema == ledger(rows[:1]).schema == ledger(rows[1:]).schema
    assert read_table(write_table(ledger([])), "x").num_rows == 0


def test_other_readers_make_sense_of_it() -> None:
    content = write_table(ledger([row("a", metrics={"rmse": 0.5}, artifacts=(ARTIFACT,))]))
    frame = pd.read_parquet(io.BytesIO(content))
    assert frame["key.key"].tolist() == ["a"]
    assert dict(frame["metrics"][0]) == {"rmse": 0.5}
    assert frame["artifacts"][0][0]["sha256"] == "0" * 64
    assert pl.read_parquet(io.BytesIO(content))["partition_id"].to_list() == ["a"]


KEYS = {
    "integer": (pa.int64(), [-3, 0, 2**62]),
    "unsigned": (pa.uint64(), [0, 1, 2**64 - 1]),
    "string": (pa.string(), ["", "..", "ä/b"]),
    "large string": (pa.large_string(), ["a", "b", "c"]),
    "float": (pa.float64(), [-0.5, 1.0, float("inf")]),
    "boolean": (pa.bool_(), [False, True, None]),
    "timestamp": (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(2026, 1, 1), None]),  # noqa: DTZ001
    "nanoseconds": (pa.timestamp("ns", "UTC"), [-1, 0, 1]),
    "date": (pa.date32(), [0, 1, 2]),
    "time": (pa.time64("ns"), [0, 1, 2]),
    "duration": (pa.duration("us"), [-1, 0, 1]),
    "decimal": (pa.decimal128(5, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("9.99")]),
    "wide decimal": (pa.decimal256(60, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("9.99")]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff"]),
    "large binary": (pa.large_binary(), [b"", b"\0", b"\xff"]),
    "null": (pa.null(), [None]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_class_are_kept_and_sorted(name) -> None:
    kind, values = KEYS[name]
    keys = pa.table({"key": pa.array(values, kind)})
    rows = [row(str(i)) for i in range(len(values))]
    backwards = list(reversed(range(len(values))))
    table = ledger([rows[i] for i in backwards], keys.take(pa.array(backwards)))
    merged = merge([read_table(write_table(table), "x"), table])
    assert merged is not None
    assert merged["partition_id"].to_pylist() == [row.partition_id for row in rows]
    assert merged["key.key"].combine_chunks() == keys["key"].combine_chunks()
    assert readable_ledger(merged)["key"].type == kind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("string", "large string"),
        ("binary", "large binary"),
        ("decimal", "wide decimal"),
        ("timestamp", "nanoseconds"),
    ],
)
def test_keys_whose_width_changed_between_generations_meet(one, other) -> None:
    tables = []
    for place, (name, partition) in enumerate(((one, "a"), (other, "b"))):
        kind, values = KEYS[name]
        kind = pa.timestamp("ns") if name == "nanoseconds" else kind
        tables.append(
            ledger([row(partition)], pa.table({"key": pa.array(values[place : place + 1], kind)}))
        )
    merged = merge(tables)
    assert merged is not None
    assert merged.num_rows == 2
    assert len(merged["key.key"].unique()) == 2


@pytest.mark.parametrize("keys", [(-1, 5), (5, 2**64 - 1)])
def test_integers_of_either_sign_meet(keys) -> None:
    signed = ledger([row("a")], pa.table({"key": pa.array(keys[:1], pa.int64())}))
    unsigned = ledger([row("b")], pa.table({"key": pa.array(keys[1:], pa.uint64())}))
    merged = merge([unsigned, signed])
    assert merged is not None
    assert tuple(merged["key.key"].to_pylist()) == keys


ATTEMPTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from(["DONE", "FAILED", "SKIPPED"]),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@given(ATTEMPTS, st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_one_row_per_partition_done_first_then_newest(attempts, pieces, chance) -> None:
    rows = [
        (generation, row(name, status, finished_at=BEGIN + timedelta(seconds=at), attempts=i))
        for i, (name, status, generation, at) in enumerate(attempts)
    ]
    by_generation: dict[int, list[LedgerRow]] = {}
    for generation, one in rows:
        by_generation.setdefault(generation, []).append(one)
    parts = [
        (generation, ledger(some[i::pieces]))
        for generation, some in by_generation.items()
        for i in range(pieces)
        if some[i::pieces]
    ]
    chance.shuffle(parts)
    merged = merge([table for _, table in parts], [generation for generation, _ in parts])
    assert merged is not None
    expected = {}
    for generation, one in rows:
        rank = (one.status == "DONE", generation, one.finished_at)
        expected[one.partition_id] = max(expected.get(one.partition_id, ()), rank)
    found = merged.select(["partition_id", "status", "finished_at"]).to_pylist()
    assert [one["partition_id"] for one in found] == sorted(expected)
    for one in found:
        done, _, at = expected[one["partition_id"]]
        assert (one["status"] == "DONE", one["finished_at"]) == (done, at)


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) is None
    empty = merge([ledger([])])
    assert empty is not None
    assert empty.num_rows == 0


def test_metrics_are_columns_and_no_name_hides_another() -> None:
    rows = [
        row("a", metrics={"rmse": 0.5, "status": 2.0}),
        row("b", metrics={"rmse": float("nan")}),
        row("c", "FAILED"),
    ]
    keys = pa.table({"rows": [1, 2, 3], "rmse": ["x", "y", "z"]})
    shown = readable_ledger(segment_table(keys, rows))
    assert shown["key.rows"].to_pylist() == [1, 2, 3]
    assert shown["rmse"].to_pylist() == ["x", "y", "z"]
    assert shown["metric.status"].to_pylist() == [2.0, None, None]
    [first, second, third] = shown["metric.rmse"].to_pylist()
    assert (first, third) == (0.5, None)
    assert second != second
    assert shown["status"].to_pylist() == ["DONE", "DONE", "FAILED"]
    # A part of a table is shown like a whole one.
    assert readable_ledger(segment_table(keys, rows).slice(1, 1))["status"].to_pylist() == ["DONE"]


def test_the_most_frequent_reasons_of_skipped_rows_come_first() -> None:
    reasons = [*"aabbbccd", None, "x" * 300]
    rows = [row(f"{i}", status="SKIPPED", reason=text) for i, text in enumerate(reasons)]
    table = ledger([*rows, row("done")])
    assert skip_reasons(table) == "3 x b; 2 x a; 2 x c; 3 for other reasons"
    assert skip_reasons(table.slice(8, 2)) == f"1 x no reason; 1 x {'x' * 200}..."
    assert skip_reasons(table.slice(10)) == ""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is not a readable Parquet file"),
        (lambda content: content[:-10], "is (damaged|not a readable Parquet file)"),
        (lambda content: content[4:], "is damaged: it differs from the checksum that it holds"),
        (lambda content: b"PAR1" + b"x" * 100 + b"PAR1", "is not a readable Parquet file"),
    ],
)
def test_a_damaged_file_is_refused_by_name_in_one_line(damage, message) -> None:
    content = write_table(ledger([row("a")]))
    with pytest.raises(RunFormatError, match=rf"^run/ledger\.parquet {message}") as refused:
        read_table(damage(content), "run/ledger.parquet")
    assert "\n" not in str(refused.value)


def test_every_flipped_bit_of_a_file_is_noticed() -> None:
    content = write_table(pa.table({"value": [float(i) for i in range(20)]}))
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RunFormatError, match=r"^x (is damaged|is not a readable Parquet file)"):
            read_table(bytes(damaged), "x")


def test_text_that_looks_like_a_checksum_is_no_checksum() -> None:
    mark = "checksum-of-this-file".ljust(64, ".")
    table = pa.table({"partwise.sha256": [mark, f"partwise.sha256 {'0' * 64}"]})
    assert read_table(write_table(table), "x").equals(table)


@pytest.mark.parametrize("version", [b"3", b"0", b"x", None])
def test_a_file_of_another_format_is_refused(version) -> None:
    sink = io.BytesIO()
    metadata = None if version is None else {"partwise.format_version": version}
    pq.write_table(ledger([row("a")]).replace_schema_metadata(metadata), sink)
    with pytest.raises(RunFormatError, match=r"^x has format version .*; install a newer"):
        read_table(sink.getvalue(), "x")


def test_reading_starts_no_threads(tmp_path, run_python) -> None:
    """One that still held the file's bytes as the process ended aborted it, now and then."""
    path = tmp_path / "ledger.parquet"
    path.write_bytes(write_table(segment_table(pa.table({"k": ["a"]}), [row("a")])))
    script = (
        "import json, os, sys; from pathlib import Path\n"
        "from partwise.runs.ledger import read_table\n"
        "content = Path(sys.argv[1]).read_bytes()\n"
        "before = len(os.listdir('/proc/self/task')); table = read_table(content, 'ledger')\n"
        "print(json.dumps([table.num_rows, len(os.listdir('/proc/self/task')) - before]))"
    )
    assert run_python(script, path) == [1, 0]
