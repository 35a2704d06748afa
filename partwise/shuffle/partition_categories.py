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
MARKS_PER_ROW = 8


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

    `dictionaries` is a batch of no rows with the dictionaries that stored codes are of.
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
    categories of one partition after the other. `order` has the places of the dictionary's values,
    in the order of categories.
    """

    def __init__(self, piece: Piece, index: int, order: np.ndarray) -> None:
        width = max(1, len(order))
        self._ranks = np.zeros(width, np.int64)
        self._ranks[order] = np.arange(len(order))
        column = piece.rows.column(index)
        self._own: np.ndarray | None = None
        """int32, shape (rows,); None for a piece of one key, which may be larger than memory."""
        if len(piece.keys) == 1:
            # Chunk by chunk: marks for each value are all that has to be in memory.
            seen = np.zeros(width, bool)
            for chunk in column.chunks:
                seen[self._ranks_of(chunk.drop_null())] = True
            pairs = np.flatnonzero(seen)
            self._numbers = np.cumsum(seen, dtype=np.int32) - 1
        else:
            # Wide before it is multiplied: codes have 16 or 32 bits.
            keys = piece.codes.astype(np.int64) - piece.keys.start
            firsts = keys * width
            every = firsts + np.concatenate([self._ranks_of(chunk) for chunk in column.chunks])
            valid = np.ones(len(every), bool)
            if column.null_count:
                valid = column.is_valid().to_numpy()
            pairs, numbers = _numbered(every, valid, len(piece.keys) * width)
        self.places = order[pairs % width].astype(np.int32)
        """int32: the places of each partition's categories in the dictionary, one after the
        other."""
        self.counts = np.bincount(pairs // width, minlength=len(piece.keys))
        """int64, shape (partitions,): how many each has."""
        if len(piece.keys) > 1:
            starts = np.cumsum(self.counts) - self.counts
            self._own = (numbers - starts[keys]).astype(np.int32)

    def _ranks_of(self, codes: pa.Array) -> np.ndarray:
        filled = codes.fill_null(0) if codes.null_count else codes
        ranks: np.ndarray = self._ranks[filled.to_numpy(zero_copy_only=False)]
        return ranks

    def of(self, codes: pa.Array, places: np.ndarray) -> pa.Array:
        """Return codes into the categories of partitions.

        `codes`, int32, are into the dictionary of some rows of the piece, which stand at `places`.
        """
        own = self._numbers[self._ranks_of(codes)] if self._own is None else self._own[places]
        mask = codes.is_null().to_numpy(zero_copy_only=False) if codes.null_count else None
        return pa.array(own, pa.int32(), mask=mask)


# By marks or a hash, and not by a sort of the pairs: with one, to sort a shard of three dictionary
# columns took fifteen times as long as without them.
def _numbered(pairs: np.ndarray, valid: np.ndarray, possible: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct pairs in their order.

    They come back sorted, with the number of each row's. `pairs` are int64, at least 0; only
    `valid` ones count; `possible`: how many distinct ones there may be.
    """
    # As many marks as pairs are possible, unless there are far fewer rows than that.
    if possible <= MARKS_PER_ROW * len(pairs):
        seen = np.zeros(possible, bool)
        seen[pairs[valid]] = True
        return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - 1)[pairs]
    encoded = pa.array(pairs, mask=~valid).dictionary_encode()
    found = encoded.dictionary.to_numpy()
    order = np.argsort(found)
    ranks = np.zeros(max(1, len(found)), np.int64)
    ranks[order] = np.arange(len(found))
    return found[order], ranks[encoded.indices.fill_null(0).to_numpy()]


class CategoriesReader:
    """Reads what `CategoriesWriter` wrote beside the file of a sorted shard."""

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema) -> None:
        with pa.memory_map(f"{os.fspath(path)}{_SUFFIX}") as source:
            dictionaries, table = read_one(source), read_one(source)
        self._columns = dictionary_columns(schema)
        self._ordered = [schema.field(index).type.ordered for index in self._columns]
        self._values = [dictionaries.column(index).dictionary for index in self._columns]
        self._first_rows = table.column(0).to_numpy().tolist()
        lists = table.columns[1:]
        self._places = [each.values for each in lists]
        self._bounds = [each.offsets.to_numpy().tolist() for each in lists]

    def of(self, row: int) -> list[pa.Array]:
        """Return the categories of the partition that a row is of, for each dictionary column."""
        partition = bisect.bisect_right(self._first_rows, row) - 1
        found = []
        for values, places, bounds in zip(self._values, self._places, self._bounds, strict=True):
            start, stop = bounds[partition], bounds[partition + 1]
            found.append(values.take(places.slice(start, stop - start)))
        return found

    def encode(
        self, batch: pa.RecordBatch, schema: pa.Schema, categories: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        """Return rows of one partition of the file with the categories of that partition.

        `categories` is what `of` returned for one of these rows.
        """
        arrays: list[Any] = batch.columns[: len(schema)]
        own = batch.columns[len(schema) :]
        for place, index in enumerate(self._columns):
            # Not checked (safe=False): a check would read all codes, and these were made here.
            arrays[index] = pa.DictionaryArray.from_arrays(
                own[place], categories[place], ordered=self._ordered[place], safe=False
            )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
