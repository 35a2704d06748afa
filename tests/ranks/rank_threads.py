"""Ranks as threads of this process, and sources made of tables: quick, for many generated cases."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.errors import PeerLostError
from partwise.ranks.context import RankContext
from partwise.ranks.rows import SourceFragments


class ThreadExchange:
    """What ranks share that are threads."""

    def __init__(self, world_size: int) -> None:
        self._contents = [b""] * world_size
        self.barrier = threading.Barrier(world_size, timeout=60)

    def gather(self, rank: int, content: bytes) -> list[bytes]:
        self._contents[rank] = content
        self.barrier.wait()
        gathered = list(self._contents)
        self.barrier.wait()
        return gathered


@dataclass(frozen=True)
class _RankEnd:
    shared: ThreadExchange
    rank: int

    def all_gather(self, content: bytes) -> list[bytes]:
        return self.shared.gather(self.rank, content)


@dataclass(frozen=True)
class TablePart:
    """A part of rows: a table that says how many rows it has, or does not."""

    table: pa.Table
    counted: bool = True
    batch_rows: int = 1000

    @property
    def rows(self) -> int | None:
        return self.table.num_rows if self.counted else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.table.to_batches(max_chunksize=self.batch_rows))


def fragments_of(
    table: pa.Table,
    cuts: Sequence[int] = (),
    *,
    counted: bool = True,
    batch_rows: int = 1000,
    name: str = "train",
) -> SourceFragments:
    """Describe a table to ranks, in parts that end at the rows `cuts`."""
    borders = [0, *cuts, table.num_rows]
    pieces = [table.slice(a, b - a) for a, b in pairwise(borders)]
    parts = tuple(TablePart(piece, counted, batch_rows) for piece in pieces)
    return SourceFragments(name=name, schema=table.schema, parts=parts)


@dataclass(frozen=True)
class FixedShare:
    """The rows of a table that one rank was given: a `Share`."""

    table: pa.Table
    first_row: int
    total_rows: int

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.table.to_batches(max_chunksize=1000))


@dataclass(frozen=True)
class CutRows:
    """A table whose rows ranks get as a test says: the rows up to each of `cuts`, and the rest.

    Each rank has its own dictionaries, as one that read its own files has.
    """

    table: pa.Table
    cuts: tuple[int, ...]

    def open(self, rank: int, world_size: int, exchange: Any, directory: str) -> "CutRank":
        assert len(self.cuts) == world_size - 1
        return CutRank(self, rank)


@dataclass(frozen=True)
class CutRank:
    """What one rank sees of `CutRows`: a `RankRows`."""

    source: CutRows
    rank: int

    @property
    def schema(self) -> pa.Schema:
        return self.source.table.schema

    def share(self, *, equal: bool = False, group: str = "", whole: bool = False) -> FixedShare:
        assert not equal
        assert not group
        table = self.source.table
        borders = [0, *self.source.cuts, table.num_rows]
        start, stop = (0, table.num_rows) if whole else borders[self.rank : self.rank + 2]
        own = table.slice(start, stop - start)
        for place, field in enumerate(own.schema):
            if pa.types.is_dictionary(field.type):
                values = own.column(place).cast(field.type.value_type)
                coded = values.dictionary_encode().unify_dictionaries().cast(field.type)
                own = own.set_column(place, field, coded)
        return FixedShare(own, start, table.num_rows)


def run_rank_threads(
    world_size: int,
    function: Callable[[RankContext], Any],
    sources: Mapping[str, SourceFragments | CutRows],
    folder: Path,
    **fields: Any,
) -> list[Any]:
    """Call a function once for each rank, each in a thread; returns what each returned.

    Raises:
        Exception: What the first rank raised that failed by itself.
    """
    shared = ThreadExchange(world_size)

    def run(rank: int) -> Any:
        exchange = _RankEnd(shared, rank)
        own = {n: s.open(rank, world_size, exchange, str(folder)) for n, s in sources.items()}
        context = RankContext(
            rank=rank, world_size=world_size, exchange=exchange, sources=own, **fields
        )
        try:
            return function(context)
        except BaseException:
            shared.barrier.abort()
            raise

    with ThreadPoolExecutor(world_size) as pool:
        futures = [pool.submit(run, rank) for rank in range(world_size)]
        errors = [future.exception() for future in futures]
    # What the others raise then says nothing.
    errors.sort(key=lambda error: isinstance(error, PeerLostError))
    for error in errors:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):
            error.add_note(f"The ranks raised {errors!r}.")
            raise error
    return [future.result() for future in futures]
