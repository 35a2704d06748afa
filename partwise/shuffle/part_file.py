"""A part file: the rows of some fragments, divided by shard.

    messages    Arrow record batches without a schema, each the rows of one shard of one batch that
                was read, at offsets that are multiples of 64
    keys        an IPC stream: the keys, in the order of their hashes in the tail
    tail        three IPC streams: which message belongs to which shard; how many rows each key has,
                by hash; a batch of no rows in the schema of the rows, with all dictionaries
    footer      where the tail begins, its size and checksum, and a mark of the format

One file holds all shards, so that few files are open, and a bucket takes few objects. A reader maps
the file, or fetches the bytes of its shard, which `lay_in_shard_order` has laid side by side.

On a disk of our own, checksums are sums of words, which find damage and cost nothing. In a store,
which others may write, each message has its SHA-256 in the tail, and whoever wrote the file tells
that of the tail.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from partwise.errors import IntegrityError, SourceError
from partwise.tables.dictionaries import ColumnStorage, read_one
from partwise.tables.ipc_streams import table_bytes

MESSAGE_ALIGNMENT = 64
_FOOTER = struct.Struct("<qqQ8s")
_MARK = b"PWPARTS5"
PART_VERSION = 5
"""Of the format of part files. Before 5, they did not say what is known of orders of categories."""
_ABOUT = b"partwise"
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PartIndex:
    """What is known of a part besides its rows."""

    shards: np.ndarray
    """uint32, shape (messages,): the shard of each message."""
    positions: np.ndarray
    """int64, shape (messages,): the number of the fragment that its last row is of."""
    spans: np.ndarray
    """int64, shape (messages, 2): its offset and size in the file."""
    rows: np.ndarray
    """int64, shape (messages,): its rows."""
    sums: np.ndarray
    """uint64, shape (messages,): the sum of its 64-bit words, modulo 2**64."""
    digests: np.ndarray | None
    """uint8, shape (messages, 32): its SHA-256; None in a file that was not laid in shard order."""
    key_hashes: np.ndarray
    """uint64, shape (keys,): the distinct hashes of keys, sorted."""
    key_rows: np.ndarray
    """int64, shape (keys,): the rows of each."""
    keys_span: tuple[int, int]
    """Offset and size of the keys in the file, of no bytes where there are none."""
    keys_sha256: str
    dictionaries: pa.RecordBatch
    """No rows, in the schema of the rows, with the dictionaries that the messages' codes are of."""
    dropped_rows: int
    """Rows left out because their key was null."""
    filled: frozenset[str]
    """The columns that have a value."""


