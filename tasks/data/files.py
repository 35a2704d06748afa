"""Files as rows: finding them, checking their schemas, streaming them.

Parquet is streamed by `ParquetFile`, not by `pyarrow.dataset`: with the settings below memory stays
flat in rows, files and the size of row groups, where the dataset's scanner read ahead several GB.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from partwise.tasks.data.discovery import FoundFile, hive_columns
from partwise.tasks.data.key_classes import check_unique_names
from partwise.tasks.data.schemas import cast_batch, common_schema
from partwise.tasks.errors import PartwiseError, SourceError

_BATCH_ROWS = 262_144
_BATCH_BYTES = 64 * 2**20
_BUFFER_BYTES = 2**20
_CSV_BLOCK_BYTES = 8 * 2**20
_FOOTER_THREADS = 16
_CSV_GROWTH = {False: 1, True: 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedFile:
    """What the head or footer of a file says."""

    file: FoundFile
    schema: pa.Schema
    rows: int | None
    column_bytes: dict[str, int]


@contextmanager
def _naming(file: FoundFile) -> Iterator[None]:
    """Turn what a reader raises into one sentence that names the file."""
    try:
        yield
    except PartwiseError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as exc:
        reason = " ".join(str(exc).split()) or type(exc).__name__
        raise SourceError(
            f"File {file.path!r} cannot be read as {file.format}: {reason.rstrip('.')}."
        ) from exc


def _open_parquet(file: FoundFile) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.path if file.filesystem is None else file.open(),
        memory_map=file.filesystem is None,
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


def _head(file: FoundFile) -> _OpenedFile:
    """Read the schema of a file, and what else costs little."""
    rows: int | None = None
    with _naming(file):
        match file.format:
            case "parquet":
                with _open_parquet(file) as parquet:
                    schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
                    check_unique_names(schema.names)
                    sizes = _parquet_bytes(parquet)
            case "csv":
                with _open_csv(file) as reader:
                    schema, sizes = reader.schema, {}
            case _:
                with _opened_ipc(file) as (found, _batches):
                    schema, sizes = found, {}
        check_unique_names(schema.names)
    if not sizes:
        growth = _CSV_GROWTH[file.path.endswith(".gz")]
        sizes = {name: file.size_bytes * growth // len(schema.names) for name in schema.names}
    return _OpenedFile(file=file, schema=schema, rows=rows, column_bytes=sizes)


class FileRows:
    """The rows of files of one format, in the order given.

    The first file says which columns there are; every other file must have them too, in any
    order, of types that widen to a common one. What other files have beyond them is not read.

    Args:
        files: The files, at least one.
        paths: What the caller named: absolute paths, globs or URLs.

    Raises:
        SourceError: A file cannot be read.
        ColumnError: A file lacks a column, has one twice, or with a type that does not fit.
    """

    def __init__(self, files: Sequence[FoundFile], paths: Sequence[str]) -> None:
        self._paths = list(paths)
        remote = files[0].filesystem is not None
        if remote and len(files) > 1:
            with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
                self._heads = list(pool.map(_head, files))
        else:
            self._heads = [_head(file) for file in files]
        self._hive_schema, self._hive_values = hive_columns(files)
        own = common_schema([(head.schema, f"file {head.file.path!r}") for head in self._heads])
        # A column that stands in the files wins over one in their paths.
        extra = [field for field in self._hive_schema if field.name not in own.names]
        self._own_schema = own
        self.schema = pa.schema([*own, *extra], metadata=own.metadata)

    @property
    def rows(self) -> int | None:
        """Rows in all files, None where the format does not say."""
        counts = [head.rows for head in self._heads]
        return None if None in counts else sum(count or 0 for count in counts)

    def size_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of some columns in Arrow memory."""
        return sum(head.column_bytes.get(name, 0) for head in self._heads for name in names)

    def identity(self) -> bytes:
        """What changes when a file is added, removed or written again."""
        files = [[h.file.path, h.file.size_bytes, h.file.version] for h in self._heads]
        return json.dumps(files).encode()

    def recipe(self) -> dict[str, Any] | None:
        """What finds the files again from another process."""
        return {"paths": self._paths}

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the columns `names` of all files.

        Raises:
            SourceError: A file cannot be read, or changed since it was opened.
            ColumnError: A value does not fit the common type of its column.
        """
        schema = pa.schema([self.schema.field(name) for name in names])
        for index, head in enumerate(self._heads):
            file = head.file
            file.check_unchanged()
            hive = self._hive_values[index]
            own = [name for name in names if name in self._own_schema.names]
            with _naming(file):
                for batch in self._file_batches(head, own):
                    yield cast_batch(batch, schema, hive, f"file {file.path!r}")

    def _file_batches(self, head: _OpenedFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        match head.file.format:
            case "parquet":
                row_bytes = self._row_bytes(head, names)
                with _open_parquet(head.file) as parquet:
                    yield from parquet.iter_batches(
                        batch_size=max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes)),
                        columns=names,
                    )
            case "csv":
                with _open_csv(head.file, self._own_schema) as reader:
                    for batch in reader:
                        yield batch.select(names)
            case _:
                with _opened_ipc(head.file) as (_schema, batches):
                    for batch in batches:
                        yield batch.select(names)

    def _row_bytes(self, head: _OpenedFile, names: list[str]) -> int:
        size = sum(head.column_bytes.get(name, 0) for name in names)
        return max(1, size // max(1, head.rows or 1))
