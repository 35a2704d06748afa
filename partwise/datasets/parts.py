"""Writing the rows of a version as Parquet files of bounded size."""

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.datasets.manifest import PARTS, PartDocument, dataset_path
from partwise.errors import ColumnError
from partwise.store.store import Store
from partwise.tables.parquet_types import dictionary_columns, loses_order, unwritable_field

PART_BYTES = 128 << 20
"""At which a part is closed. A part is held in memory, as an object is one request."""
_ROW_GROUP_BYTES = 32 << 20
_ROW_GROUP_ROWS = 1 << 20
_FOOTER_TAIL = 8


class DatasetWriter:
    """Writes a stream of rows as parts of a dataset, one after the other.

    Memory is that of one part and one row group. Nobody else has the token.
    """

    def __init__(self, store: Store, name: str, token: str, schema: pa.Schema) -> None:
        self._store = store
        self._name = name
        self._token = token
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._part_rows = 0
        self.parts: list[PartDocument] = []
        """Those that are written."""
        refused = unwritable_field(schema)
        if refused is not None:
            field, reason = refused
            raise ColumnError(
                f"Column {field.name!r} of type {field.type} has no place in a Parquet file "
                f"({reason}): leave it out with columns=, or cast it."
            )
        for field in schema:
            if loses_order(field.type):
                raise ColumnError(
                    f"Column {field.name!r} has ordered categories of type "
                    f"{field.type.value_type}, and Parquet files keep the order of texts only: "
                    "register it without an order, which gives the categories in ascending order "
                    "(in pandas, .cat.as_unordered()), or cast it to text."
                )
        self._open()

    def _open(self) -> None:
        # Unlike Arrow's own buffer it gives its content away without a copy.
        self._sink = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            # Before 2.6, time stamps of nanoseconds become microseconds.
            version="2.6",
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionary_columns(self._schema),
            write_page_checksum=True,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the next rows."""
        # Else Parquet joins dictionaries, and puts what is new in one behind the others.
        if self._pending and not self._are_in_one_order(self._pending[-1], batch):
            self._flush()
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _ROW_GROUP_BYTES or self._pending_rows >= _ROW_GROUP_ROWS:
            self._flush()
            if self._sink.tell() >= PART_BYTES:
                self._close()
                self._open()

    def _are_in_one_order(self, one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
        """Whether ordered columns have the same dictionaries."""
        return all(
            one.column(place).dictionary.equals(other.column(place).dictionary)
            for place, kind in enumerate(self._schema.types)
            if pa.types.is_dictionary(kind) and kind.ordered
        )

    def finish(self) -> tuple[PartDocument, ...]:
        """Write what is left, and return all parts."""
        self._flush()
        if self._part_rows:
            self._close()
        return tuple(self.parts)

    def _flush(self) -> None:
        if self._pending_rows:
            self._writer.write_table(pa.Table.from_batches(self._pending, schema=self._schema))
            self._part_rows += self._pending_rows
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    def _close(self) -> None:
        self._writer.close()
        content = self._sink.getvalue()
        path = f"{PARTS}/{self._token}/{len(self.parts):05d}.parquet"
        # A Parquet file ends in the length of its metadata, four bytes, and "PAR1":
        # https://parquet.apache.org/docs/file-format/
        footer_bytes = int.from_bytes(content[-_FOOTER_TAIL:-4], "little") + _FOOTER_TAIL
        self._store.create(dataset_path(self._name, path), content)
        self.parts.append(
            PartDocument(
                path=path,
                rows=self._part_rows,
                size_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                footer_bytes=footer_bytes,
                footer_sha256=hashlib.sha256(content[-footer_bytes:]).hexdigest(),
            )
        )
        self._part_rows = 0
