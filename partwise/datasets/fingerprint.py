"""The fingerprint of rows in their order, however they are divided into batches and parts."""

import hashlib
from typing import Any

import pyarrow as pa

from partwise.tables.row_hash import hash_schema, lay_out_batch


class ContentFingerprint:
    """SHA-256 over a stream of rows; holds a few digests for each column, and no rows.

    Each stream of bytes of a column (null marks, lengths, data) has a digest of its own, so that
    the place where a batch ends makes no difference. Names and plain types of the schema count, its
    metadata does not.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._digests: list[Any] | None = None
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        streams = lay_out_batch(batch).streams
        if self._digests is None:
            self._digests = [hashlib.sha256() for _ in streams]
        for digest, stream in zip(self._digests, streams, strict=True):
            digest.update(stream.part(0, batch.num_rows))
        self._rows += batch.num_rows

    def hexdigest(self) -> str:
        """Return 64 hexadecimal digits for the rows so far."""
        total = hash_schema(self._schema)
        total.update(self._rows.to_bytes(8, "little"))
        for digest in self._digests or ():
            total.update(digest.digest())
        return str(total.hexdigest())
