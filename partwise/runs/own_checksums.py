"""Parquet files that hold a checksum of all their bytes, and stay Parquet for any other reader.

It stands in the file's metadata, and is of the file with `NO_CHECKSUM` in its place. So does a
signature, where keys are configured: of the file with `NO_DIGEST` in the place of its own digits.
"""

import hashlib
import io
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import RunFormatError
from partwise.store.signing import SigningKey, check_signature
from partwise.store.store import Store
from partwise.tables.parquet_types import dictionary_columns

CHECKSUM = b"partwise.sha256"
NO_CHECKSUM = b"checksum-of-this-file".ljust(64, b".")
SIGNATURE = b"partwise.signature"
NO_DIGEST = b"signature-of-this-file".ljust(64, b".")
_SMALL_BYTES = 1 << 20
"""A smaller table is compressed by Snappy: Zstandard begins anew for each column, which took half
of the time of a segment of 60 partitions, and made it a fifth smaller."""
# Thrift puts the type and the length of the value between a key and its value.
_PLACE = re.compile(CHECKSUM + rb".{1,4}?([0-9a-f]{64})", re.DOTALL)
_SIGNED = re.compile(
    SIGNATURE + rb".{1,4}?(hmac-sha256:[A-Za-z0-9._-]{1,32}:([0-9a-f]{64}))", re.DOTALL
)


def write_sealed(
    table: pa.Table,
    purpose: str = "",
    key: SigningKey | None = None,
    *,
    rows_per_group: int | None = None,
) -> bytes:
    """Return a table as the bytes of a Parquet file with its own checksum, and a signature.

    The checksum is of all bytes but itself: that of a page does not cover the page's header, nor
    anything the footer, and one bit there can hide rows. `purpose`, for the signature, is its path
    in the store; `key` None: it gets none. `rows_per_group` None: as many as Arrow takes.
    """
    metadata = {**(table.schema.metadata or {}), CHECKSUM: NO_CHECKSUM}
    # Rows that are carried over bring the metadata of their segment.
    metadata.pop(SIGNATURE, None)
    if key is not None:
        metadata[SIGNATURE] = f"hmac-sha256:{key.key_id}:".encode() + NO_DIGEST
    sink = io.BytesIO()
    table = table.replace_schema_metadata(metadata)
    pq.write_table(
        table,
        sink,
        compression="snappy" if table.nbytes < _SMALL_BYTES else "zstd",
        use_dictionary=dictionary_columns(table.schema),
        write_page_checksum=True,
        row_group_size=rows_per_group,
    )
    if key is not None:
        digest = hashlib.sha256(sink.getvalue()).hexdigest().encode()
        _fill(sink, NO_DIGEST, key.digest(digest, purpose).encode())
    fill_checksum(sink)
    return sink.getvalue()


def fill_checksum(file: io.BytesIO) -> None:
    """Put the checksum of a file where its metadata have `NO_CHECKSUM` as `CHECKSUM`."""
    _fill(file, NO_CHECKSUM, hashlib.sha256(file.getvalue()).hexdigest().encode())


def _fill(file: io.BytesIO, empty: bytes, value: bytes) -> None:
    # In the place of as many other bytes, so that no offset changes. The metadata come last, so
    # that no value of a column is taken for it.
    place = file.getvalue().rfind(empty)
    with file.getbuffer() as content:
        content[place : place + len(value)] = value


def check_own_signature(content: bytes, purpose: str, where: str, store: Store) -> None:
    """Refuse a file that no key of this process signed for this place in the store."""
    footer = _footer(content)
    signatures = list(_SIGNED.finditer(content, footer))
    places = list(_PLACE.finditer(content, footer))
    if not signatures or not places:
        check_signature(content, purpose, None, where, store)
        return
    spans = sorted([(*places[-1].span(1), NO_CHECKSUM), (*signatures[-1].span(2), NO_DIGEST)])
    check_signature(_digest(content, spans), purpose, signatures[-1][1].decode(), where, store)


def _digest(content: bytes, spans: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the sha256 of a file with other bytes in some spans of it, which are in order."""
    digest, at = hashlib.sha256(), 0
    for start, end, empty in spans:
        digest.update(memoryview(content)[at:start])
        digest.update(empty)
        at = end
    digest.update(memoryview(content)[at:])
    return digest.hexdigest().encode()


def _footer(content: bytes) -> int:
    # A Parquet file ends in the length of its metadata, four bytes, and "PAR1":
    # https://parquet.apache.org/docs/file-format/
    return max(0, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))


def check_own_checksum(content: bytes, where: str) -> bool:
    """Compare a file with the checksum that it holds; False: it holds none.

    Raises:
        RunFormatError: They differ.
    """
    places = list(_PLACE.finditer(content, _footer(content)))
    if not places:
        return False
    if _digest(content, [(*places[-1].span(1), NO_CHECKSUM)]) != places[-1][1]:
        raise RunFormatError(f"{where} is damaged: it differs from the checksum that it holds.")
    return True
