"""The fingerprint of rows in their order, however they are divided into batches and parts.

Beside it, that of the orders of categories: to the fingerprint of rows, categories are values.
"""

import hashlib
from typing import Any

import pyarrow as pa

from partwise.tables.category_orders import GrowingDictionary, settled
from partwise.tables.row_hash import hash_rows, hash_schema, lay_out_batch


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


class OrderFingerprints:
    """SHA-256 of the order of the categories of each ordered column, in a stream of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._fields = [f for f in schema if pa.types.is_dictionary(f.type) and f.type.ordered]
        self._known = [
            GrowingDictionary(pa.array([], field.type.value_type), ordered=True)
            for field in self._fields
        ]
        self._last: list[pa.Array | None] = [None for _ in self._fields]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        for place, (field, known) in enumerate(zip(self._fields, self._known, strict=True)):
            dictionary, last = batch.column(field.name).dictionary, self._last[place]
            if last is None or not last.equals(dictionary):
                known.learn_order(known.places(dictionary))
                self._last[place] = dictionary

    def hexdigests(self) -> dict[str, str]:
        """Return 64 hexadecimal digits for each column, by its name; none: they have no order."""
        found = {}
        for field, known in zip(self._fields, self._known, strict=True):
            joined, values = settled(known.field(field), known.values)
            digest = hashlib.sha256()
            batch = pa.record_batch([values], [""])
            hash_rows(digest, [(lay_out_batch(batch), 0, batch.num_rows)])
            found[field.name] = digest.hexdigest() if joined.type.ordered else ""
        return found