class PartWriter:
    """Writes a part."""

    def __init__(self, path: str | os.PathLike[str], n_shards: int, storage: ColumnStorage) -> None:
        self._file = Path(path).open("wb")  # noqa: SIM115 (closed by `close`)
        self._n_shards = n_shards
        self._storage = storage
        self._end = 0
        self._shards: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self._positions: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._sums: list[int] = []

    def write(self, batch: pa.RecordBatch, hashes: np.ndarray, position: int) -> None:
        """Divide stored rows among shards: one stable sort, one take, one message for each shard.

        `hashes`: uint64, shape (rows,), of their keys. `position`: the number of their fragment.
        """
        numbers = hashes % np.uint64(self._n_shards)
        # numpy sorts 16-bit integers by radix, several times faster than wider ones.
        kind = np.uint16 if self._n_shards <= 2**16 else np.uint32
        # Stable, since rows of a partition keep the order of the source.
        order = np.argsort(numbers.astype(kind), kind="stable")
        counts = np.bincount(numbers.astype(np.int64), minlength=self._n_shards)
        taken = batch.take(pa.array(order))
        present = np.flatnonzero(counts)
        start = 0
        for count in counts[present].tolist():
            self._append(taken.slice(start, count))
            self._positions.append(position)
            start += count
        self._shards.append(present)
        self._rows.append(counts[present])

    def _append(self, batch: pa.RecordBatch) -> None:
        message = batch.serialize()
        self._spans.append((self._end, message.size))
        self._sums.append(_sum_of(message))
        self._file.write(message)
        # Arrow wants buffers at multiples of 64, also in a message that is mapped.
        padding = -message.size % MESSAGE_ALIGNMENT
        self._file.write(b"\0" * padding)
        self._end += message.size + padding

    def finish(
        self,
        key_hashes: np.ndarray,
        key_rows: np.ndarray,
        keys: pa.Table | None,
        dropped_rows: int,
        filled: Collection[str],
    ) -> PartIndex:
        """Write keys, tail and footer, and close the file."""
        content = b"" if keys is None else table_bytes(keys)
        self._file.write(content)
        index = PartIndex(
            shards=_joined(self._shards).astype(np.uint32),
            positions=np.array(self._positions, np.int64),
            spans=np.array(self._spans, np.int64).reshape(-1, 2),
            rows=_joined(self._rows).astype(np.int64),
            sums=np.array(self._sums, np.uint64),
            digests=None,
            key_hashes=key_hashes,
            key_rows=key_rows,
            keys_span=(self._end, len(content)),
            keys_sha256=hashlib.sha256(content).hexdigest(),
            dictionaries=self._storage.dictionaries(),
            dropped_rows=dropped_rows,
            filled=frozenset(filled),
        )
        _write_tail(self._file, self._end + len(content), index)
        self._file.close()
        return index

    def close(self) -> None:
        """Close what is open; for the way out after an error."""
        self._file.close()


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def read_part_keys(
    read: Callable[[int, int], bytes], index: PartIndex, name: str
) -> pa.Table | None:
    """Return the keys of a part, in the order of `key_hashes`; None: it has no rows.

    `read` is as `read_index` has it. SourceError where they are damaged.
    """
    content = read(*index.keys_span) if index.keys_span[1] else b""
    if hashlib.sha256(content).hexdigest() != index.keys_sha256:
        raise SourceError(f"The rows of shards at {name} are damaged: begin the run again.")
    return pa.ipc.open_stream(content).read_all() if content else None


def _write_tail(file: BinaryIO, end: int, index: PartIndex) -> str:
    """Write tail and footer; returns the SHA-256 of the tail, as hexadecimal digits."""
    about = {
        "dropped_rows": index.dropped_rows,
        "filled": sorted(index.filled),
        "keys": [*index.keys_span, index.keys_sha256],
    }
    columns = {
        "shard": index.shards,
        "position": index.positions,
        "offset": index.spans[:, 0],
        "size": index.spans[:, 1],
        "rows": index.rows,
        "sum": index.sums,
    }
    if index.digests is not None:
        columns["digest"] = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_DIGEST_BYTES), len(index.digests), [None, pa.py_buffer(index.digests)]
        )
    messages = pa.RecordBatch.from_pydict(columns)
    messages = messages.replace_schema_metadata({_ABOUT: json.dumps(about)})
    keys = pa.RecordBatch.from_pydict({"hash": index.key_hashes, "rows": index.key_rows})
    sink = pa.BufferOutputStream()
    for batch in (messages, keys, index.dictionaries):
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
    tail = sink.getvalue()
    file.write(tail)
    file.write(_FOOTER.pack(end, tail.size, _sum_of(tail), _MARK))
    return hashlib.sha256(tail).hexdigest()


def read_index(
    read: Callable[[int, int], bytes], size: int, name: str, sha256: str = ""
) -> PartIndex:
    """Read the index of a part.

    `read` is called with offset and size; `sha256` is what `lay_in_shard_order` returned for a part
    in a store. SourceError where it is not a whole part, or not the one that was written.
    """
    try:
        return _read_index(read, size, sha256)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"The rows of shards at {name} are damaged ({error}): begin the run again."
        ) from error


