"""The categories of each partition of a sorted shard, and its codes into them.

Part files have the codes of dictionaries of the whole source. When a shard is sorted, the codes of
each partition's own categories are written beside these, so that a partition of any size is read
from the mapped file without a copy.
"""

import bisect
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.shuffle.sort import Piece
from partwise.tables.categories import category_order
from partwise.tables.dictionaries import read_one

_SUFFIX = ".categories"
FEWEST_MARKS = 65_536


def dictionary_columns(schema: pa.Schema) -> list[int]:
    """Return the numbers of the columns of a dictionary type."""
    return [index for index, kind in enumerate(schema.types) if pa.types.is_dictionary(kind)]


def with_own_codes(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a sorted shard's file: the rows, and then own codes without a name."""
    return pa.schema(
        [*schema, *(pa.field("", pa.int32()) for _ in dictionary_columns(schema))],
        metadata=schema.metadata,
    )


class CategoriesWriter:
    """Finds the categories of the partitions of a shard, piece by piece, in the order of keys.

    Args:
        dictionaries: A batch of no rows with the dictionaries that stored codes are of.
    """

    def __init__(self, dictionaries: pa.RecordBatch) -> None:
        self._dictionaries = dictionaries
        self.columns = dictionary_columns(dictionaries.schema)
        self._orders = [
            category_order(
                dictionaries.column(index).dictionary, dictionaries.schema.field(index).type
            )
            for index in self.columns
        ]
        self._places: list[list[np.ndarray]] = [[] for _ in self.columns]
        self._counts: list[list[np.ndarray]] = [[] for _ in self.columns]

    def take(self, piece: Piece) -> list["OwnCodes"]:
        """Look at the rows of the next piece; returns a value for each dictionary column."""
        found = []
        for number, (index, order) in enumerate(zip(self.columns, self._orders, strict=True)):
            own = OwnCodes(piece, index, order)
            self._places[number].append(own.places)
            self._counts[number].append(own.counts)
            found.append(own)
        return found

    def write(self, path: str | os.PathLike[str], offsets: np.ndarray) -> None:
        """Write the categories of all partitions, whose rows begin at `offsets`, beside a file."""
        if not self.columns:
            return
        lists: list[Any] = [pa.array(offsets[:-1])]
        for places, counts in zip(self._places, self._counts, strict=True):
            ends = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
            lists.append(
                pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(places)))
            )
        table = pa.RecordBatch.from_arrays(lists, [str(number) for number in range(len(lists))])
        with pa.OSFile(f"{os.fspath(path)}{_SUFFIX}", "wb") as file:
            for batch in (self._dictionaries, table):
                with pa.ipc.new_stream(file, batch.schema) as stream:
                    stream.write_batch(batch)


class OwnCodes:
    """The codes of one dictionary column of a piece, partition by partition.

    A key and a value are a pair, with one number: those that occur, in their order, are the
    categories of one partition after the other.

    Args:
        piece: The rows.
        index: The number of the column.
        order: The places of the dictionary's values, in the order of categories.
    """

    def __init__(self, piece: Piece, index: int, order: np.ndarray) -> None:
        self._first_key = piece.keys.start
        self._width = max(1, len(order))
        self._ranks = np.zeros(self._width, np.int64)
        self._ranks[order] = np.arange(len(order))
        keys = len(piece.keys)
        # As many marks as pairs are possible, unless there are far fewer rows than that.
        self._is_narrow = keys * self._width <= 4 * len(piece.codes) + FEWEST_MARKS
        seen = np.zeros(keys * self._width if self._is_narrow else 0, bool)
        pairs = np.empty(0, np.int64)
        start = 0
        for chunk in piece.rows.column(index).chunks:
            rows = piece.codes[start : start + len(chunk)]
            start += len(chunk)
            found = self._pairs(chunk, rows)
            if chunk.null_count:
                found = found[chunk.is_valid().to_numpy(zero_copy_only=False)]
            if self._is_narrow:
                seen[found] = True
            else:
                pairs = np.union1d(pairs, found)
        if self._is_narrow:
            pairs = np.flatnonzero(seen)
            self._numbers = np.cumsum(seen) - 1
        self._found = pairs
        self.places = order[pairs % self._width].astype(np.int32)
        """int32: the places of each partition's categories in the dictionary, one after the
        other."""
        self.counts = np.bincount(pairs // self._width, minlength=keys)
        """int64, shape (partitions,): how many each has."""
        self._starts = np.cumsum(self.counts) - self.counts

    def _pairs(self, codes: pa.Array, keys: np.ndarray) -> np.ndarray:
        filled = codes.fill_null(0) if codes.null_count else codes
        ranks = self._ranks[filled.to_numpy(zero_copy_only=False)]
        pairs: np.ndarray = (keys.astype(np.int64) - self._first_key) * self._width + ranks
        return pairs

    def own(self, codes: pa.Array, keys: np.ndarray) -> pa.Array:
        """Return codes into the categories of partitions.

        Args:
            codes: int32, codes into the dictionary of some rows of the piece.
            keys: The numbers of the keys of these rows.
        """
        pairs = self._pairs(codes, keys)
        numbers = self._numbers[pairs] if self._is_narrow else np.searchsorted(self._found, pairs)
        own = (numbers - self._starts[keys.astype(np.int64) - self._first_key]).astype(np.int32)
        mask = codes.is_null().to_numpy(zero_copy_only=False) if codes.null_count else None
        return pa.array(own, pa.int32(), mask=mask)


class CategoriesReader:
    """Reads what `CategoriesWriter` wrote beside the file of a sorted shard.

    Args:
        path: That file's.
        schema: Of the shard's rows.
    """

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema) -> None:
        with pa.memory_map(f"{os.fspath(path)}{_SUFFIX}") as source:
            dictionaries, table = read_one(source), read_one(source)
        self._columns = dictionary_columns(schema)
        self._ordered = [schema.field(index).type.ordered for index in self._columns]
        self._values = [dictionaries.column(index).dictionary for index in self._columns]
        self._first_rows = table.column(0).to_numpy().tolist()
        self._lists = table.columns[1:]

    def of(self, row: int) -> list[pa.Array]:
        """Return the categories of the partition that a row is of, for each dictionary column."""
        partition = bisect.bisect_right(self._first_rows, row) - 1
        return [
            values.take(lists[partition].values)
            for values, lists in zip(self._values, self._lists, strict=True)
        ]

    def encode(
        self, batch: pa.RecordBatch, schema: pa.Schema, categories: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        """Return rows of one partition of the file with the categories of that partition.

        Args:
            batch: Rows of the file.
            schema: Of the shard's rows.
            categories: What `of` returned for one of these rows.
        """
        arrays: list[Any] = batch.columns[: len(schema)]
        own = batch.columns[len(schema) :]
        for place, index in enumerate(self._columns):
            arrays[index] = pa.DictionaryArray.from_arrays(
                own[place], categories[place], ordered=self._ordered[place], safe=False
            )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
