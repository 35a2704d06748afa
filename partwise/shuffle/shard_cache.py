"""Where part files lie: for one run, or for later runs on the same rows too.

Workers that see this machine's disk find them in a scratch folder there, all others in the artifact
store; both are a `Store`, so there is one way to write and to find them.

    <scratch folder, or artifact store>/shards/<what the rows and their division have in common>/
        <time>-<token>/00000-<random>.part      the parts that one execution wrote
        complete.json                           created last: the names of the parts that count, and
                                                the SHA-256 of their indexes

In an artifact store, which others may write too, `complete.json` is signed, and parts are used
again only where a key of this process signed it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from partwise.errors import InputError, SignatureError, StoreError
from partwise.shuffle.part_file import PART_VERSION
from partwise.shuffle.shared_folder import Medium, SharedFolder
from partwise.shuffle.write import Division
from partwise.sources.descriptions import SourceDescription
from partwise.store.entry_locks import lock_entry, lock_file, remove_unused
from partwise.store.no_room import NO_ROOM
from partwise.store.signing import seal, signer, unseal
from partwise.store.store import Store
from partwise.store.strict_json import parse_json
from partwise.tables.keys.partition_keys import HASH_VERSION

SHARDS = "shards"
COMPLETE = "complete.json"
SCRATCH_VARIABLE = "PARTWISE_SCRATCH"
LIMIT_VARIABLE = "PARTWISE_SCRATCH_BYTES"
_LIMIT_BYTES = 20 * 2**30
_GROWTH = 1.2
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """A part file that counts."""

    path: str
    """Relative to the store."""
    sha256: str = ""
    """Of its index, in an artifact store; "" on a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCache:
    """A folder for the part files of one source."""

    where: Medium
    """How workers read what is there."""
    store: Store
    folder: str
    """Of this execution, relative to the store."""
    entry: str | None
    """The folder whose parts later runs use; None: they are for one run."""

    def known_parts(self) -> list[WrittenPart] | None:
        """The parts that an earlier run has written, if they are still there; None without one.

        Raises:
            SignatureError: No key of this process signed which they are.
        """
        if self.entry is None:
            return None
        try:
            sealed = self.store.read_document(f"{self.entry}/{COMPLETE}")
            if self.where == "store" and signer(sealed, self._purpose, self.store) is None:
                raise SignatureError(
                    f"The shards of an earlier run on these rows are in {self.entry} of the store, "
                    "but no signing key of this process vouches for them: the rows are read again."
                )
            document = parse_json(unseal(sealed) or b"")
            return [
                WrittenPart(path=f"{self.entry}/{name}", sha256=str(sha256))
                for name, sha256 in document["parts"].items()
            ]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            # It is damaged, and would stand in the way of that of every later run.
            self.forget()
            return None

    @property
    def _purpose(self) -> str:
        # Its own path, so that what was signed for other rows cannot be put in its place.
        return f"{self.entry}/{COMPLETE}"

    def complete(self, parts: Sequence[WrittenPart]) -> None:
        """Have later runs use these parts, unless they have others or take too much room."""
        if self.entry is None:
            return
        paths = [part.path for part in parts]
        # Workers that died may have left what does not count.
        for other in set(self.store.list(f"{self.folder}/")) - set(paths):
            self.store.delete(other)
        # Compressed text is larger than its size let expect.
        if self.where == "disk" and sum(map(self.store.size, paths)) > _limit():
            return
        names = {part.path.removeprefix(f"{self.entry}/"): part.sha256 for part in parts}
        document = {"parts": names, "token": secrets.token_hex(8)}
        content = json.dumps(document, indent=2).encode() + b"\n"
        # Another run may have been faster: then its parts are used, and ours are not kept.
        with contextlib.suppress(FileExistsError):
            self.store.create(f"{self.entry}/{COMPLETE}", seal(content, self._purpose, self.store))

    def forget(self) -> None:
        """Have no run use what an earlier one has written."""
        self.store.delete(f"{self.entry}/{COMPLETE}")

    def close(self) -> None:
        """Remove what this execution wrote, unless later runs use it."""
        # What stays behind in a store that is out of reach is left to `partwise data gc`.
        with contextlib.suppress(StoreError):
            try:
                known = self.known_parts() or []
            except SignatureError:
                known = []
            if not any(part.path.startswith(f"{self.folder}/") for part in known):
                self.store.delete_folder(self.folder)


def _division_key(about: SourceDescription, division: Division, where: str) -> str:
    """Name what part files have in common that hold the same rows, divided alike."""
    what = [
        PART_VERSION,
        HASH_VERSION,
        about.fingerprint,
        [[column.name, column.key_class.value] for column in division.key_columns],
        division.n_shards,
        division.null_keys,
        # In a store, messages lie in another order, with their SHA-256.
        where,
    ]
    digest = hashlib.sha256(json.dumps(what).encode())
    digest.update(division.selection.schema.serialize())
    return digest.hexdigest()[:32]


@contextmanager
def open_cache(
    about: SourceDescription, division: Division, shared_folder: SharedFolder
) -> Iterator[ShardCache]:
    """Give a place for part files."""
    token = f"{datetime.now(UTC):{_TIME}}-{secrets.token_hex(6)}"
    entry = f"{SHARDS}/{_division_key(about, division, shared_folder.where)}"
    with contextlib.ExitStack() as stack:
        if shared_folder.where == "store":
            folder = f"{entry}/{token}" if about.recurs else f"{shared_folder.folder}/parts"
            kept = entry if about.recurs else None
            cache = ShardCache(where="store", store=shared_folder.store, folder=folder, entry=kept)
        elif about.recurs and _has_room(about.size_bytes, entry):
            stack.enter_context(_in_use(scratch_folder() / entry))
            for path in (scratch_folder() / entry, scratch_folder() / entry / COMPLETE):
                check_own(path)
            store = Store.parse(scratch_folder())
            cache = ShardCache(where="disk", store=store, folder=f"{entry}/{token}", entry=entry)
        else:
            own = Store.parse(shared_folder.directory)
            cache = ShardCache(where="disk", store=own, folder="parts", entry=None)
        stack.callback(cache.close)
        yield cache


