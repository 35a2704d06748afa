"""Segments: what a worker commits of a shard at one time, and in which order."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.engine.worker import segments as segments_module
from partwise.engine.worker.segments import SegmentWriter
from partwise.errors import RunBusyError, StoreError
from partwise.runs.contents import Generations
from partwise.runs.ledger import LedgerRow, read_table

KEYS = pa.table({"key": ["a", "b", "c"]})


@dataclass
class FakeStore:
    """Keeps what is written, in order; refuses what it is told to."""

    written: dict[str, bytes] = field(default_factory=dict)
    refuses: str = "nothing"

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def create(self, path: str, content: bytes) -> None:
        if self.refuses in path:
            raise StoreError(f"{path} is refused")
        self.written[path.removeprefix("runs/run/")] = content

    def table(self, path: str) -> pa.Table:
        return read_table(self.written[path], path)


@pytest.fixture
def store(monkeypatch) -> FakeStore:
    none = Generations(begun=1, ended=())
    monkeypatch.setattr(segments_module, "list_generations", lambda store, run_id, is_signed: none)
    return FakeStore()


def make_writer(store: FakeStore, **options: Any) -> SegmentWriter:
    execution: Any = SimpleNamespace(
        store=store,
        run_id="run",
        kind="map",
        generation=1,
        options=ExecutionOptions(**options),
        is_signed=False,
    )
    return SegmentWriter(execution, 0, KEYS)


@pytest.fixture
def writer(store) -> SegmentWriter:
    return make_writer(store)


def row(name: str) -> LedgerRow:
    return LedgerRow(partition_id=name, shard=0, generation=1, status="DONE", rows=1)


def folders(store: FakeStore) -> list[str]:
    return [path.partition("/")[0] for path in store.written]


def test_the_ledger_is_written_last(writer, store) -> None:
    writer.add_artifact("a", "note.txt", b"x")
    writer.add(0, row("a"), pa.table({"y": [1]}))
    writer.commit()
    assert folders(store) == ["bundles", "outputs", "ledger"]


@pytest.mark.parametrize("refuses", ["bundles", "outputs"])
def test_where_a_file_is_refused_no_row_counts(writer, store, refuses) -> None:
    store.refuses = refuses
    writer.add_artifact("a", "note.txt", b"x")
    writer.add(0, row("a"), pa.table({"y": [1]}))
    with pytest.raises(StoreError, match="refused"):
        writer.commit()
    assert "ledger" not in folders(store)


def test_rows_say_where_their_output_stands(writer, store) -> None:
    writer.add(2, row("c"), pa.table({"y": [1, 2]}))
    writer.add(0, row("a"))
    writer.add(1, row("b"), pa.table({"y": [3]}))
    writer.commit()
    (path,) = (path for path in store.written if path.startswith("ledger"))
    rows = store.table(path).to_pylist()
    assert [one["key.key"] for one in rows] == ["c", "a", "b"]
    (output,) = {one["rows_file"] for one in rows} - {None}
    assert store.table(output)["y"].to_pylist() == [1, 2, 3]
    assert [(one["rows_offset"], one["rows_count"], one["rows_in_file"]) for one in rows] == [
        (0, 2, 3),
        (0, 0, 0),
        (2, 1, 3),
    ]


def test_each_schema_has_a_file_of_its_own(writer, store) -> None:
    writer.add(0, row("a"), pa.table({"y": [1]}))
    writer.add(1, row("b"), pa.table({"z": ["text"]}))
    writer.commit()
    assert folders(store) == ["outputs", "outputs", "ledger"]


def test_a_second_segment_has_names_of_its_own(writer, store) -> None:
    for index, name in enumerate("ab"):
        writer.add(index, row(name))
        writer.commit()
    assert folders(store) == ["ledger", "ledger"]
    writer.commit()
    assert len(store.written) == 2, "an empty segment is not written"


def test_a_segment_is_due_after_its_time_or_when_it_is_large(store, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(segments_module.time, "monotonic", lambda: now[0])
    writer = make_writer(store, first_segment_s=10.0)
    writer.add(0, row("a"))
    assert not writer.is_due
    now[0] = 10.0
    assert writer.is_due
    writer.commit()
    now[0] = 1000.0
    assert not writer.is_due, "it holds nothing"
    now[0] = 10.0
    writer.add(0, row("b"))
    # The next may take twice as long.
    now[0] = 29.0
    assert not writer.is_due
    now[0] = 30.0
    assert writer.is_due
    writer.commit()
    monkeypatch.setattr(segments_module, "LARGEST_SEGMENT_BYTES", 100)
    writer.add(0, row("a"), pa.table({"y": list(range(50))}))
    assert writer.is_due


def test_an_execution_that_the_run_ended_without_writes_nothing_more(
    writer, store, monkeypatch
) -> None:
    ended = Generations(begun=1, ended=(1,))
    monkeypatch.setattr(segments_module, "list_generations", lambda store, run_id, is_signed: ended)
    writer.add(0, row("a"))
    with pytest.raises(RunBusyError, match="ended without this execution of its shard 0"):
        writer.commit()
    assert not store.written
