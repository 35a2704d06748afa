"""Frames that are computed as they are read: DuckDB, polars, pyarrow datasets and Arrow streams.

None of them is copied into memory as a whole. What they give can differ at each reading, so that
their identity is never that of an earlier reading.
"""

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError, PartwiseError, SourceError
from partwise.redaction import without_secrets
from partwise.sources.fragments import Fragment, LocalFragment, OpaqueRows
from partwise.sources.frames.tables import table_of
from partwise.sources.sql.databases import quoted_name
from partwise.tables.column_names import check_unique_names
from partwise.tables.filters import Conditions, filter_expression
from partwise.tables.frames import check_polars_types

_BATCH_ROWS = 131_072
_PIECES_AHEAD = 2
_LAZY_FRAME = "polars LazyFrame"
_FROM_DUCKDB = {
    "HUGEINT": "DECIMAL(38, 0)",
    "UHUGEINT": "DECIMAL(38, 0)",
    "BIGNUM": "VARCHAR",
    "VARINT": "VARCHAR",
    "BIT": "VARCHAR",
    "TIME WITH TIME ZONE": "VARCHAR",
}
"""What DuckDB is to cast columns to of which it gives Arrow other values than they have: integers
of 128 bits with a digit too many (and the largest as -1), times of the day without their zone, and
bits and big numbers as they are stored. An integer of 39 digits is refused by the cast."""
_NESTED = ("list", "array", "struct", "map", "union")


class StreamRows(OpaqueRows):
    """Rows that are computed again at each reading, in this process.

    Args:
        schema: Of the rows.
        parts: Called with the names of columns and a filter, for a list of functions that each
            read a part of the rows.
    """

    def __init__(
        self,
        schema: pa.Schema,
        parts: Callable[
            [Sequence[str], Conditions | None], list[Callable[[], Iterator[pa.RecordBatch]]]
        ],
    ) -> None:
        self.schema = schema
        self._parts = parts

    def fragments(
        self,
        names: Sequence[str],
        conditions: Conditions | None,
        keys: Sequence[str] = (),  # noqa: ARG002 (nothing is known of them)
    ) -> list[Fragment]:
        """The parts, which are read in this process."""
        # Of no columns some libraries give no rows.
        parts = self._parts(list(names) or self.schema.names[:1], conditions)
        return [LocalFragment(stream=partial(_selected, part, names)) for part in parts]


def _selected(
    part: Callable[[], Iterator[pa.RecordBatch]], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    return (batch.select(names) for batch in part())


def stream_rows(data: Any) -> StreamRows | None:
    """The rows of a DuckDB relation, a polars LazyFrame, a pyarrow dataset, or an Arrow stream."""
    duckdb, polars = sys.modules.get("duckdb"), sys.modules.get("polars")
    datasets = sys.modules.get("pyarrow.dataset")
    if duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation):
        return _duckdb_rows(data)
    if polars is not None and isinstance(data, polars.LazyFrame):
        return _polars_rows(data)
    if datasets is not None and isinstance(data, datasets.Dataset):
        return _dataset_rows(data)
    frames = [lib.DataFrame for lib in (polars, sys.modules.get("pandas")) if lib is not None]
    in_memory = (pa.Table, pa.RecordBatch, *frames)
    if isinstance(data, in_memory) or not hasattr(data, "__arrow_c_stream__"):
        return None
    stream = _Stream(data)
    return StreamRows(stream.schema, stream.parts)


def frame_table(data: Any) -> pa.Table:
    """Return a frame of a library that speaks Arrow as a table, with what a source gives of it."""
    rows = stream_rows(data)
    if rows is None:
        return table_of(data)
    batches = [
        batch
        for fragment in rows.fragments(rows.schema.names, None)
        for batch in fragment.batches()
    ]
    return pa.Table.from_batches(batches, schema=rows.schema)


def _reading(what: str, read: Callable[[], Any]) -> Any:
    """Call something of a library whose errors are of many classes."""
    try:
        return read()
    except PartwiseError:
        raise
    except Exception as exc:
        raise _unreadable(what, exc) from exc


def _unreadable(what: str, cause: BaseException) -> SourceError:
    # What follows is a traceback.
    words = " ".join(str(cause).split()).partition(" Detail: Python exception")[0]
    reason = without_secrets(words).rstrip(".")[:300]
    return SourceError(
        f"The {what} cannot be read: {type(cause).__name__}: {reason}. See that its own "
        "library computes it, or give a table."
    )


def _each(what: str, open_batches: Callable[[], Any]) -> Iterator[Any]:
    batches = _reading(what, lambda: iter(open_batches()))
    end = object()
    while (batch := _reading(what, lambda: next(batches, end))) is not end:
        yield batch


def _duckdb_rows(relation: Any) -> StreamRows:
    what = "DuckDB relation"

    def parts(names: Sequence[str], _: Conditions | None) -> list[Any]:
        chosen = ", ".join(map(quoted_name, names))
        return [lambda: _each(what, lambda: relation.project(chosen).to_arrow_reader(_BATCH_ROWS))]

    check_unique_names(relation.columns)
    relation = relation.project(", ".join(map(_duckdb_column, relation.columns, relation.types)))
    empty = _reading(what, lambda: relation.limit(0).to_arrow_table())
    return StreamRows(empty.schema, parts)


