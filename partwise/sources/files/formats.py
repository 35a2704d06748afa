"""The formats of files: what their heads or footers say, and their rows as batches.

Parquet is streamed by `ParquetFile`, not by `pyarrow.dataset`: with the settings below memory stays
flat in rows, files and the size of row groups, where the dataset's scanner read ahead several GB.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import PartwiseError, SourceError
from partwise.sources.files.csv_files import (
    find_codes,
    opened_csv,
    read_schema,
    settle,
    with_nulls,
)
from partwise.sources.files.csv_numbers import with_numbers
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.excel_files import read_workbook, workbook_batches
from partwise.sources.files.ipc_files import opened_ipc
from partwise.sources.files.json_types import json_schema, times_as_text
from partwise.sources.files.parquet_int96 import UNIT, int96_columns, with_exact_times
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions, ReadingOptions
from partwise.sources.files.written_thousands import Thousands
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
_LOCAL_BUFFER_BYTES = 128 * 2**10
"""Of each column that is read from a disk."""
_TEXT_BLOCK_BYTES = 8 * 2**20
_TEXT_GROWTH = {False: 1, True: 6}
"""How much larger text is than its file, if that is compressed."""
_LATE_FIELD = "unexpected field"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """What the head or footer of a file says."""

    schema: pa.Schema
    rows: int | None
    column_bytes: dict[str, int]
    """The estimated size of each column in Arrow memory."""
    metadata: pq.FileMetaData | None = None
    """The footer of a Parquet file."""
    encrypted: frozenset[str] = frozenset()
    """Columns that it hides without a key: to look at their metadata ends the process."""
    pieces: int = 0
    """The row groups, stripes or record batches that can be read each by itself; 0: none."""
    options: ReadingOptions = None
    """How the file is read, with what was found out about it."""
    codes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The columns of numbers that are written as codes are, such as 01, with a value of each: those
    that few of the first rows show."""
    thousands: Mapping[str, Thousands] = dataclasses.field(default_factory=dict)
    """How few of the first rows write the thousands of columns of numbers."""

    def row_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of a row of some columns, at least 1."""
        size = sum(self.column_bytes.get(name, 0) for name in names)
        return max(1, size // max(1, self.rows or 1))


@contextmanager
def naming(file: FoundFile) -> Iterator[None]:
    """Turn what a reader raises into one sentence that names the file."""
    try:
        yield
    except PartwiseError:
        raise
    except Exception as exc:
        local = (pa.ArrowException, OSError, EOFError, UnicodeError)
        # Every store has exceptions of its own.
        if file.access is None and not isinstance(exc, local):
            raise
        reason = " ".join(str(exc).split()) or type(exc).__name__
        if file.format == "json" and _LATE_FIELD in reason:
            reason = (
                "a field that none of its first 8 MB has comes up later; declare the type of each "
                "such field with Files(..., types={name: type})"
            )
        raise SourceError(
            f"File {file.path!r} cannot be read as {file.format}: {reason.rstrip('.')}."
        ) from exc


def read_head(file: FoundFile, options: ReadingOptions = None) -> FileHead:
    """Read the schema of a file, and what else costs little."""
    with naming(file):
        file = file.fetched()
        match file.format:
            case "parquet":
                return _parquet_head(file)
            case "orc":
                orc = _open_orc(file)
                rows, pieces = int(orc.nrows), int(orc.nstripes)
                check_unique_names(orc.schema.names)
                sizes = _orc_bytes(orc)
                return FileHead(schema=orc.schema, rows=rows, column_bytes=sizes, pieces=pieces)
            case "excel":
                return _excel_head(file, _excel(options))
            case "csv":
                options = settle(file, _csv(options))
                schema, pieces = read_schema(file, options), 0
            case "json":
                with _open_json(file) as lines:
                    schema, pieces = lines.schema, 0
                schema = json_schema(schema, lambda kinds: _first_lines(file, kinds))
            case "ipc":
                with opened_ipc(file, None) as (schema, pieces, _batches):
                    pass
        check_unique_names(schema.names)
        codes, thousands = head_codes(file, options, schema)
    growth = _TEXT_GROWTH[file.compression is not None]
    shared = file.size_bytes * growth // max(1, len(schema.names))
    return FileHead(
        schema=schema,
        rows=None,
        column_bytes=dict.fromkeys(schema.names, shared),
        pieces=pieces,
        options=options,
        codes=codes,
        thousands=thousands,
    )


def head_codes(
    file: FoundFile, options: ReadingOptions, schema: pa.Schema, names: Sequence[str] = ()
) -> tuple[dict[str, str], dict[str, Thousands]]:
    """Return what `find_codes` finds in a CSV file; in others, nothing."""
    return ({}, {}) if file.format != "csv" else find_codes(file, _csv(options), schema, names)


def _csv(options: ReadingOptions) -> CsvOptions:
    return options if isinstance(options, CsvOptions) else CsvOptions()


def _excel(options: ReadingOptions) -> ExcelOptions:
    return options if isinstance(options, ExcelOptions) else ExcelOptions()


def _excel_head(file: FoundFile, options: ExcelOptions) -> FileHead:
    table, options = read_workbook(file, options)
    sizes = {name: table.column(name).nbytes for name in table.column_names}
    return FileHead(schema=table.schema, rows=table.num_rows, column_bytes=sizes, options=options)


def reading_schema(kind: str, own: pa.Schema, common: pa.Schema) -> pa.Schema:
    """The types with which a file of a format is read, where its format says none.

    `own` is what its first rows look like; what was read is cast to `common`, that of all files.
    """
    if kind in ("csv", "excel"):
        # Of text every type can be made.
        return pa.schema([field for field in common if field.name in set(own.names)])
    fields = []
    for field in own:
        at = common.get_field_index(field.name)
        wanted = field.type if at < 0 else common.field(at).type
        read = _json_type(field.type, wanted)
        if kind == "json" and not pa.types.is_date(wanted):
            read = times_as_text(read)
        fields.append(field.with_type(read))
    return pa.schema(fields)


def _json_type(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type with which JSON is read to be cast to another without loss."""
    kind = pa.types

    def number(data_type: pa.DataType) -> bool:
        return bool(kind.is_integer(data_type) or kind.is_floating(data_type))

    def text(data_type: pa.DataType) -> bool:
        return any(
            says(data_type) for says in (kind.is_string, kind.is_large_string, kind.is_timestamp)
        )

    alike = (number(found) and number(wanted)) or (text(found) and text(wanted))
    if alike:
        return wanted
    if kind.is_null(found) and not kind.is_null(wanted):
        is_one_kind = number(wanted) or text(wanted) or kind.is_boolean(wanted)
        is_one_kind = is_one_kind or kind.is_nested(wanted)
        return wanted if is_one_kind else pa.string()
    return found


