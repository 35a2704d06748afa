"""Ranks as threads of this process, and sources made of tables: quick, for many generated cases."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.connector.rank_context import RankContext
from partwise.connector.rank_rows import SourceFragments


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


def run_rank_threads(
    world_size: int,
    function: Callable[[RankContext], Any],
    sources: Mapping[str, SourceFragments],
    folder: Path,
    **fields: Any,
) -> list[Any]:
    """Call a function once for each rank, each in a thread; returns what each returned.

    Raises:
        Exception: What the first rank that failed raised.
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
    for error in errors:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [future.result() for future in futures]
