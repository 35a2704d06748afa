"""The formats of files: what their heads or footers say, and their rows as batches.

Parquet is streamed by `ParquetFile`, not by `pyarrow.dataset`: with the settings below memory stays
flat in rows, files and the size of row groups, where the dataset's scanner read ahead several GB.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from partwise.tasks.data.discovery import FoundFile
from partwise.tasks.data.key_classes import check_unique_names
from partwise.tasks.errors import PartwiseError, SourceError

_BATCH_ROWS = 262_144
_BATCH_BYTES = 64 * 2**20
_BUFFER_BYTES = 2**20
_CSV_BLOCK_BYTES = 8 * 2**20
_CSV_GROWTH = {False: 1, True: 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """What the head or footer of a file says."""

    schema: pa.Schema
    rows: int | None
    column_bytes: dict[str, int]
    """The estimated size of each column in Arrow memory."""
    metadata: pq.FileMetaData | None = None
    """The footer of a Parquet file."""

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
        local = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)
        # Every store has exceptions of its own.
        if file.filesystem is None and not isinstance(exc, local):
            raise
        reason = " ".join(str(exc).split()) or type(exc).__name__
        raise SourceError(
            f"File {file.path!r} cannot be read as {file.format}: {reason.rstrip('.')}."
        ) from exc


def read_head(file: FoundFile) -> FileHead:
    """Read the schema of a file, and what else costs little.

    Raises:
        SourceError: It cannot be read.
        ColumnError: A column stands there twice.
    """
    rows: int | None = None
    metadata: pq.FileMetaData | None = None
    with naming(file):
        match file.format:
            case "parquet":
                with _open_parquet(file) as parquet:
                    schema, metadata = parquet.schema_arrow, parquet.metadata
                    rows = metadata.num_rows
                    check_unique_names(schema.names)
                    sizes = _parquet_bytes(parquet)
            case "csv":
                with _open_csv(file) as reader:
                    schema, sizes = reader.schema, {}
                    _check_utf8(schema, file)
            case _:
                with _opened_ipc(file) as (found, _batches):
                    schema, sizes = found, {}
        check_unique_names(schema.names)
    if not sizes:
        growth = _CSV_GROWTH[file.path.endswith(".gz")]
        sizes = {name: file.size_bytes * growth // len(schema.names) for name in schema.names}
    return FileHead(schema=schema, rows=rows, column_bytes=sizes, metadata=metadata)


def _check_utf8(schema: pa.Schema, file: FoundFile) -> None:
    """Refuse text in another encoding, which the reader gives as bytes."""
    for field in schema:
        if pa.types.is_binary(field.type):
            raise SourceError(
                f"Column {field.name!r} of file {file.path!r} holds text that is not UTF-8: "
                "convert the file, for example with 'iconv -f latin1 -t utf-8'."
            )


def read_batches(
    file: FoundFile,
    names: Sequence[str],
    schema: pa.Schema,
    row_groups: range | None,
    row_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Read columns of a file, or of some row groups of it.

    Args:
        file: The file.
        names: The columns to read, which it has.
        schema: The types of its columns, where the format itself has none.
        row_groups: Those of a Parquet file; None: all of the file.
        row_bytes: The estimated size of a row, which limits that of batches.
    """
    match file.format:
        case "parquet":
            with _open_parquet(file) as parquet:
                yield from parquet.iter_batches(
                    batch_size=max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes)),
                    row_groups=None if row_groups is None else list(row_groups),
                    columns=list(names),
                )
        case "csv":
            with _open_csv(file, schema) as reader:
                for batch in reader:
                    yield batch.select(names)
        case _:
            with _opened_ipc(file) as (_schema, batches):
                for batch in batches:
                    yield batch.select(names)


def _open_parquet(file: FoundFile) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.path if file.filesystem is None else file.open(),
        # A mapped file that is cut short while it is read kills the process (SIGBUS).
        memory_map=False,
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
    )


def _parquet_bytes(parquet: pq.ParquetFile) -> dict[str, int]:
    """Estimate the Arrow memory of each column: dictionary pages make files far smaller."""
    rows = parquet.metadata.num_rows
    sizes: dict[str, int] = {}
    varying: list[int] = []
    for index in range(parquet.metadata.num_columns):
        name = parquet.metadata.schema.column(index).path.split(".")[0]
        field = parquet.schema_arrow.get_field_index(name)
        try:
            width = parquet.schema_arrow.field(field).type.bit_width if field >= 0 else 0
        except ValueError:
            width = 0
        sizes[name] = sizes.get(name, 0) + rows * (width or 32) // 8
        if not width:
            varying.append(index)
    for group in range(parquet.metadata.num_row_groups if varying else 0):
        columns = parquet.metadata.row_group(group)
        for index in varying:
            chunk = columns.column(index)
            sizes[chunk.path_in_schema.split(".")[0]] += chunk.total_uncompressed_size
    return sizes


@contextmanager
def _opened_ipc(file: FoundFile) -> Iterator[Any]:
    """A reader of batches: of the IPC file format, or else of the stream format."""
    source = file.open()
    try:
        reader = pa.ipc.open_file(source)
        yield (reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches)))
    except pa.ArrowInvalid as exc:
        if "Not an Arrow file" not in str(exc):
            raise
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        yield (stream.schema, stream)


def _open_csv(file: FoundFile, schema: pa.Schema | None = None) -> pacsv.CSVStreamingReader:
    types = None if schema is None else {field.name: field.type for field in schema}
    return pacsv.open_csv(
        file.open_stream(),
        read_options=pacsv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(column_types=types),
    )
