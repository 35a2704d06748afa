"""The rows of a source, divided among the ranks of a gang: each reads its own, and nobody all.

A share is consecutive rows of the source. Borders stand between two fragments where that keeps the
shares within a tenth of each other, so that no row group is decoded twice; else within a fragment.
When a share is first read, its rows are spooled to the rank's own disk, and mapped from then on:
a boosting library reads its rows three to four times, and Parquet would be decoded each time.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.connector.spooling import map_spooled, write_spooled
from partwise.errors import ColumnError, InputError, SourceError
from partwise.ranks.gathering import gather_tables
from partwise.ranks.protocols import Exchange
from partwise.sources.fragments import Fragment, Selection
from partwise.tables.column_names import columns_there
from partwise.tables.dictionaries import ColumnStorage
from partwise.tables.sorting import groupable

_NEAR_A_BORDER = 0.05
"""Of a share: so far a border may be moved to the end of a fragment."""


class RowsPart(Protocol):
    """A part of the rows that ranks divide; a value that pickles."""

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where that is unknown before they are read."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows, from the first one again at each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedPart:
    """What is selected of a fragment that every rank can read."""

    fragment: Fragment
    selection: Selection

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where the fragment does not say, or a filter decides."""
        return self.fragment.rows if self.selection.passes_all else None

    def __str__(self) -> str:
        return str(self.fragment)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        return self.selection.batches(self.fragment)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFragments:
    """A source as the driver describes it to the ranks: `rank_source` makes it."""

    name: str
    """The gang's name for it, such as "train"."""
    schema: pa.Schema
    """Of the batches of every part."""
    parts: tuple[RowsPart, ...]
    filter_text: str = ""
    """The filter that left rows out, as messages say it; empty: none."""

    def open(self, rank: int, world_size: int, exchange: Exchange, directory: str) -> "DividedRows":
        """Return the rows as a rank reads them.

        `directory` is on this machine's disk, for the rows of this rank.
        """
        return DividedRows(self, rank, world_size, exchange, directory)


