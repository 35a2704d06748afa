"""Which bytes of a Parquet file hold columns of its row groups.

A bucket gives each request so many MB/s, whatever others ask: so they are fetched at once.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.tables.parquet_types import columns_of_leaves

MOST_HELD_BYTES = 256 * 2**20
"""Of what is held in memory of a file: a row group of Spark has 128 MiB, and one of a million rows,
as pyarrow and pandas write them, has 160 MB in 20 columns of doubles."""
_BRIDGED_BYTES = 2**20
"""Between columns: at 60 MB/s they take less than a request of 30 ms."""
_MISSING_BYTES = 100
"""By which the sizes of columns are too small in old files of parquet-mr (PARQUET-816)."""


def column_spans(
    metadata: pq.FileMetaData, schema: pa.Schema, names: Sequence[str], groups: Sequence[int]
) -> list[tuple[int, int]]:
    """Return where the bytes of columns begin and end, in their order, small gaps included."""
    wanted = set(names)
    places = [at for at, name in enumerate(columns_of_leaves(schema)) if name in wanted]
    spans: list[tuple[int, int]] = []
    for group in map(metadata.row_group, groups):
        for column in map(group.column, places):
            starts = [column.data_page_offset, column.dictionary_page_offset or 0]
            start = min((each for each in starts if each > 0), default=0)
            spans.append((start, start + column.total_compressed_size + _MISSING_BYTES))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= _BRIDGED_BYTES:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return joined
