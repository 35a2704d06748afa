"""Inputs of a script: files and folders that a node has, or brings to its disk, once for its ranks.

The driver looks whether an input is there, and describes it as one of the classes here; a node
brings it, which fails with the input's name when it has vanished meanwhile. Rows are not files: the
gang has them as a source, and the node writes them as Parquet (`write_rows`).
"""

import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import (
    ArtifactNotFoundError,
    InputError,
    IntegrityError,
    KeyClassError,
    PartitionNotFoundError,
)
from partwise.gangs.checkpoints import copy_object, new_file, upload_files, write_files
from partwise.gangs.folder_files import files_below
from partwise.ranks.protocols import Share
from partwise.runs.bundle import LOG_FILENAME, StoredArtifact, artifact_from_row, decode
from partwise.runs.checkpoints import CheckpointFile, FilePart
from partwise.runs.documents import RUN_SCHEME, run_path
from partwise.runs.run import Run
from partwise.runs.sent_files import (
    content_of_sent,
    parse_sent,
    read_sent,
    sent_folder,
    sent_url,
    write_sent,
)
from partwise.scripts.web_file import WEB, changed, find_web_file, vanished
from partwise.store.store import Store

ROWS_FILE = "rows.parquet"
_THREADS = 8
"""That ask for objects at once."""


class ScriptInput(Protocol):
    """An input as the driver describes it; a value that pickles."""

    @property
    def identity(self) -> str:
        """What changes when the input does, as far as that is known without reading it."""

    def bring(self, name: str, folder: Path, store: Store) -> Path:
        """Return where the input lies on this machine.

        `folder` is a new one of the node for it.

        Raises:
            InputError: It is not there any more.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPath:
    """A file or folder that the workers see under the path that the driver knows."""

    path: str
    identity: str = ""

    def bring(self, name: str, folder: Path, store: Store) -> Path:  # noqa: ARG002 (the protocol)
        """Return the path as it is; it is not copied."""
        path = Path(self.path)
        if not path.exists():
            raise vanished(name, self.path)
        # What a script has added to a folder meanwhile is not a change of what was there.
        lost = _sizes_and_seconds(self.identity) - _sizes_and_seconds(_path_identity(path))
        if lost:
            raise changed(name, min(lost)[0])
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedPath:
    """A file or folder of the driver's machine, which the workers do not see."""

    path: str
    is_file: bool
    source: str
    """Folder of its parts in the artifact store."""
    files: tuple[CheckpointFile, ...]
    identity: str = ""

    def bring(self, name: str, folder: Path, store: Store) -> Path:
        """Copy it out of the store."""
        try:
            write_files(self.files, folder, lambda part: self._read(name, part, store))
        except FileNotFoundError as error:
            raise vanished(name, self.path) from error
        return folder / self.files[0].path if self.is_file else folder

    def _read(self, name: str, part: FilePart, store: Store) -> bytes:
        content = store.read(f"{self.source}/{part.name}")
        if hashlib.sha256(content).hexdigest() != part.sha256:
            raise IntegrityError(
                f"{self.source}/{part.name} in {store.url}, a part of the input {name!r}, "
                f"{self.path}, differs from its checksum, so it was changed or damaged; begin the "
                "run again."
            )
        return content


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFiles:
    """Objects of a bucket."""

    store: Store
    names: tuple[str, ...]
    """Of the objects, relative to that store."""
    times: tuple[datetime, ...]
    """When each was last written, as it was found."""
    is_file: bool
    identity: str = ""

    def bring(self, name: str, folder: Path, store: Store) -> Path:  # noqa: ARG002 (the protocol)
        """Copy the objects, piece by piece."""
        for each, found in zip(self.names, self.times, strict=True):
            try:
                copy_object(self.store, each, folder / each)
                # Asked afterwards, so that a change in the middle is one as well.
                written = self.store.modified(each)
            except FileNotFoundError as error:
                raise vanished(name, f"{self.store.url}/{each}") from error
            if written != found:
                raise changed(name, f"{self.store.url}/{each}")
        return folder / self.names[0] if self.is_file else folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArtifacts:
    """Artifacts of a run in the artifact store."""

    run_id: str
    files: tuple[tuple[str, StoredArtifact], ...]
    """Each with its path below the input's folder."""
    is_file: bool
    identity: str = ""

    def bring(self, name: str, folder: Path, store: Store) -> Path:
        """Read them, each checked against its sha256."""
        for path, artifact in self.files:
            bundle = run_path(self.run_id, artifact.bundle)
            try:
                stored = store.read_range(bundle, artifact.offset, artifact.stored_bytes)
            except FileNotFoundError as error:
                raise vanished(name, f"{RUN_SCHEME}{self.run_id}/{path}") from error
            with new_file(folder / path) as sink:
                sink.write(decode(stored, artifact, f"the run {self.run_id!r}"))
        return folder / self.files[0][0] if self.is_file else folder


