"""Files of a caller's machine that a run has in its folder, since its workers do not see them.

    runs/<run_id>/snapshots/<sha256>.tar.gz   a source directory; see `partwise.scripts.snapshot`
    runs/<run_id>/sent/<sha256>.json          which parts make which file; named by its own sha256
    runs/<run_id>/sent/<sha256>               parts of at most 64 MiB, each named by its sha256

Equal content has equal names, so that a call which is sent twice is stored once. They are there
before the run is, which begins when a worker takes the call.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from partwise.errors import IntegrityError
from partwise.runs.checkpoints import CheckpointDocument, CheckpointFile
from partwise.runs.documents import SENT, SNAPSHOTS, run_path
from partwise.store.store import Store

_NAME = r"[0-9a-f]{64}"
_SENT_URL = re.compile(rf"run://([^/]+)/{SENT}/({_NAME})(?:/([^/]+))?/?")


def write_sent(store: Store, run_id: str, files: Sequence[CheckpointFile]) -> str:
    """Write down which parts make which file, and return the name that this list has.

    Args:
        store: The artifact store, which has the parts already.
        run_id: The run that they are sent to.
        files: The files, with paths relative to the folder that was sent.
    """
    content = CheckpointDocument(step=0, files=tuple(files)).to_bytes()
    name = hashlib.sha256(content).hexdigest()
    # Anew where it is there already: so it is as young as the call, for a garbage collection.
    store.write(_list_path(run_id, name), content)
    return name


def read_sent(store: Store, run_id: str, name: str) -> tuple[CheckpointFile, ...]:
    """Return the files of a list.

    Raises:
        FileNotFoundError: There is no such list.
        IntegrityError: It differs from its checksum.
    """
    path = _list_path(run_id, name)
    content = store.read_document(path)
    if hashlib.sha256(content).hexdigest() != name:
        raise IntegrityError(
            f"{path} in {store.url} differs from its checksum, so it was changed or damaged; begin "
            "the run again."
        )
    return CheckpointDocument.from_bytes(content, path).files


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

    Args:
        store: Where the run is.
        run_id: The run.
        documents: Those of its generations that still count.
        since: What was written after this moment may belong to a call that waits for a worker.
    """
    needed = {
        path
        for text in documents
        for path in re.findall(
            rf"run://{run_id}/({SNAPSHOTS}/{_NAME}\.tar\.gz|{SENT}/{_NAME})", text
        )
    }
    snapshots = store.list(run_path(run_id, SNAPSHOTS) + "/")
    lists: list[str] = []
    parts: list[str] = []
    for path in store.list(sent_folder(run_id) + "/"):
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
