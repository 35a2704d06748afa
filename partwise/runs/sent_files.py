"""Files of a caller's machine that a run has in its folder, since its workers do not see them.

    runs/<run_id>/snapshots/<sha256>-<token>.tar.gz
                                        a source directory; see `partwise.scripts.snapshot`
    runs/<run_id>/sent/<sha256>-<token>.json
                                        which parts make which file; the sha256 is of the content
    runs/<run_id>/sent/<token>-00000    parts of at most 64 MiB

They are there before the run is, which begins when a worker takes the call. The token is drawn when
something is sent, so that no name is given twice: a garbage collection that stood still, and goes
on, deletes nothing that was sent since. What a generation names was there when it began, after all
that was to be deleted by then, or never is again. Earlier releases named all by sha256 alone.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from partwise.errors import IntegrityError
from partwise.runs.checkpoints import CheckpointDocument, CheckpointFile
from partwise.runs.contents import objects_below
from partwise.runs.documents import SENT, SNAPSHOTS, run_path
from partwise.store.store import Store

_NAME = r"[0-9a-f]{64}(?:-[0-9a-f]{8})?"
_SENT_URL = re.compile(rf"run://([^/]+)/{SENT}/({_NAME})(?:/([^/]+))?/?")


def write_sent(store: Store, run_id: str, token: str, files: Sequence[CheckpointFile]) -> str:
    """Write down which parts make which file, and return the name that this list has.

    The store has the parts already, and `token`, eight hexadecimal digits, is theirs. Paths of
    files are relative to the folder that was sent.
    """
    name = f"{_sha256_of(files)}-{token}"
    content = CheckpointDocument(step=0, files=tuple(files)).to_bytes()
    store.create(_list_path(run_id, name), content)
    return name


def content_of_sent(name: str) -> str:
    """Return the checksum in the name of a list: equal where equal files were sent."""
    return name[:64]


def _sha256_of(files: Sequence[CheckpointFile]) -> str:
    """Return the checksum of the list as it were if each part had its sha256 as its name."""
    by_content = [
        replace(
            file,
            parts=tuple(replace(part, name=part.sha256) for part in file.parts),
            # Of one content, also where another machine or mount has it with other rights.
            executable=False,
        )
        for file in files
    ]
    return hashlib.sha256(
        CheckpointDocument(step=0, files=tuple(by_content)).to_bytes()
    ).hexdigest()


def read_sent(store: Store, run_id: str, name: str) -> tuple[CheckpointFile, ...]:
    """Return the files of a list.

    Raises:
        FileNotFoundError: There is no such list.
        IntegrityError: It differs from its checksum.
    """
    path = _list_path(run_id, name)
    files = CheckpointDocument.from_bytes(store.read_document(path), path).files
    if _sha256_of(files) != content_of_sent(name):
        raise IntegrityError(
            f"{path} in {store.url} differs from its checksum, so it was changed or damaged; begin "
            "the run again."
        )
    return files


def sent_folder(run_id: str) -> str:
    """Return the folder of the parts, relative to the store."""
    return run_path(run_id, SENT)


def sent_url(run_id: str, name: str, file: str = "") -> str:
    """Return how a call names files that were sent: a file by its own name too, a folder without.

    Example:
        >>> sent_url("one", "0" * 64, "rows.csv")[-14:]
        '00000/rows.csv'
    """
    return f"run://{run_id}/{SENT}/{name}" + (f"/{file}" if file else "")


def parse_sent(text: str) -> tuple[str, str, str] | None:
    """Return run, list and file of such a name; None: it is another one."""
    found = _SENT_URL.fullmatch(text)
    return None if found is None else (found[1], found[2], found[3] or "")


def unneeded(store: Store, run_id: str, documents: Iterable[str], since: datetime) -> Iterator[str]:
    """Yield the snapshots and sent files that no document names, and that were not sent lately.

    `documents` are those of generations that still count. What was written after `since` may belong
    to a call that waits for a worker.
    """
    needed = {
        path
        for text in documents
        for path in re.findall(
            rf"run://{run_id}/({SNAPSHOTS}/{_NAME}\.tar\.gz|{SENT}/{_NAME})", text
        )
    }
    snapshots = objects_below(store, run_id, f"{SNAPSHOTS}/")
    lists: list[str] = []
    parts: list[str] = []
    for path in objects_below(store, run_id, f"{SENT}/"):
        (lists if path.endswith(".json") else parts).append(path)
    root = run_path(run_id) + "/"
    for path in [*snapshots, *lists]:
        name = path.removeprefix(root).removesuffix(".json")
        if name in needed or _is_younger(store, path, since):
            needed.add(name)
        else:
            yield path
    kept: set[str] = set()
    for path in lists:
        name = path.removeprefix(root).removesuffix(".json")
        if name in needed:
            kept |= _parts_of(store, run_id, name.removeprefix(f"{SENT}/"))
    for path in parts:
        # Parts are written before the list that names them, which may not be there yet.
        if path not in kept and not _is_younger(store, path, since):
            yield path


def _parts_of(store: Store, run_id: str, name: str) -> set[str]:
    folder = sent_folder(run_id)
    try:
        files = read_sent(store, run_id, name)
    except FileNotFoundError:
        return set()
    return {f"{folder}/{part.name}" for file in files for part in file.parts}


def _is_younger(store: Store, path: str, since: datetime) -> bool:
    try:
        return store.modified(path) > since
    except FileNotFoundError:
        return True  # deleted meanwhile: there is nothing to be done


def _list_path(run_id: str, name: str) -> str:
    return run_path(run_id, SENT, f"{name}.json")