def find_input(name: str, text: str, store: Store) -> ScriptInput:
    """Look for an input that is named by a text.

    It is a path of a file or folder; a URL of one in a bucket, or behind http; artifacts of a run
    of the artifact store: run://RUN, run://RUN/KEY or run://RUN/KEY/FILE; or what `send_input`
    returned.
    """
    if (sent := parse_sent(text)) is not None:
        return _find_sent(name, text, sent, store)
    if text.startswith(RUN_SCHEME):
        return _find_artifacts(name, text, store)
    if text.startswith(WEB):
        return find_web_file(name, text)
    if "://" in text and not text.startswith("file://"):
        return _find_objects(name, text)
    found = find_path(text.removeprefix("file://"))
    if found is None:
        raise vanished(name, str(Path(text.removeprefix("file://")).expanduser().absolute()))
    return found


def find_path(text: str) -> SharedPath | None:
    """Look for a file or folder of this machine; None: it is not there."""
    path = Path(text).expanduser().absolute()
    return SharedPath(path=str(path), identity=_path_identity(path)) if path.exists() else None


def upload_input(found: SharedPath, store: Store, target: str) -> UploadedPath:
    """Write a file or folder of this machine to the store, for workers that do not see it."""
    return UploadedPath(
        path=found.path,
        is_file=Path(found.path).is_file(),
        source=target,
        files=_upload(found, store, target),
        identity=found.identity,
    )


def send_input(found: SharedPath, store: Store, run_id: str) -> str:
    """Write a file or folder of this machine to a run that begins elsewhere; return its URL.

    The run need not be there yet.
    """
    # No name is given twice: a garbage collection that stood still deletes nothing new.
    token = secrets.token_hex(4)
    files = _upload(found, store, sent_folder(run_id), f"{token}-")
    path = Path(found.path)
    # Last: a list names files that are there.
    name = write_sent(store, run_id, token, files)
    return sent_url(run_id, name, path.name if path.is_file() else "")


def _upload(
    found: SharedPath, store: Store, target: str, prefix: str = ""
) -> tuple[CheckpointFile, ...]:
    path = Path(found.path)
    files = list(files_below(path, keep_links=True))
    if not files:
        raise InputError(f"The folder {found.path} is empty, so it cannot be an input.")
    return upload_files(store, target, files, prefix)


def _find_sent(name: str, text: str, sent: tuple[str, str, str], store: Store) -> UploadedPath:
    run_id, listed, file = sent
    try:
        files = read_sent(store, run_id, listed)
    except FileNotFoundError as error:
        raise vanished(name, text, f" in {store.url}") from error
    return UploadedPath(
        path=text,
        is_file=bool(file),
        source=sent_folder(run_id),
        files=files,
        # By content: where it lay on the caller's machine makes it no other input.
        identity=content_of_sent(listed),
    )