class SpooledShare:
    """Consecutive rows of a source, on this machine's disk once they were read: a `Share`."""

    def __init__(
        self,
        reading: "DividedRows",
        start: int,
        stop: int,
        *,
        total_rows: int,
        known: Iterator[pa.RecordBatch] | None = None,
    ) -> None:
        self.schema = reading.schema
        self.rows = stop - start
        self.first_row = start
        self.total_rows = total_rows
        self._reading = reading
        self._known = known
        self._mapped: pa.Table | None = None
        self._path = ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, from the first one again at each call."""
        if self._mapped is None:
            self._mapped = self._spooled()
            # Only now it is known which dictionaries have an order.
            self.schema = self._mapped.schema
        return iter(self._mapped.to_batches())

    def _spooled(self) -> pa.Table:
        start, stop = self.first_row, self.first_row + self.rows
        batches = self._reading.between(start, stop) if self._known is None else self._known
        self._path = self._reading.new_path()
        rows = write_spooled(self._path, batches, self._reading.source_schema)
        self._known = None
        if rows != self.rows:
            raise SourceError(
                f"The rows {self._reading.name!r} changed while the gang read them: {self.rows} "
                f"were counted from row {start} on, and {rows} read. Run again with data at rest."
            )
        return map_spooled(self._path)

    def forget(self) -> None:
        """Remove what was spooled; who maps it can read on."""
        self._mapped = None
        if self._path:
            os.unlink(self._path)


class DividedRows:
    """The rows of a source as one rank reads them: a `RankRows`."""

    def __init__(
        self,
        source: SourceFragments,
        rank: int,
        world_size: int,
        exchange: Exchange,
        directory: str,
    ) -> None:
        self.name = source.name
        self.source_schema = source.schema
        self.schema = ColumnStorage(source.schema).shown_schema
        self._source = source
        self._rank = rank
        self._world_size = world_size
        self._exchange = exchange
        self._directory = directory
        self._counts: Sequence[int] | None = None
        self._shares: dict[tuple[bool, str, bool], SpooledShare] = {}

    def share(self, *, equal: bool = False, group: str = "", whole: bool = False) -> SpooledShare:
        """Divide the rows, and return this rank's; every rank has to call it alike.

        The arguments are those of `RankRows.share`. ColumnError where the values of `group` do not
        ascend.
        """
        asked = (equal, group, whole)
        if asked not in self._shares:
            self._shares[asked] = self._divide(equal, group, whole)
        return self._shares[asked]

    def _divide(self, equal: bool, group: str, whole: bool) -> SpooledShare:
        if equal and group:
            raise InputError(
                f"The rows {self.name!r} cannot be divided equally and by whole groups of "
                f"{group!r} at once: leave out equal= or group=."
            )
        counts = self._count()
        total = sum(counts)
        # Of the rows of all ranks: each of them refuses, and none is left to wait for the others.
        if not total:
            left_out = self._source.filter_text
            raise SourceError(
                f"The rows {self.name!r} are none"
                + (f": the filter {left_out} leaves none, loosen it." if left_out else ".")
            )
        if whole:
            return SpooledShare(self, 0, total, total_rows=total)
        if equal:
            each = total // self._world_size
            if not each:
                raise SourceError(
                    f"The {total} rows {self.name!r} cannot be divided among {self._world_size} "
                    "ranks equally: take fewer workers, or more rows."
                )
            start = self._rank * each
            return SpooledShare(self, start, start + each, total_rows=each * self._world_size)
        start, stop = share_borders(counts, self._world_size)[self._rank : self._rank + 2]
        share = SpooledShare(self, start, stop, total_rows=total)
        return self._with_whole_groups(share, group) if group else share

    def _count(self) -> Sequence[int]:
        """Return the rows of each part; those that nobody knows are counted, each by one rank."""
        if self._counts is None:
            parts = self._source.parts
            counts = np.array([-1 if p.rows is None else p.rows for p in parts], np.int64)
            unknown = np.flatnonzero(counts < 0)
            # All ranks have the same parts: either all of them come to the exchange, or none.
            if len(unknown):
                for place in unknown[self._rank :: self._world_size]:
                    counts[place] = sum(batch.num_rows for batch in parts[place].batches())
                gathered = self._exchange.all_gather(counts.tobytes())
                # A count that only another rank has made is -1 here.
                counts = np.max([np.frombuffer(content, np.int64) for content in gathered], axis=0)
            self._counts = counts.tolist()
        return self._counts

    def between(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Read some rows of the source, by their numbers."""
        first = 0
        for part, rows in zip(self._source.parts, self._count(), strict=True):
            if first < stop and start < first + rows:
                row = first
                for batch in part.batches():
                    before = min(max(start - row, 0), batch.num_rows)
                    behind = max(row + batch.num_rows - stop, 0)
                    if before + behind < batch.num_rows:
                        yield batch.slice(before, batch.num_rows - before - behind)
                    row += batch.num_rows
                    if row >= stop:
                        break
            first += rows

    def new_path(self) -> str:
        """Return a path in this rank's folder that nobody has."""
        return os.path.join(self._directory, f"rows-{secrets.token_hex(8)}")

    def _with_whole_groups(self, share: SpooledShare, group: str) -> SpooledShare:
        """Give each group to the rank that has its first row."""
        if group not in share.schema.names:
            raise ColumnError(
                f"The group {group!r} is missing in the rows {self.name!r}; "
                f"{columns_there(share.schema.names, group)}"
            )
        ends = _group_ends(share, group, self.name)
        gathered = [table for table in gather_tables(self._exchange, ends) if table.num_rows]
        borders = whole_groups(gathered, group, self.name)
        # A rank without rows may begin where another one does.
        mine = borders.get(share.first_row) if share.rows else None
        if mine is None:
            return SpooledShare(self, share.first_row, share.first_row, total_rows=share.total_rows)
        start, stop = mine
        end = share.first_row + share.rows
        if (start, stop) == (share.first_row, end):
            return share
        kept = _rows_from(share.batches(), start - share.first_row)
        moved = SpooledShare(
            self,
            start,
            stop,
            total_rows=share.total_rows,
            known=chain(kept, self.between(end, stop)) if stop > start else iter(()),
        )
        # Read now: the rows that stay come from the file that is removed next.
        moved.batches()
        share.forget()
        return moved


