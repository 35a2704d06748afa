"""The artifacts of a run as files of their own, in a folder for each partition."""

import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa

from partwise.errors import InputError
from partwise.runs.bundle import StoredArtifact, artifact_from_row, decode, neighbours
from partwise.runs.contents import READ_THREADS
from partwise.runs.key_texts import key_texts
from partwise.store.store import Store

MOST_READ_BYTES = 8 << 20
"""Of one request, and so in memory for each thread, unless a single artifact is larger."""
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ ,=+@()-]{0,99}(?<![. ])")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """What came of writing artifacts as files."""

    files: int
    partitions: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: str
    partition: str
    artifact: StoredArtifact


def write_artifact_files(
    ledger: pa.Table,
    read: Callable[[StoredArtifact, StoredArtifact], bytes],
    target: Store,
    *,
    pattern: str = "*",
    partition_ids: Collection[str] | None = None,
    overwrite: bool = False,
) -> WrittenFiles:
    """Write artifacts as `Run.export` does, each checked against its checksum.

    Each file appears whole or not at all, and one that is there with the same content stays as it
    is. `read` returns the stored bytes from one artifact of a bundle to another.
    """
    files = _files(ledger, pattern, partition_ids)
    if not files:
        names = {file["filename"] for row in ledger["artifacts"].to_pylist() for file in row}
        some = ", ".join(sorted(names)[:10]) or "none"
        raise InputError(f"No artifact is named like {pattern!r}; there are: {some}.")
    spans = neighbours([file.artifact for file in files], MOST_READ_BYTES)

    def write(span: tuple[int, int]) -> None:
        some = files[slice(*span)]
        first = some[0].artifact.offset
        stored = read(some[0].artifact, some[-1].artifact)
        for file in some:
            start = file.artifact.offset - first
            content = decode(
                stored[start : start + file.artifact.stored_bytes],
                file.artifact,
                f"the partition {file.partition}",
            )
            try:
                (target.write if overwrite else target.create)(file.path, content)
            except FileExistsError as error:
                raise InputError(
                    f"{file.path} in {target.url} has another content: choose an empty folder, or "
                    "have it replaced (overwrite=True, --force on the command line)."
                ) from error

    with ThreadPoolExecutor(READ_THREADS) as threads:
        for _ in threads.map(write, spans):
            pass
    return WrittenFiles(
        files=len(files),
        partitions=len({file.partition for file in files}),
        size_bytes=sum(file.artifact.size_bytes for file in files),
    )


def _files(ledger: pa.Table, pattern: str, partition_ids: Collection[str] | None) -> list[_File]:
    """Return what is to be written, in the order of the bundles."""
    names = ledger["partition_id"].to_pylist()
    folders = _folders(key_texts(ledger), names)
    wanted = None if partition_ids is None else set(partition_ids)
    found = [
        _File(path=f"{folder}/{artifact.filename}", partition=name, artifact=artifact)
        for folder, name, row in zip(folders, names, ledger["artifacts"].to_pylist(), strict=True)
        if wanted is None or name in wanted
        for artifact in map(artifact_from_row, row)
        if fnmatchcase(artifact.filename, pattern)
    ]
    return sorted(found, key=lambda file: (file.artifact.bundle, file.artifact.offset))


def _folders(texts: list[str], names: list[str]) -> list[str]:
    """Return the folder of each partition: its key where that is a safe name, else its ID.

    All have their IDs where two would be one folder, as where capital letters make no difference.
    """
    folders = [
        text if _FOLDER.fullmatch(text) else name for text, name in zip(texts, names, strict=True)
    ]
    return folders if len({folder.lower() for folder in folders}) == len(folders) else names