def _read_index(read: Callable[[int, int], bytes], size: int, sha256: str) -> PartIndex:
    footer = read(size - _FOOTER.size, _FOOTER.size) if size >= _FOOTER.size else b""
    start, length, wanted, mark = _FOOTER.unpack(footer) if footer else (0, 0, 0, b"")
    if mark != _MARK or start + length + _FOOTER.size != size:
        raise ValueError("they have no whole footer")
    content = read(start, length)
    if _sum_of(content) != wanted or (sha256 and hashlib.sha256(content).hexdigest() != sha256):
        raise ValueError("their index was changed")
    tail = pa.BufferReader(content)
    messages, keys, dictionaries = (read_one(tail) for _ in range(3))
    about = json.loads(messages.schema.metadata[_ABOUT])
    return PartIndex(
        shards=messages.column("shard").to_numpy(),
        positions=messages.column("position").to_numpy(),
        spans=np.stack([messages.column(name).to_numpy() for name in ("offset", "size")], axis=1),
        rows=messages.column("rows").to_numpy(),
        sums=messages.column("sum").to_numpy(),
        digests=_digests(messages),
        key_hashes=keys.column("hash").to_numpy(),
        key_rows=keys.column("rows").to_numpy(),
        keys_span=(int(about["keys"][0]), int(about["keys"][1])),
        keys_sha256=str(about["keys"][2]),
        dictionaries=dictionaries,
        dropped_rows=about["dropped_rows"],
        filled=frozenset(about["filled"]),
    )


def _digests(messages: pa.RecordBatch) -> np.ndarray | None:
    if "digest" not in messages.schema.names:
        return None
    column = messages.column("digest")
    flat = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _DIGEST_BYTES)
    return flat.reshape(-1, _DIGEST_BYTES)


def check_message(message: Any, digest: np.ndarray, path: str) -> None:
    """Compare a message of a part in a store with its SHA-256, uint8 of shape (32,).

    Raises:
        IntegrityError: They differ.
    """
    if hashlib.sha256(message).digest() != digest.tobytes():
        raise IntegrityError(
            f"Rows of a shard in {path} are not those that were written there: they were changed "
            "or damaged. None of them was used; find out who can write to the store, delete the "
            f"folder {os.path.dirname(path)} in it, and resume the run."
        )


def _sum_of(message: Any) -> int:
    """A checksum that costs next to nothing: it shows any change within one word."""
    # No byte is left out: Arrow pads messages and streams to multiples of 8.
    words = np.frombuffer(message, np.uint64, len(message) // 8)
    return int(np.add.reduce(words, dtype=np.uint64))


def is_part_whole(path: str) -> bool:
    """Whether a part file on this machine's disk is as it was written."""
    try:
        with pa.memory_map(path) as source:
            content = memoryview(source.read_buffer())

        def read(at: int, size: int) -> bytes:
            return bytes(content[at : at + size])

        index = read_index(read, len(content), path)
        read_part_keys(read, index, path)
    except (SourceError, OSError, ValueError):
        return False
    spans = zip(index.spans.tolist(), index.sums.tolist(), strict=True)
    return all(_sum_of(content[at : at + size]) == wanted for (at, size), wanted in spans)


def lay_in_shard_order(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Write a part once more, for a store: with the messages of each shard side by side.

    A bucket gives a shard's rows in one request then. Returned is the SHA-256 of the tail, in which
    those of the messages stand.
    """
    size = os.path.getsize(path)
    with pa.memory_map(os.fspath(path)) as source, Path(target).open("wb") as file:
        index = read_index(lambda offset, count: source.read_at(count, offset), size, str(path))
        order = np.argsort(index.shards, kind="stable")
        spans = []
        digests = []
        for offset, length in index.spans[order].tolist():
            spans.append((file.tell(), length))
            message = source.read_at(length + -length % MESSAGE_ALIGNMENT, offset)
            digests.append(hashlib.sha256(memoryview(message)[:length]).digest())
            file.write(message)
        end = file.tell()
        file.write(source.read_at(index.keys_span[1], index.keys_span[0]))
        ordered = replace(
            index,
            keys_span=(end, index.keys_span[1]),
            shards=index.shards[order],
            positions=index.positions[order],
            spans=np.array(spans, np.int64).reshape(-1, 2),
            rows=index.rows[order],
            sums=index.sums[order],
            digests=np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST_BYTES),
        )
        return _write_tail(file, file.tell(), ordered)