def _duckdb_column(name: str, kind: Any) -> str:
    """Return the expression of a column, in a type of which DuckDB gives Arrow the values."""
    word = _FROM_DUCKDB.get(str(kind))
    if word is None and _holds_others(kind):
        raise ColumnError(
            f"Column {name!r} of the DuckDB relation is of type {kind}, of which Arrow gets other "
            f"values than it has: cast it, such as CAST({quoted_name(name)} AS VARCHAR)."
        )
    quoted = quoted_name(name)
    return quoted if word is None else f"CAST({quoted} AS {word}) AS {quoted}"


def _holds_others(kind: Any) -> bool:
    """Whether DuckDB gives Arrow other values than those of a type, or of one within it."""
    if kind.id not in _NESTED:
        return str(kind) in _FROM_DUCKDB
    return any(_holds_others(child) for _, child in kind.children if not isinstance(child, int))


def _polars_rows(frame: Any) -> StreamRows:
    import polars

    def parts(names: Sequence[str], _: Conditions | None) -> list[Any]:
        def stream() -> Iterator[pa.RecordBatch]:
            for piece in _polars_pieces(frame.select(polars.selectors.by_name(*names))):
                yield from pa.table(piece).to_batches()

        return [stream]

    kinds = _reading(_LAZY_FRAME, frame.collect_schema)
    check_polars_types(kinds)
    schema = pa.table(polars.DataFrame(schema=kinds)).schema
    return StreamRows(schema, parts)


def _polars_pieces(lazy: Any) -> Iterator[Any]:
    """Compute a LazyFrame in a thread that is never more than a few pieces ahead.

    `LazyFrame.collect_batches` would do the same, but takes a panic of the engine for the end of
    the rows (polars 2.1).
    """
    handed: queue.Queue[Any] = queue.Queue(maxsize=_PIECES_AHEAD)
    stopped = threading.Event()

    def hand_over(piece: Any) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                # With a limit, so that it sees when nobody reads any more.
                handed.put(piece, timeout=0.1)
                return False
        return True

    def compute() -> None:
        end: BaseException | None = None
        try:
            lazy.sink_batches(hand_over, chunk_size=_BATCH_ROWS)
        except BaseException as exc:
            end = exc
        hand_over(end)

    thread = threading.Thread(target=compute, name="partwise-polars", daemon=True)
    thread.start()
    try:
        while (piece := handed.get()) is not None:
            if isinstance(piece, BaseException):
                raise _unreadable(_LAZY_FRAME, piece) from piece
            yield piece
    finally:
        stopped.set()
        thread.join()


def _dataset_rows(dataset: Any) -> StreamRows:
    what = "pyarrow dataset"

    def parts(names: Sequence[str], conditions: Conditions | None) -> list[Any]:
        expression = filter_expression(conditions, dataset.schema) if conditions else None

        def reader(fragment: Any) -> Callable[[], Iterator[pa.RecordBatch]]:
            # The scanner's own read-ahead takes several GB of large row groups.
            scanner = lambda: fragment.scanner(  # noqa: E731
                schema=dataset.schema,
                columns=list(names),
                filter=expression,
                batch_size=_BATCH_ROWS,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
            ).to_batches()
            return lambda: _each(what, scanner)

        fragments = _reading(what, lambda: list(dataset.get_fragments(filter=expression)))
        return [reader(fragment) for fragment in fragments]

    return StreamRows(dataset.schema, parts)


class _Stream:
    """An object that gives Arrow streams: one, which reading consumes, or a new one each time."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._what = type(data).__name__
        self._once = isinstance(data, pa.RecordBatchReader) or hasattr(data, "__next__")
        self._reader = _reading(self._what, lambda: pa.RecordBatchReader.from_stream(data))
        self._is_first = True
        self._rows: int | None = None
        self.schema = self._reader.schema

    def parts(self, _names: Sequence[str], _conditions: Conditions | None) -> list[Any]:
        """The stream as one part."""
        return [self._read]

    def _read(self) -> Iterator[pa.RecordBatch]:
        reader = self._next_reader()
        rows = 0
        for batch in _each(self._what, lambda: reader):
            rows += batch.num_rows
            yield batch
        if self._rows is None:
            self._rows = rows
        # A stream that reading consumes may be given out once more, with no rows.
        elif rows != self._rows:
            raise self._consumed()

    def _next_reader(self) -> pa.RecordBatchReader:
        if self._is_first:
            self._is_first = False
            return self._reader
        if self._once:
            raise self._consumed()
        return _reading(self._what, lambda: pa.RecordBatchReader.from_stream(self._data))

    def _consumed(self) -> SourceError:
        return SourceError(
            f"The {self._what} was read already, and its rows are gone: give a table, or a new "
            "stream."
        )
