"""The formats of files: what their heads or footers say, and their rows as batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

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
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.ipc_files import opened_ipc
from partwise.sources.files.json_types import json_schema, times_as_text
from partwise.sources.files.parquet_files import parquet_batches, parquet_head, value_bits
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions, ReadingOptions
from partwise.sources.files.written_thousands import Thousands
from partwise.tables.column_names import check_unique_names

_TEXT_BLOCK_BYTES = 8 * 2**20
_TEXT_GROWTH = {False: 1, True: 6}
"""How much larger text is than its file, if that is compressed."""
_LATE_FIELD = "unexpected field"


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
        file = file.with_start() if file.format in ("csv", "json") else file.fetched()
        match file.format:
            case "parquet":
                return parquet_head(file)
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
            yield from parquet_batches(file, names, schema, pieces, row_bytes)
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


def _open_orc(file: FoundFile) -> Any:
    from pyarrow import orc

    return orc.ORCFile(file.open())


def _orc_bytes(orc: Any) -> dict[str, int]:
    """Estimate the Arrow memory of each column; those of varying width share the file's content."""
    schema = orc.schema
    widths = {name: value_bits(schema, name) for name in schema.names}
    varying = sum(not width for width in widths.values())
    shared = orc.nrows * 4 + orc.content_length // max(1, varying)
    return {name: orc.nrows * width // 8 if width else shared for name, width in widths.items()}


def _first_lines(file: FoundFile, schema: pa.Schema) -> pa.RecordBatch:
    with _open_json(file, schema) as lines:
        return next(iter(lines))


@contextmanager
def _open_json(
    file: FoundFile, schema: pa.Schema | None = None, names: Sequence[str] = ()
) -> Iterator[Any]:
    """Open a file of JSON lines; a field that its first block or the schema lacks is an error.

    Where not all fields of the schema are named, only those that are: others are passed over.
    """
    from pyarrow import json as pajson

    unexpected = "infer" if schema is None else "error"
    if schema is not None and 0 < len(names) < len(schema):
        schema = pa.schema([schema.field(name) for name in names])
        unexpected = "ignore"
    read = pajson.ReadOptions(block_size=_TEXT_BLOCK_BYTES)
    parse = pajson.ParseOptions(
        explicit_schema=schema,
        newlines_in_values=False,
        unexpected_field_behavior=unexpected,
    )
    with file.streamed() as stream, pajson.open_json(stream, read, parse) as lines:
        yield lines
