"""Parquet files: what their footers say, and their rows as batches.

They are streamed by `ParquetFile`, not by `pyarrow.dataset`: with the settings below memory stays
flat in rows, files and the size of row groups, where the dataset's scanner read ahead several GB.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.formatting import counted
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.file_parts import FileParts
from partwise.sources.files.parquet_footers import FOOTERS, with_tail
from partwise.sources.files.parquet_int96 import UNIT, int96_columns, with_exact_times
from partwise.sources.files.parquet_spans import MOST_HELD_BYTES, column_spans
from partwise.tables.column_names import check_unique_names
from partwise.tables.parquet_types import columns_of_leaves

_BATCH_ROWS = 262_144
_BATCH_BYTES = 16 * 2**20
_WHOLE_ROWS = 131_072
"""Of a row group that is read at once, though it is several batches: of 8 bytes each they are the
MiB that a page has by default."""
_WHOLE_VALUE_BYTES = 16
"""Of a value of such a row group, on the average."""
_BUFFER_BYTES = 2**20
"""Of each column that is read from a bucket, where each time that it is filled is a request."""
_LARGEST_BUFFER_BYTES = 8 * 2**20
"""Of one of few columns."""
_BUFFERS_BYTES = 64 * 2**20
"""Of the buffers of all columns."""
_LOCAL_BUFFER_BYTES = 128 * 2**10
"""Of each column that is read from a disk."""


def parquet_batches(
    file: FoundFile, names: Sequence[str], schema: pa.Schema, pieces: range | None, row_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Read columns of a file, or of some of its row groups.

    Args:
        file: The file.
        names: The columns, in the order in which they are given.
        schema: Those that are to be read, for the unit of times that are INT96.
        pieces: The row groups; None: all.
        row_bytes: The estimated size of a row, which limits that of batches.

    Raises:
        OSError: It has other rows than its footer says, or times that are lost in that unit.
    """
    step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))

    def batches(parquet: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        groups = _groups(parquet.metadata, pieces)

        def is_read_at_once(group: int) -> bool:
            found = parquet.metadata.row_group(group)
            if found.num_rows <= step:
                return len(groups) == 1
            arrow_schema = parquet.schema_arrow
            widths = [value_bits(arrow_schema, name) for name in names]
            return all(widths) and _is_of_few_pages(found, len(widths), sum(widths) // 8)

        for at_once, some in itertools.groupby(groups, is_read_at_once):
            if at_once:
                for group in some:
                    # On the one thread that a worker's slot has, Arrow is faster without its pool.
                    table = parquet.read_row_group(
                        group, columns=list(columns), use_threads=pa.cpu_count() > 1
                    )
                    yield from table.to_batches(max_chunksize=step)
            else:
                yield from parquet.iter_batches(
                    batch_size=step, row_groups=list(some), columns=list(columns)
                )

    with ExitStack() as opened:
        footer = FOOTERS.get(file)
        parquet = opened.enter_context(_open_parquet(file, footer, columns=len(names)))
        if footer is None:
            footer = parquet.metadata
            FOOTERS.keep(file, footer)
        read = batches(parquet, names)
        if old_times := int96_columns(parquet, names):
            finer = opened.enter_context(_open_parquet(file, footer, int96_unit="ns"))
            read = with_exact_times(read, batches(finer, old_times), schema)
        yield from _whole(parquet, read, pieces)


def _wanted_bytes(group: pq.RowGroupMetaData, names: int) -> int:
    """About how many bytes so many columns of a row group have, before they are compressed."""
    return int(group.total_byte_size * names // max(1, group.num_columns))


def _groups(metadata: pq.FileMetaData, pieces: range | None) -> range:
    return range(metadata.num_row_groups) if pieces is None else pieces


def _is_of_few_pages(group: pq.RowGroupMetaData, names: int, row_bytes: int) -> bool:
    """Whether a row group of several batches is better read at once.

    Between two batches each column keeps a page as it lies in the file, one that is decoded, and
    the dictionary that most writers begin with. Where a column has little more than these, nothing
    is saved: 500 columns of 100,000 doubles as pyarrow writes them took 921 MB and 1.3 s, at once
    597 MB and 0.5 s (without dictionaries 242 MB and 0.7 s, at once 484 MB and 0.4 s). Of many
    pages, or of short codes for a dictionary, batches take far less. Of texts nobody knows: one may
    stand once in the file, and be in each row.
    """
    return (
        group.num_rows <= _WHOLE_ROWS
        and row_bytes <= _WHOLE_VALUE_BYTES * names
        and group.num_rows * row_bytes <= 2 * _wanted_bytes(group, names)
    )


def _whole(
    parquet: pq.ParquetFile, batches: Iterator[pa.RecordBatch], pieces: range | None
) -> Iterator[pa.RecordBatch]:
    """Give batches, and see that they have as many rows as the footer says.

    The checksum of a page does not cover the page's header: one bit there, and Arrow takes the
    column to end before it.
    """
    metadata = parquet.metadata
    expected = sum(metadata.row_group(group).num_rows for group in _groups(metadata, pieces))
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != expected or (pieces is None and rows != metadata.num_rows):
        raise OSError(
            f"it has {counted(rows, 'row')}, and its footer says {expected:,}: the file is "
            "damaged; restore it, or write it again"
        )


def _open_parquet(
    file: FoundFile,
    footer: pq.FileMetaData | None = None,
    *,
    pre_buffer: bool = False,
    columns: int = 1,
    int96_unit: str = UNIT,
) -> pq.ParquetFile:
    source: str | pa.NativeFile = file.path
    if file.access is not None:
        source = file.open(reads_ahead=False)
    buffer_bytes = _LOCAL_BUFFER_BYTES
    if file.is_far:
        wanted = _BUFFERS_BYTES // max(1, columns)
        buffer_bytes = max(_BUFFER_BYTES, min(_LARGEST_BUFFER_BYTES, wanted))
    return pq.ParquetFile(
        source,
        metadata=footer,
        # As `FoundFile.open`.
        memory_map=False,
        # Without buffering ahead, and with small buffers, a row group of 10M rows took 147 MB, and
        # 531 MB with Arrow's defaults. Each column has a buffer: of 500, a MiB each is much.
        pre_buffer=pre_buffer,
        buffer_size=buffer_bytes,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96_unit,
    )


def _parquet_bytes(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    leaves: Sequence[str],
    encrypted: frozenset[str],
) -> dict[str, int]:
    """Estimate the Arrow memory of each column: dictionary pages make files far smaller."""
    rows = metadata.num_rows
    sizes: dict[str, int] = {}
    varying: list[tuple[int, str]] = []
    for index, name in enumerate(leaves):
        width = value_bits(schema, name)
        # Of values of varying width, Arrow has an offset of 32 bits besides.
        sizes[name] = sizes.get(name, 0) + rows * (width or 32) // 8
        if not width and name not in encrypted:
            varying.append((index, name))
    for group in range(metadata.num_row_groups if varying else 0):
        columns = metadata.row_group(group)
        for index, name in varying:
            sizes[name] += columns.column(index).total_uncompressed_size
    return sizes


def value_bits(schema: pa.Schema, name: str) -> int:
    """Return the width of the values of a column in Arrow memory; 0 where they differ."""
    field = schema.get_field_index(name)
    try:
        width: int = schema.field(field).type.bit_width if field >= 0 else 0
    except ValueError:
        return 0
    return width


def parquet_head(file: FoundFile) -> FileHead:
    """Read the footer of a file."""
    parquet = _open_parquet(with_tail(file) if file.is_far else file, pre_buffer=True)
    # Once: it is made of the footer each time that it is asked for.
    schema, metadata = parquet.schema_arrow, parquet.metadata
    check_unique_names(schema.names)
    encrypted = _check_footer(parquet)
    leaves = columns_of_leaves(schema)
    return FileHead(
        schema=_with_known_orders(metadata, schema, leaves, encrypted),
        rows=metadata.num_rows,
        column_bytes=_parquet_bytes(metadata, schema, leaves, encrypted),
        metadata=metadata,
        encrypted=encrypted,
        pieces=metadata.num_row_groups,
    )


def with_row_groups(file: FoundFile, names: Sequence[str], pieces: range | None) -> FoundFile:
    """Return a file of a bucket with the bytes of columns of some of its row groups; None: of all.

    Where they are more than are held in memory, it comes back as it was given.
    """

    def read() -> pq.FileMetaData:
        with _open_parquet(with_tail(file), pre_buffer=True) as parquet:
            return parquet.metadata

    metadata = FOOTERS.of(file, read)
    groups = _groups(metadata, pieces)
    nothing = replace(file, content=FileParts(size_bytes=file.size_bytes, parts={}))
    with _open_parquet(nothing, metadata, pre_buffer=True) as parquet:
        parquet.close(force=True)
        if not _has_open_columns(parquet, names, groups):
            return file
        spans = column_spans(metadata, parquet.schema_arrow, names, groups)
    # A damaged footer may lead anywhere.
    spans = [(start, min(end, file.size_bytes)) for start, end in spans]
    if sum(end - start for start, end in spans) > MOST_HELD_BYTES:
        return file
    return file.with_spans(spans)


def _with_known_orders(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    leaves: Sequence[str],
    encrypted: frozenset[str],
) -> pa.Schema:
    """Return the schema, without the order of categories of which a row group has no dictionary.

    The schema says that there was one, and the dictionary which: without it (`use_dictionary` of
    pyarrow, other writers) Arrow takes the order in which values occur for it.
    """
    for leaf, name in enumerate(leaves):
        place = schema.get_field_index(name)
        field = schema.field(place)
        if not pa.types.is_dictionary(field.type) or not field.type.ordered or name in encrypted:
            continue
        groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
        if not all(group.column(leaf).has_dictionary_page for group in groups if group.num_rows):
            kind = pa.dictionary(field.type.index_type, field.type.value_type)
            schema = schema.set(place, field.with_type(kind))
    return schema


def _check_footer(parquet: pq.ParquetFile) -> frozenset[str]:
    """Close a file, and refuse a footer of which a look at a column would end the process.

    Where pyarrow hands out the metadata of a column, nothing catches what Parquet raises: one bit
    of the footer, and `std::terminate` aborts. What reads rows does catch it. If it buffers, it
    looks at the metadata of all columns before it reads of the first one, for which it is too late.

    Returns:
        The columns that are encrypted under a footer that is not.
    """
    parquet.close(force=True)
    groups = range(parquet.metadata.num_row_groups)
    if _has_open_columns(parquet, None, groups):
        return frozenset()
    names = parquet.schema_arrow.names
    return frozenset(name for name in names if not _has_open_columns(parquet, [name], groups))


def _has_open_columns(
    parquet: pq.ParquetFile, names: Sequence[str] | None, groups: Sequence[int]
) -> bool:
    """Look at the metadata of columns, of all for None; False: that of one is encrypted."""
    try:
        parquet.read_row_groups(groups, columns=names, use_threads=False)
    except pa.ArrowInvalid as error:
        # This one comes when all columns were looked at, and rows are to be read.
        if "closed" not in str(error):
            raise
    except OSError as error:
        if "Cannot decrypt" not in str(error):
            raise
        return False
    return True
