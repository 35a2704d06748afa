"""The environments that are built on this machine: where, which are whole, which may go.

    <scratch folder>/environments/<name>/
        env/            as uv or conda made it
        complete.json   created last: what it holds; its time is that of the last use
    <scratch folder>/environments/<name>.lock
                        locked by who builds it, and, shared, by all who use it

A folder without complete.json counts as nothing: its builder is at work, or was killed.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from partwise.shuffle.shard_cache import check_own, own_folder
from partwise.store.entry_locks import lock_entry, remove_entry

logger = logging.getLogger(__name__)

ENVIRONMENTS = "environments"
COMPLETE = "complete.json"
TREE = "env"
_LARGEST_DOCUMENT_BYTES = 1 << 20


class BuiltDocument(BaseModel):
    """What `complete.json` says of an environment, for people to read: nothing is done by it."""

    # An earlier release wrote the paths of its interpreter and packages there as well.
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    name: str
    """How messages name what was asked for."""
    packages: dict[str, str]
    """Versions by name; of a conda file none, as conda alone knows."""
    size_bytes: int = Field(ge=0)
    built_at: str
    seconds: float = Field(ge=0)
    """What it took to build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedEnvironment:
    """An environment on this machine's disk."""

    entry: Path
    document: BuiltDocument | None
    """None: its builder is at work, or was killed."""
    last_used: datetime
    in_use: bool


def environments_folder() -> Path:
    """Return the folder of this machine's environments."""
    return own_folder(ENVIRONMENTS)


def read_document(entry: Path) -> BuiltDocument | None:
    """Return what stands in an entry; None where nothing there counts.

    An entry of another user is refused, since its interpreter would be started.
    """
    path = entry / COMPLETE
    for each in (entry, path):
        check_own(each)
    # Of no pipe or device, either.
    if not path.is_file() or find_places(entry) is None:
        return None
    try:
        with path.open("rb") as file:
            return BuiltDocument.model_validate_json(file.read(_LARGEST_DOCUMENT_BYTES))
    except (FileNotFoundError, ValueError):
        return None


def find_places(entry: Path) -> tuple[str, str] | None:
    """Return the paths of an entry's interpreter and of its packages' folder; None: it has none.

    They are looked for, as the entry is this user's own, and not read from `complete.json`, which
    could name any others.
    """
    python = entry / TREE / "bin" / "python"
    folders = sorted((entry / TREE).glob("lib/python3*/site-packages"))
    if not python.exists() or not folders:
        return None
    return str(python), str(folders[0])


def write_document(entry: Path, document: BuiltDocument) -> None:
    """Have an entry count, from this moment on."""
    path = entry / COMPLETE
    # Renamed when it is whole: of a builder that is killed while it writes, nothing counts.
    new = path.with_suffix(".new")
    new.write_text(document.model_dump_json(indent=2) + "\n")
    new.rename(path)


def note_use(entry: Path) -> None:
    """Note that an entry is used now."""
    # On a disk that is read only its time stays as it is, and so does the entry.
    with contextlib.suppress(OSError):
        os.utime(entry / COMPLETE)


def list_environments() -> list[CachedEnvironment]:
    """Return the environments on this machine, the last used first."""
    found = []
    for entry in _entries():
        document = read_document(entry)
        try:
            used = (entry / COMPLETE if document else entry).stat().st_mtime
            os.close(lock_entry(entry, fcntl.LOCK_EX | fcntl.LOCK_NB))
            in_use = False
        except BlockingIOError:
            in_use = True
        except FileNotFoundError:
            continue
        last_used = datetime.fromtimestamp(used, UTC)
        found.append(
            CachedEnvironment(entry=entry, document=document, last_used=last_used, in_use=in_use)
        )
    return sorted(found, key=lambda each: each.last_used, reverse=True)


def collect_environments(
    older_than: timedelta, *, dry_run: bool = False
) -> list[CachedEnvironment]:
    """Remove the environments that nobody has used for some time, and what killed builders left.

    What was used within `older_than` stays; what a process uses stays however long it has had it.
    """
    limit = datetime.now(UTC) - older_than
    gone = []
    for cached in list_environments():
        if cached.in_use or (cached.document is not None and cached.last_used > limit):
            continue
        if dry_run or _remove(cached.entry):
            gone.append(cached)
    return gone


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def _entries() -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (path for path in environments_folder().iterdir() if path.is_dir())


def _remove(entry: Path) -> bool:
    """Remove an entry that no process uses."""
    try:
        descriptor = lock_entry(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        # Its mark goes first: what is left of it must not count.
        (entry / COMPLETE).unlink(missing_ok=True)
        is_gone = remove_entry(entry)
    finally:
        os.close(descriptor)
    if not is_gone:
        logger.warning("the environment in %s could not be removed: remove it by hand", entry)
    return is_gone