def read_batches(
    file: FoundFile,
    names: Sequence[str],
    schema: pa.Schema,
    pieces: range | None,
    row_bytes: int,
    options: ReadingOptions = None,
) -> Iterator[pa.RecordBatch]:
    """Read columns of a file, or of some pieces of it.

    `pieces` are row groups of a Parquet file, stripes of an ORC file, record batches of an Arrow
    file; None: all of it. `row_bytes`, the estimated size of a row, limits that of batches.
    """
    match file.format:
        case "parquet":
            yield from _parquet_batches(file, names, schema, pieces, row_bytes)
        case "orc":
            orc = _open_orc(file)
            # A stripe of no columns says that it has no rows.
            read = list(names) or orc.schema.names[:1]
            for stripe in range(orc.nstripes) if pieces is None else pieces:
                yield orc.read_stripe(stripe, columns=read).select(names)
        case "csv":
            settled = _csv(options)
            with opened_csv(file, settled, schema, names) as reader:
                for batch in reader:
                    read = with_nulls(batch.select(names), settled)
                    yield with_numbers(read, schema, settled, f"file {file.path!r}")
        case "excel":
            yield from workbook_batches(file, _excel(options), names, schema)
        case "json":
            with _open_json(file, schema, names) as lines:
                for batch in lines:
                    yield batch.select(names)
        case "ipc":
            with opened_ipc(file, pieces, names) as (_schema, _pieces, batches):
                for batch in batches:
                    yield batch.select(names)


