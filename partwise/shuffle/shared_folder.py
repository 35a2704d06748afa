"""Files that the driver makes for workers: on a disk that they share, or by way of the store."""

import contextlib
import hashlib
import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from partwise.errors import IntegrityError, StoreError
from partwise.runs.documents import SCRATCH, run_path
from partwise.shuffle.part_file import MESSAGE_ALIGNMENT, check_message
from partwise.shuffle.plan import UnsortedShard
from partwise.store.store import Store

REQUESTED_BYTES = 8 << 20
"""Of one request of several at a time."""
_THREADS = 8


Medium = Literal["disk", "store"]
"""On a file system that the workers share, or below the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file that the driver made for the workers."""

    path: str
    where: Medium
    sha256: str = ""
    """Of what went by way of the store. It travels with the task, not by way of the store: work is
    unpickled, and whoever may write to the store would else have the workers run theirs."""


class SharedFolder:
    """The driver's folder for what it hands to workers; gone when the execution ends.

    `store` is used where workers do not see `directory`, which `shared` says.
    """

    def __init__(
        self, directory: Path, store: Store, run_id: str, token: str, *, shared: bool
    ) -> None:
        self.directory = directory
        self.store = store
        self.folder = run_path(run_id, SCRATCH, token)
        self.where: Medium = "disk" if shared else "store"

    def hand_over(self, path: str) -> StagedFile:
        """Make a file of the folder reachable for workers."""
        if self.where == "disk":
            return StagedFile(path=path, where="disk")
        name = f"{self.folder}/{os.path.basename(path)}"
        content = Path(path).read_bytes()
        self.store.create(name, content)
        return StagedFile(path=name, where="store", sha256=hashlib.sha256(content).hexdigest())

    def write(self, name: str, content: bytes) -> StagedFile:
        """Make a file of this content reachable for workers."""
        path = self.directory / name
        path.write_bytes(content)
        return self.hand_over(str(path))

    def close(self) -> None:
        """Remove the folder, and what went by way of the store."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.where == "store":
            # The run has come to its end; what stays here is left to `partwise runs gc`.
            with contextlib.suppress(StoreError):
                self.store.delete_folder(self.folder)


def fetch(staged: StagedFile, store: Store, directory: str) -> str:
    """Return the local path of a staged file, read from the store at most once per folder.

    Raises:
        IntegrityError: It is not what the driver wrote.
    """
    if staged.where == "disk":
        return staged.path
    path = os.path.join(directory, os.path.basename(staged.path))
    if not os.path.exists(path):
        content = store.read(staged.path)
        if hashlib.sha256(content).hexdigest() != staged.sha256:
            raise IntegrityError(
                f"{staged.path} in {store.url} is not what this run's driver wrote: it was changed "
                "or damaged. Nothing of it was used; find out who can write there, and resume."
            )
        # Several shards of a worker may fetch it at once, and none may see half of it.
        temporary = f"{path}.{secrets.token_hex(4)}"
        Path(temporary).write_bytes(content)
        os.replace(temporary, path)
    return path


def fetch_shard(
    sharded: UnsortedShard, where: Medium, store: Store, shared: str, directory: str
) -> UnsortedShard:
    """Return a shard with its files on this machine: of those in the store, just its own rows.

    `shared` is a folder for what all shards have in common, `directory` one for this shard alone.

    Raises:
        IntegrityError: They are not what was written to the store.
    """
    if where == "disk":
        return sharded
    staged = StagedFile(path=sharded.dictionaries, where=where, sha256=sharded.dictionaries_sha256)
    dictionaries = fetch(staged, store, shared)
    path = os.path.join(directory, f"{sharded.number:05d}.rows")
    fetched = []
    spans: list[tuple[str, int, int, int]] = []
    end = 0
    for rows in sharded.written:
        # The rows of a shard lie side by side in an object.
        first, last = rows.spans[:, 0].min(), (rows.spans[:, 0] + rows.spans[:, 1]).max()
        # A multiple of 64, as both are, so that buffers stay aligned.
        shift = end - int(first)
        spans += [
            (rows.path, start, min(REQUESTED_BYTES, int(last) - start), start + shift)
            for start in range(int(first), int(last), REQUESTED_BYTES)
        ]
        end = int(last) + shift
        end += -end % MESSAGE_ALIGNMENT
        own = rows.spans + np.array([shift, 0])
        fetched.append(replace(rows, path=path, spans=own))
    with open(path, "wb") as file:
        file.truncate(end)

        def copy(span: tuple[str, int, int, int]) -> None:
            name, start, size, place = span
            content = memoryview(store.read_range(name, start, size))
            while content:
                written = os.pwrite(file.fileno(), content, place)
                content, place = content[written:], place + written

        # Of each part that the rows were divided into, there is a piece: a request each, at once.
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(copy, spans):
                pass
    for stored, here in zip(sharded.written, fetched, strict=True):
        if here.digests is not None:
            content = memoryview(pa.memory_map(path).read_buffer())
            for (offset, size), digest in zip(here.spans.tolist(), here.digests, strict=True):
                check_message(content[offset : offset + size], digest, stored.path)
    return replace(sharded, written=tuple(fetched), dictionaries=dictionaries)
