"""One sample of the rows of all ranks, which does not depend on how the rows are divided."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from partwise.ranks.context import RankContext
from partwise.ranks.gathering import gather_tables
from partwise.ranks.protocols import Share
from partwise.tables.dictionaries import decoded, plain_storage
from partwise.tables.keys.hashing import mix

SAMPLE_ROWS = 200_000
_STEP = 0x9E3779B97F4A7C15
"""By which splitmix64 goes on from one seed to the next."""


def global_sample(
    context: RankContext, share: Share, columns: Sequence[str], most: int = SAMPLE_ROWS
) -> pa.Table:
    """Return the same rows on every rank, chosen by a hash of the row's number in the source.

    So the sample is the same for any number of ranks and any borders between them. Each rank has to
    call it alike. The seed of the context chooses the rows: `most` of them are expected, sqrt(most)
    more or fewer; all, where there are no more. They come in the order of the source, with
    categories as plain values, since the dictionaries of ranks differ.
    """
    fields = [share.schema.field(name) for name in columns]
    schema = pa.schema([pa.field(each.name, plain_storage(each.type)) for each in fields])
    chosen = []
    row = share.first_row
    for batch in share.batches():
        taken = batch.select(list(columns))
        if share.total_rows > most:
            places = _chosen(row, batch.num_rows, context.seed, most / share.total_rows)
            taken = taken.take(pa.array(places))
        arrays = [
            decoded(array).cast(each.type)
            for array, each in zip(taken.columns, schema, strict=True)
        ]
        chosen.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        row += batch.num_rows
    gathered = gather_tables(context, pa.Table.from_batches(chosen, schema))
    return pa.concat_tables(gathered).combine_chunks()


def _chosen(first: int, rows: int, seed: int, fraction: float) -> np.ndarray:
    """Return which of some neighbouring rows are in the sample, as places from 0 on."""
    start = (first + _mixed(seed)) & 0xFFFFFFFFFFFFFFFF
    numbers = np.arange(rows, dtype=np.uint64) + np.uint64(start)
    hashes = mix(numbers * np.uint64(_STEP))
    return np.flatnonzero(hashes < np.uint64(int(fraction * 2**64)))


def _mixed(seed: int) -> int:
    """Spread a seed, so that neighbouring seeds do not choose neighbouring rows."""
    return int(mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64))[0])