def collect_shards(store: Store, older_than: timedelta, *, dry_run: bool) -> list[tuple[str, int]]:
    """Delete the rows of runs that workers got by way of an artifact store, and that are old.

    What was written within `older_than` stays: a run may be at work on it. Returned are paths,
    relative to the store, and sizes in bytes.
    """
    limit = f"{datetime.now(UTC) - older_than:{_TIME}}"
    files: list[tuple[str, int]] = []
    for key in store.list_folder(SHARDS):
        entry = f"{SHARDS}/{key}"
        names = [name for name in store.list_folder(entry) if name != COMPLETE]
        # Names of folders begin with the time at which they were begun.
        if all(name < limit for name in names):
            files += [(path, store.size(path)) for path in store.list(f"{entry}/")]
            if not dry_run:
                # Its mark goes first: an entry without it is never taken for complete.
                store.delete(f"{entry}/{COMPLETE}")
                store.delete_folder(entry)
    return files


def scratch_folder() -> Path:
    """Return the folder on this machine's disk where part files stay for later runs.

    It is named by PARTWISE_SCRATCH, or lies in the folder for temporary files; only its owner has
    access. What lies in it is for `own_folder` to give: in one that the caller names others may
    have put something, and what is read there is run or trained on.
    """
    default = os.path.join(tempfile.gettempdir(), f"partwise-{os.getuid()}")
    path = Path(os.environ.get(SCRATCH_VARIABLE) or default).absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.lstat()
    except OSError as error:
        raise InputError(
            f"The scratch folder {str(path)!r} cannot be used: {error.strerror}; set "
            f"{SCRATCH_VARIABLE} to a folder that can."
        ) from error
    if about.st_uid != os.getuid() or stat.S_ISLNK(about.st_mode):
        raise InputError(
            f"The scratch folder {str(path)!r} belongs to another user, or is a link; set "
            f"{SCRATCH_VARIABLE} to a folder of your own."
        )
    # With the sticky bit, as /tmp has it, others may add names, and not take ours away.
    if about.st_mode & _WRITABLE and not about.st_mode & stat.S_ISVTX:
        raise InputError(
            f"Other users can write to the scratch folder {str(path)!r} (mode "
            f"{stat.S_IMODE(about.st_mode):o}), and exchange what is in it: `chmod go-w` it, or "
            f"set {SCRATCH_VARIABLE} to a folder of your own."
        )
    return path


def own_folder(name: str) -> Path:
    """Return a folder in the scratch folder, made if need be; only this user can write into it."""
    path = scratch_folder() / name
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_own(path, _WRITABLE)
    return path


def check_own(path: Path, writable: int = 0) -> None:
    """Refuse a file or folder that another user made; one that is not there is none.

    `writable`: rights that others may not have. What lies in a folder of `own_folder` may have any:
    nobody else gets there. Links are refused too.
    """
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    is_link = stat.S_ISLNK(about.st_mode)
    if about.st_uid != os.getuid() or is_link or about.st_mode & writable:
        raise InputError(
            f"{str(path)!r} was made by another user, or others can write to it (owner "
            f"{about.st_uid}, mode {stat.S_IMODE(about.st_mode):o}), so nothing of it is used: "
            f"delete it, or set {SCRATCH_VARIABLE} to a folder of your own."
        )


def _limit() -> int:
    """How many bytes all part files that are kept may take."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return min(_LIMIT_BYTES, shutil.disk_usage(scratch_folder()).free // 2)
    if not text.isdecimal():
        raise InputError(
            f"{LIMIT_VARIABLE} is {text!r}: give a number of bytes, or 0 to keep none."
        )
    return int(text)


def _has_room(size_bytes: int, entry: str) -> bool:
    """Make room for part files among those that are kept, the longest unused of which go."""
    limit = _limit()
    needed = int(size_bytes * _GROWTH)
    if needed > limit:
        return False
    root = own_folder(SHARDS)
    kept = [path for path in root.iterdir() if path.is_dir()]
    sizes = {path: _size(path) for path in kept}
    total = sum(sizes.values())
    for path in sorted(kept, key=_last_used):
        if path == scratch_folder() / entry and _last_used(path):
            continue
        # What was never completed goes in any case: a killed run left it.
        if total + needed > limit or not _last_used(path):
            total -= sizes[path] if remove_unused(path) else 0
    return total + needed <= limit or bool(_last_used(scratch_folder() / entry))


def _size(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return 0


def _last_used(entry: Path) -> float:
    """When an entry was last used; 0 for one that was never completed."""
    with contextlib.suppress(FileNotFoundError):
        return (entry / COMPLETE).stat().st_mtime
    return 0.0


@contextmanager
def _in_use(entry: Path) -> Iterator[None]:
    """Keep other processes from removing an entry."""
    descriptor = lock_entry(entry, fcntl.LOCK_SH)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.utime(entry / COMPLETE)
        yield
    finally:
        # Of an entry that is not kept no lock stays either, if nobody else has it.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not entry.exists():
                lock_file(entry).unlink(missing_ok=True)
        os.close(descriptor)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that no room is left on a disk."""
    return getattr(error, "errno", None) in NO_ROOM or isinstance(error, pa.ArrowCapacityError)