def write_rows(share: Share, folder: Path) -> Path:
    """Write all rows of a share as a Parquet file, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ROWS_FILE
    writer: pq.ParquetWriter | None = None
    try:
        for batch in share.batches():
            # Of the rows as they come: dictionaries may be shown as another type.
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
            writer.write_batch(batch)
        if writer is None:
            pq.write_table(pa.Table.from_batches([], share.schema), path)
    finally:
        if writer is not None:
            writer.close()
    return path


def _find_objects(name: str, text: str) -> StoredFiles:
    """Find an object of this URL, or those in the folder of this name."""
    head, _, last = text.rstrip("/").rpartition("/")
    # The name of a bucket alone stands in nothing that could be asked.
    if "://" in head and not text.endswith("/"):
        parent = Store.parse(head)
        if parent.exists(last):
            return _stored_files(name, text, parent, (last,), is_file=True)
    folder = Store.parse(text)
    names = tuple(folder.list(""))
    if not names:
        raise vanished(name, text)
    return _stored_files(name, text, folder, names, is_file=False)


def _stored_files(
    name: str, text: str, store: Store, names: tuple[str, ...], *, is_file: bool
) -> StoredFiles:
    try:
        with ThreadPoolExecutor(_THREADS) as threads:
            times = tuple(threads.map(store.modified, names))
    except FileNotFoundError as error:
        raise vanished(name, text) from error
    lines = [f"{each} {time.isoformat()}" for each, time in zip(names, times, strict=True)]
    identity = "\n".join([text, *lines])
    return StoredFiles(store=store, names=names, times=times, is_file=is_file, identity=identity)


def _find_artifacts(name: str, text: str, store: Store) -> RunArtifacts:
    run_id, _, rest = text.removeprefix(RUN_SCHEME).partition("/")
    key, _, filename = rest.partition("/")
    run = Run.open(run_id, store)
    rows = _rows_of(run, key)
    files = []
    for row in rows:
        for artifact in map(artifact_from_row, row["artifacts"]):
            path = artifact.filename if key else f"{row['partition_id']}/{artifact.filename}"
            if artifact.filename == filename or (not filename and path != LOG_FILENAME):
                files.append((path, artifact))
    if not files:
        what = f"artifact {filename!r}" if filename else "artifacts"
        raise ArtifactNotFoundError(
            f"The input {name!r}, {text}: the run ({run.status.value}) has no {what} there."
        )
    if filename and len(files) > 1:
        raise InputError(
            f"The input {name!r}, {text}: {len(files):,} partitions of the run have {filename!r}, "
            f"and no KEY says whose is meant: write {RUN_SCHEME}{run_id}/KEY/{filename}."
        )
    return RunArtifacts(
        run_id=run_id,
        files=tuple(files),
        is_file=bool(filename),
        identity="\n".join(f"{path} {artifact.sha256}" for path, artifact in files),
    )


def _rows_of(run: Run, key: str) -> list[dict[str, Any]]:
    """Return the ledger row of a partition, named as `--key` does or by partition_id; "": all."""
    rows: list[dict[str, Any]] = run.ledger.to_pylist()
    if not key:
        return rows
    names = [key]
    with suppress(KeyClassError):
        names.insert(0, run.partition_id(key))
    chosen = [row for name in names for row in rows if row["partition_id"] == name]
    if not chosen:
        raise PartitionNotFoundError(f"The run {run.run_id!r} has no partition {key!r}.")
    return chosen[:1]


def _sizes_and_seconds(identity: str) -> set[tuple[str, str, int]]:
    """Return what two machines see alike of files: a mount may keep no part of a second."""
    files = [line.rsplit(" ", 2) for line in identity.split("\n")[1:]]
    return {(path, size, int(time_ns) // 1_000_000_000) for path, size, time_ns in files}


def _path_identity(path: Path) -> str:
    """Return names, sizes and times of a file, or of all files of a folder."""
    lines = [_on_one_line(path)]
    # Links to folders have no lines: `latest` may lead to another one in each attempt.
    for file in files_below(path, follow=False):
        if not file.link:
            about = file.path.stat()
            lines.append(f"{_on_one_line(file.path)} {about.st_size} {about.st_mtime_ns}")
    return "\n".join(lines)


def _on_one_line(path: Path) -> str:
    return str(path).replace("\n", "\\n")