def share_borders(counts: Sequence[int], world_size: int) -> list[int]:
    """Return the rows between which ranks divide: the first row of each, and the row after all.

    Returns:
        Ascending, of length world_size + 1.

    Example:
        >>> share_borders([500, 510, 490, 500], 2)
        [0, 1010, 2000]
        >>> share_borders([1500, 500], 2)
        [0, 1000, 2000]
    """
    ends = np.cumsum([0, *counts])
    total = int(ends[-1])
    borders = [0]
    for rank in range(1, world_size):
        wanted = total * rank // world_size
        nearest = int(ends[np.argmin(np.abs(ends - wanted))])
        is_near = abs(nearest - wanted) <= _NEAR_A_BORDER * total / world_size
        borders.append(nearest if is_near else wanted)
    return [*borders, total]


def _rows_from(batches: Iterator[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if first < batch.num_rows:
            yield batch.slice(first)
        first = max(0, first - batch.num_rows)


def _group_ends(share: SpooledShare, group: str, name: str) -> pa.Table:
    """Return where a share begins, how many rows its first group has, and its outer groups.

    Returns:
        One row with the columns start, stop, head, first and last; none for a share without rows.
    """
    own = share.schema.field(group).type
    # As plain values, since the dictionaries of ranks differ.
    kind = groupable(pa.chunked_array([], own)).type
    if pa.types.is_nested(kind):
        raise ColumnError(
            f"The group {group!r} of the rows {name!r} is {own}: give one of plain values."
        )
    first: pa.Scalar | None = None
    last: pa.Scalar | None = None
    head, in_head, row = 0, True, share.first_row
    for batch in share.batches():
        values = groupable(pa.chunked_array([batch.column(group)]))
        before = values[:1] if last is None else pa.array([last], kind)
        shifted = pa.concat_arrays([before, values[:-1]])
        # Null and NaN compare as false or null.
        ascends = pc.greater_equal(values, shifted).fill_null(False)
        if not pc.all(ascends).as_py():
            place = pc.index(ascends, False).as_py()
            raise ColumnError(
                f"The group {group!r} has to be ascending and never null in all rows {name!r}, so "
                f"that no group is divided; row {row + place} (counted from 0) has "
                f"{values[place].as_py()!r} behind {shifted[place].as_py()!r}. Sort the rows by it."
            )
        first = values[0] if first is None else first
        last = values[-1]
        if in_head:
            same = pc.equal(values, first)
            in_head = bool(pc.all(same).as_py())
            head += len(values) if in_head else pc.index(same, False).as_py()
        row += len(values)
    numbers = {"start": [share.first_row], "stop": [row], "head": [head]}
    found = {name: pa.array(each, pa.int64()) for name, each in numbers.items()}
    ends = {"first": pa.array([first], kind), "last": pa.array([last], kind)}
    return pa.table({**found, **ends}).slice(0 if share.rows else 1)


def whole_groups(ends: Sequence[pa.Table], group: str, name: str) -> dict[int, tuple[int, int]]:
    """Move the borders of shares so that each group is whole, with the rank of its first row.

    Returns:
        The first row and the one after the last of each share, by its first row before.

    Raises:
        ColumnError: A share begins with a lesser value than the one before ends with.
    """
    found = [table.to_pylist()[0] for table in ends]
    borders: dict[int, tuple[int, int]] = {}
    stop = found[-1]["stop"]
    # From behind, since a share ends where the next one now begins.
    for place in reversed(range(len(found))):
        mine = found[place]
        start = mine["start"]
        before = found[place - 1]["last"] if place else None
        if place and before > mine["first"]:
            raise ColumnError(
                f"The group {group!r} has to be ascending in all rows {name!r}, so that no group "
                f"is divided; row {start} (counted from 0) has {mine['first']!r} behind "
                f"{before!r}. Sort the rows by it."
            )
        if place and before == mine["first"]:
            start += mine["head"]
        if start == mine["stop"]:
            # All of it belongs to a group that began before, and so may what is behind it.
            start = stop
        borders[mine["start"]] = (start, stop)
        stop = start
    return borders