def _parquet_batches(
    file: FoundFile, names: Sequence[str], schema: pa.Schema, pieces: range | None, row_bytes: int
) -> Iterator[pa.RecordBatch]:
    step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))

    def batches(parquet: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        groups = range(parquet.metadata.num_row_groups) if pieces is None else pieces

        def is_read_at_once(group: int) -> bool:
            found = parquet.metadata.row_group(group)
            if found.num_rows <= step:
                return len(groups) == 1
            arrow_schema = parquet.schema_arrow
            widths = [_value_bits(arrow_schema, name) for name in names]
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
        parquet = opened.enter_context(_open_parquet(file))
        read = batches(parquet, names)
        if old_times := int96_columns(parquet, names):
            finer = opened.enter_context(_open_parquet(file, int96_unit="ns"))
            read = with_exact_times(read, batches(finer, old_times), schema)
        yield from _whole(parquet, read, pieces)


def _is_of_few_pages(group: pq.RowGroupMetaData, names: int, row_bytes: int) -> bool:
    """Whether a row group of several batches is better read at once.

    Between two batches each column keeps a page as it lies in the file, one that is decoded, and
    the dictionary that most writers begin with. Where a column has little more than these, nothing
    is saved: 500 columns of 100,000 doubles as pyarrow writes them took 921 MB and 1.3 s, at once
    597 MB and 0.5 s (without dictionaries 242 MB and 0.7 s, at once 484 MB and 0.4 s). Of many
    pages, or of short codes for a dictionary, batches take far less. Of texts nobody knows: one may
    stand once in the file, and be in each row.
    """
    stored = group.total_byte_size * names // max(1, group.num_columns)
    return (
        group.num_rows <= _WHOLE_ROWS
        and row_bytes <= _WHOLE_VALUE_BYTES * names
        and group.num_rows * row_bytes <= 2 * stored
    )


def _whole(
    parquet: pq.ParquetFile, batches: Iterator[pa.RecordBatch], pieces: range | None
) -> Iterator[pa.RecordBatch]:
    """Give batches, and see that they have as many rows as the footer says.

    The checksum of a page does not cover the page's header: one bit there, and Arrow takes the
    column to end before it.
    """
    metadata = parquet.metadata
    groups = range(metadata.num_row_groups) if pieces is None else pieces
    expected = sum(metadata.row_group(group).num_rows for group in groups)
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != expected or (pieces is None and rows != metadata.num_rows):
        raise OSError(
            f"it has {rows:,} rows, and its footer says {expected:,}: the file is damaged; restore "
            "it, or write it again"
        )


def _open_parquet(
    file: FoundFile, *, pre_buffer: bool = False, int96_unit: str = UNIT
) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.path if file.access is None else file.open(),
        # As `FoundFile.open`.
        memory_map=False,
        # Without buffering ahead, and with small buffers, a row group of 10M rows took 147 MB, and
        # 531 MB with Arrow's defaults. Each column has a buffer: of 500, a MiB each is much.
        pre_buffer=pre_buffer,
        buffer_size=_LOCAL_BUFFER_BYTES if file.access is None else _BUFFER_BYTES,
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
        width = _value_bits(schema, name)
        # Of values of varying width, Arrow has an offset of 32 bits besides.
        sizes[name] = sizes.get(name, 0) + rows * (width or 32) // 8
        if not width and name not in encrypted:
            varying.append((index, name))
    for group in range(metadata.num_row_groups if varying else 0):
        columns = metadata.row_group(group)
        for index, name in varying:
            sizes[name] += columns.column(index).total_uncompressed_size
    return sizes


def _value_bits(schema: pa.Schema, name: str) -> int:
    """Return the width of the values of a column in Arrow memory; 0 where they differ."""
    field = schema.get_field_index(name)
    try:
        width: int = schema.field(field).type.bit_width if field >= 0 else 0
    except ValueError:
        return 0
    return width


def _parquet_head(file: FoundFile) -> FileHead:
    parquet = _open_parquet(file, pre_buffer=True)
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
    if _has_open_columns(parquet, None):
        return frozenset()
    names = parquet.schema_arrow.names
    return frozenset(name for name in names if not _has_open_columns(parquet, [name]))


def _has_open_columns(parquet: pq.ParquetFile, names: Sequence[str] | None) -> bool:
    """Look at the metadata of columns, of all for None; False: that of one is encrypted."""
    groups = range(parquet.metadata.num_row_groups)
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


def _open_orc(file: FoundFile) -> Any:
    from pyarrow import orc

    return orc.ORCFile(file.open())


def _orc_bytes(orc: Any) -> dict[str, int]:
    """Estimate the Arrow memory of each column; those of varying width share the file's content."""
    schema = orc.schema
    widths = {name: _value_bits(schema, name) for name in schema.names}
    varying = sum(not width for width in widths.values())
    shared = orc.nrows * 4 + orc.content_length // max(1, varying)
    return {name: orc.nrows * width // 8 if width else shared for name, width in widths.items()}


def _first_lines(file: FoundFile, schema: pa.Schema) -> pa.RecordBatch:
    with _open_json(file, schema) as lines:
        return next(iter(lines))


def _open_json(file: FoundFile, schema: pa.Schema | None = None, names: Sequence[str] = ()) -> Any:
    """Open a file of JSON lines; a field that its first block or the schema lacks is an error.

    Where not all fields of the schema are named, only those that are: others are passed over.
    """
    from pyarrow import json as pajson

    unexpected = "infer" if schema is None else "error"
    if schema is not None and 0 < len(names) < len(schema):
        schema = pa.schema([schema.field(name) for name in names])
        unexpected = "ignore"
    return pajson.open_json(
        file.open_stream(),
        read_options=pajson.ReadOptions(block_size=_TEXT_BLOCK_BYTES),
        parse_options=pajson.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=False,
            unexpected_field_behavior=unexpected,
        ),
    )
