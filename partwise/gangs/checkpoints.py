"""Checkpoints as ranks write and read them; `partwise.runs.checkpoints` says what one is."""

import contextlib
import hashlib
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from partwise.errors import InputError, IntegrityError, RunBusyError, StoreError
from partwise.formatting import shortened
from partwise.gangs.folder_files import FolderFile, files_below
from partwise.ranks.checkpoint_schedule import CheckpointSchedule
from partwise.runs.bundle import is_name_below
from partwise.runs.checkpoints import (
    DOCUMENT,
    CheckpointDocument,
    CheckpointFile,
    FilePart,
    checkpoint_folders,
    checkpoint_order,
    complete_checkpoints,
)
from partwise.store.signing import SigningKey
from partwise.store.store import Store

KEPT = 2
"""How many checkpoints stay: the newest may turn out to be damaged."""
PART_BYTES = 64 << 20

_logger = logging.getLogger(__name__)


class StoreCheckpoints:
    """Checkpoints of one attempt of a gang; see `partwise.ranks.context.Checkpoints`.

    `directory` is a folder of this rank on this machine, for what is read. `resume_from` and
    `resume_sha256` are what `resume_point` returned; "": any document counts. `key` None: nobody
    signs what is kept.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        *,
        run_id: str,
        generation: int,
        attempt: int,
        directory: Path,
        resume_from: str = "",
        resume_sha256: str = "",
        key: SigningKey | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._run_id = run_id
        self._generation, self._attempt = generation, attempt
        self._prefix = f"{generation:04d}-{attempt:02d}"
        self._directory = directory
        self._resume_from = resume_from
        self._resume_sha256 = resume_sha256
        self._key = key
        self._resumed: Path | None = None
        self._number = 0
        self._schedule = CheckpointSchedule()

    def save(
        self,
        write: Callable[[Path], object],
        *,
        step: int,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> bool:
        """Keep what `write(a new folder)` writes, where that is due; see `RankContext.checkpoint`.

        Raises:
            InputError: Nothing was written.
            RunBusyError: The run goes on, or has ended, without this execution.
            StoreError: The store cannot be written.
        """
        if not self._schedule.is_due(step, every_steps, every_minutes):
            return False
        self._check_generation()
        started = time.monotonic()
        self._number += 1
        name = f"{self._prefix}-{self._number:06d}-{secrets.token_hex(4)}"
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="checkpoint-") as folder:
            write(Path(folder))
            size = self._upload(Path(folder), f"{self._root}/{name}", step)
        self._schedule.kept(step)
        seconds = time.monotonic() - started
        _logger.info("checkpoint at step %d: %.1f MB in %.1f s", step, size / 1e6, seconds)
        # Once more, now that the new one counts. A generation or attempt that begins from here on
        # finds it, and so needs none of those that are removed below, however late that is; one
        # that had begun may be reading any of them.
        self._check_generation()
        # What stays is removed next time.
        with contextlib.suppress(StoreError):
            self._remove_older(checkpoint_order(name))
        return True

    def _check_generation(self) -> None:
        """See that the run is still this attempt's.

        Raises:
            RunBusyError: It has ended, was removed, or is begun again, be it by another attempt.
            StoreError: The store cannot be read.
        """
        # With the first checkpoint, and not with the module: it takes a third of a rank's start.
        from partwise.runs.contents import list_generations

        generations = list_generations(self._store, self._run_id)
        if generations.is_over(self._generation, self._attempt):
            raise RunBusyError(
                f"The run {self._run_id!r} went on or ended without this rank, which was out of "
                "reach for too long; it reads and keeps no more checkpoints."
            )

    def resume_from(self) -> Path | None:
        """Return a local folder with what this attempt goes on from; see `RankContext.resume_from`.

        Raises:
            InputError: There is no such folder.
            IntegrityError: A part differs from its checksum.
            RunBusyError: The run goes on, or has ended, without this execution.
            StoreError: The store cannot be read.
        """
        if self._resume_from and self._resumed is None:
            source, target = self._resume_from, self._directory / "resume-from"
            if "://" in source or os.path.isabs(source):
                self._resumed = _given_folder(source, target)
            else:
                try:
                    self._resumed = self._download(source, target)
                except (IntegrityError, StoreError, FileNotFoundError):
                    # It may be gone because the run went on without this rank.
                    self._check_generation()
                    raise
        return self._resumed

    def _upload(self, folder: Path, target: str, step: int) -> int:
        """Write the files of a folder, and then the document; return their size in bytes."""
        found = list(files_below(folder, keep_links=True))
        if not found:
            raise InputError(
                f"The checkpoint of step {step} is empty: write() has to leave a file in the "
                "folder that it is given."
            )
        files = upload_files(self._store, target, found)
        document, path = CheckpointDocument(step=step, files=files), f"{target}/{DOCUMENT}"
        self._store.create(path, document.to_bytes(path, self._key))
        return sum(part.size_bytes for file in files for part in file.parts)

    def _download(self, source: str, target: Path) -> Path:
        path = f"{source}/{DOCUMENT}"
        where = f"{path} in {self._store.url}"
        content = self._store.read_document(path)
        # Ranks have no keys to verify with: they compare it with what the driver saw, which has.
        if self._resume_sha256 and hashlib.sha256(content).hexdigest() != self._resume_sha256:
            raise IntegrityError(
                f"{where} was changed since the driver saw that it is signed; find out who can "
                "write to the store, and resume the run."
            )
        document = CheckpointDocument.from_bytes(content, where)
        write_files(document.files, target, partial(_read_part, self._store, source))
        if source.startswith(f"{self._root}/"):
            self._schedule.kept(document.step)
        return target

    def _remove_older(self, newest: tuple[int, int, int]) -> None:
        """Remove all but the last checkpoints, and what killed processes left of others."""
        complete = complete_checkpoints(self._store, self._root)
        # None of a later attempt: a rank that was given up once removed what that was reading.
        complete = [name for name in complete if checkpoint_order(name) <= newest]
        if not complete:
            # Another generation has begun since, and has removed them, the newest as well.
            return
        first_kept = checkpoint_order(complete[-KEPT:][0])
        for name in checkpoint_folders(self._store, self._root):
            if checkpoint_order(name) < first_kept:
                # First what makes it count: it is there as a whole, or not at all.
                self._store.delete(f"{self._root}/{name}/{DOCUMENT}")
                self._store.delete_folder(f"{self._root}/{name}")


def upload_files(
    store: Store, target: str, found: Sequence[FolderFile], prefix: str = ""
) -> tuple[CheckpointFile, ...]:
    """Write the files of a folder to the store, in parts.

    `target` is the folder of the parts, relative to the store; their names begin with `prefix`.

    Raises:
        InputError: A file cannot have its name everywhere.
    """
    files, number = [], 0
    for one in found:
        if not is_name_below(one.name):
            folder = str(one.path).removesuffix(f"/{one.name}")
            raise InputError(
                f"The path {shortened(one.name)!r} below {folder} is too long to be sent: give it "
                "at most 255 bytes between two '/' and 900 in all."
            )
        if one.link:
            files.append(CheckpointFile(path=one.name, link=one.link))
            continue
        parts = []
        for content in _pieces(one.path):
            digest, name = hashlib.sha256(content).hexdigest(), f"{prefix}{number:05d}"
            store.create(f"{target}/{name}", content)
            parts.append(FilePart(name=name, size_bytes=len(content), sha256=digest))
            number += 1
        runs = os.access(one.path, os.X_OK)
        files.append(CheckpointFile(path=one.name, parts=tuple(parts), executable=runs))
    return tuple(files)


def write_files(
    files: Sequence[CheckpointFile], target: Path, read: Callable[[FilePart], bytes]
) -> None:
    """Write files that were uploaded into a folder of this machine, part by part."""
    for file in files:
        path = target / file.path
        if file.link:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(file.link)
            continue
        with new_file(path) as sink:
            for part in file.parts:
                sink.write(read(part))
        if file.executable:
            path.chmod(path.stat().st_mode | 0o111)


def new_file(path: Path) -> BinaryIO:
    """Open a file for writing, in a folder that need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def copy_object(store: Store, name: str, path: Path) -> None:
    """Copy an object of any size to a file of this machine."""
    size = store.size(name)
    with new_file(path) as sink:
        for start in range(0, size, PART_BYTES):
            sink.write(store.read_range(name, start, min(PART_BYTES, size - start)))


def _read_part(store: Store, source: str, part: FilePart) -> bytes:
    try:
        content = store.read(f"{source}/{part.name}")
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise IntegrityError(
            f"The part {part.name} of the checkpoint {source} in {store.url} differs from its "
            f"checksum, so it was changed or damaged; delete {source}/{DOCUMENT} there, and resume "
            "the run: it goes on from the checkpoint before."
        )
    return content


def _given_folder(url: str, target: Path) -> Path:
    """Return a folder that the caller named; one behind a URL is copied to `target`."""
    if "://" not in url:
        if not Path(url).is_dir():
            raise InputError(
                f"resume_from={url!r}: there is no such folder on {os.uname().nodename}; name one "
                "that all workers see."
            )
        return Path(url)
    store = Store.parse(url)
    names = store.list("")
    if not names:
        raise InputError(f"resume_from={url!r}: there are no files; name the folder of some.")
    for name in names:
        copy_object(store, name, target / name)
    return target


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while content := file.read(PART_BYTES):
            yield content
