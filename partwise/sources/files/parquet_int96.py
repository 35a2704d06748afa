"""Parquet's INT96, as which Spark, Hive and Impala write time stamps: read without a loss.

The type counts days and nanoseconds of the day. Arrow reads it as nanoseconds since 1970 by
default, and does not say that these end in 2262: 9999-12-31, which means "for ever" in many
tables, became 1816-03-29. So it is read as microseconds here, as Spark means it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partwise.tables.dictionaries import leaves
from partwise.tables.parquet_types import columns_of_leaves

UNIT = "us"
"""The unit in which every reader of ours takes INT96."""


def int96_columns(parquet: pq.ParquetFile, names: Sequence[str]) -> list[str]:
    """Return those of some columns that hold INT96, however deep."""
    stored = parquet.metadata.schema
    places = [at for at in range(len(stored)) if stored.column(at).physical_type == "INT96"]
    if not places:
        return []
    columns = columns_of_leaves(parquet.schema_arrow)
    found = {columns[place] for place in places}
    return [name for name in names if name in found]


def with_exact_times(
    batches: Iterator[pa.RecordBatch], finer: Iterator[pa.RecordBatch], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Give batches with times that are as fine as they were written.

    `finer` has the columns of INT96 alone, read in nanoseconds, which wrap around: a column that is
    to be in nanoseconds is taken from there. OSError where a time is finer than microseconds, or is
    to be in nanoseconds and has none.
    """
    waiting = pa.RecordBatch.from_pylist([])
    for batch in batches:
        while waiting.num_rows < batch.num_rows:
            read = next(finer)
            waiting = pa.concat_batches([waiting, read]) if waiting.num_rows else read
        own, waiting = waiting.slice(0, batch.num_rows), waiting.slice(batch.num_rows)
        for name in own.schema.names:
            place, nanoseconds = batch.schema.get_field_index(name), own.column(name)
            is_fine = wanted.field(name).type == nanoseconds.type
            _check_exact(name, batch.column(place), nanoseconds, is_fine=is_fine)
            if is_fine:
                batch = batch.set_column(place, own.schema.field(name), nanoseconds)
        yield batch


def _check_exact(name: str, micros: pa.Array, nanos: pa.Array, *, is_fine: bool) -> None:
    for coarse, fine in zip(leaves(micros), leaves(nanos), strict=True):
        if not pa.types.is_timestamp(coarse.type):
            continue
        valid = np.asarray(coarse.is_valid())
        counts, fine_counts = (
            array.cast(pa.int64()).fill_null(0).to_numpy() for array in (coarse, fine)
        )
        # Both wrap around, so that what is left is right for every year.
        rest = fine_counts - counts * 1000
        wrong = fine_counts // 1000 != counts if is_fine else rest != 0
        places = np.flatnonzero(wrong & valid)
        if not len(places):
            continue
        value = coarse[int(places[0])].cast(pa.string()).as_py()
        if is_fine:
            raise OSError(
                f"its column {name!r} holds {value}, which is beyond the nanoseconds that it is "
                "declared in: declare it as timestamp[us]"
            )
        raise OSError(
            f"its column {name!r} holds a time {int(rest[places[0]])} ns after {value}, and INT96 "
            "is read in microseconds: declare the column, such as "
            f"Files(..., types={{{name!r}: 'timestamp[ns]'}})"
        )
