"""What every source keeps to. Inherit it to check your own.

Example:
    class TestLanceSource(SourceContract):
        def data(self, table, folder):
            lance.write_dataset(table, folder / "x.lance")
            return LanceRows(folder / "x.lance")
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from partwise.errors import SourceError
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source

TABLE = pa.table(
    {
        "number": pa.array([*range(1, 60), None], pa.int64()),
        "share": pa.array([None, *(i / 8 for i in range(59))], pa.float64()),
        "text": [None if i == 7 else f"text-{i % 5}" for i in range(60)],
        "flag": [None if i == 9 else i % 3 == 0 for i in range(60)],
    }
)
# By another process, as workers read: what a source has only in this one is missing there.
READ = """
import pickle, sys
fragments, selection, fd = *pickle.load(sys.stdin.buffer), sys.stdout.buffer
import pyarrow as pa
with pa.ipc.new_stream(fd, selection.schema) as out:
    for fragment in fragments:
        for batch in selection.batches(fragment):
            out.write_batch(batch)
"""


class SourceContract:
    """Define `data`, which makes of the table what `open_source` takes."""

    once: ClassVar[bool] = False
    """Whether reading consumes it."""
    cluster: ClassVar[bool] = False
    """Whether fragments are read on a cluster's workers."""

    def data(self, table: pa.Table, folder: Path) -> Any:
        """Make what `open_source` takes of the table; the folder is empty."""
        raise NotImplementedError

    def expected(self, table: pa.Table) -> pa.Table:
        """What is read of the table; formats that lose something say so here."""
        return table

    def opened(self, folder: Path, **options: Any) -> Source:
        """Open the table as a source; the options are those of `open_source`."""
        folder.mkdir(exist_ok=True)
        return open_source(self.data(TABLE, folder), **options)

    def read(self, source: Source) -> list[dict[str, Any]]:
        """Read all rows, each batch with the schema that was promised."""
        batches = list(source.batches())
        assert all(batch.schema.equals(source.schema) for batch in batches)
        found: list[dict[str, Any]] = pa.Table.from_batches(batches, source.schema).to_pylist()
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are expected."""
        expected: list[dict[str, Any]] = self.expected(TABLE).to_pylist()
        return expected

    def test_all_rows_come_in_their_order_with_the_schema_promised(self, tmp_path: Path) -> None:
        source = self.opened(tmp_path / "x")
        assert source.schema.names == TABLE.column_names
        assert self.read(source) == self.rows()

    def test_it_reads_the_same_again_or_says_that_it_cannot(self, tmp_path: Path) -> None:
        source = self.opened(tmp_path / "x")
        first = self.read(source)
        if self.once:
            with pytest.raises(SourceError, match="was read already"):
                self.read(source)
        else:
            assert self.read(source) == first

    def test_its_fragments_are_its_rows(self, tmp_path: Path) -> None:
        source = self.opened(tmp_path / "x")
        found = []
        for fragment in source.fragments():
            batches = list(source.selection.batches(fragment))
            count = sum(batch.num_rows for batch in batches)
            assert fragment.rows in (None, count)
            assert fragment.size_bytes >= 0
            assert fragment.known == {}
            found += [row for batch in batches for row in batch.to_pylist()]
        assert found == self.rows()

    def test_what_it_says_of_itself_is_true(self, tmp_path: Path) -> None:
        data = self.data(TABLE, tmp_path)
        source = open_source(data)
        about = source.description()
        assert about.rows in (None, TABLE.num_rows)
        assert source.description() == about
        assert source.buckets() == frozenset()
        if not self.once:
            again = open_source(data).description().fingerprint
            assert (again == about.fingerprint) is about.recurs
        assert about.size_bytes >= 0

    def test_fragments_are_read_where_they_say(self, tmp_path: Path) -> None:
        source = self.opened(tmp_path / "x", columns=["text", "number"])
        fragments = source.fragments()
        places = {fragment.place for fragment in fragments}
        assert places == ({"cluster"} if self.cluster else places)
        if places - {"anywhere", "disk"}:
            return
        sent = pickle.dumps((fragments, source.selection))
        done = subprocess.run([sys.executable, "-c", READ], input=sent, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        found = pa.ipc.open_stream(done.stdout).read_all()
        assert found.to_pylist() == self.expected(TABLE).select(["text", "number"]).to_pylist()

    @pytest.mark.parametrize("columns", [["text"], ["share", "number"], ["flag"]])
    def test_columns_are_chosen_and_ordered(self, tmp_path: Path, columns: list[str]) -> None:
        source = self.opened(tmp_path / "x", columns=columns)
        assert source.schema.names == columns
        assert self.read(source) == self.expected(TABLE).select(columns).to_pylist()

    @pytest.mark.parametrize(
        ("filter_", "passes"),
        [
            ([("number", ">", 50)], lambda row: row["number"] is not None and row["number"] > 50),
            ([("text", "=", "text-3")], lambda row: row["text"] == "text-3"),
            ([("number", "not in", [1, 2])], lambda row: row["number"] not in (1, 2)),
            (
                [[("number", "<", 5), ("share", ">=", 0.25)], [("number", "in", [7])]],
                lambda row: row["number"] in (4, 7),
            ),
            ([("flag", "=", True)], lambda row: row["flag"] is True),
        ],
        ids=["more", "text", "not-in", "or", "flag"],
    )
    def test_filters_keep_what_passes_also_by_columns_that_are_not_read(
        self, tmp_path: Path, filter_: Any, passes: Callable[[dict[str, Any]], bool]
    ) -> None:
        source = self.opened(tmp_path / "x", filter=filter_, columns=["share"])
        expected = [{"share": row["share"]} for row in self.rows() if passes(row)]
        assert 0 < len(expected) < TABLE.num_rows
        assert self.read(source) == expected
