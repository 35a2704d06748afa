"""The newest signed state that this user has seen of a run or dataset on this machine.

A signature says that a document is ours, and not that it is the newest: whoever can write a store
can delete newer ones. So where signing keys are configured, the newest number that was verified is
kept in the folder of `state_folder`, and a store that has less is refused.
"""

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from partwise.errors import SignatureError
from partwise.store.signing import is_configured, place_of, state_folder
from partwise.store.store import Store

_FOLDER = "seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was verified of a run or dataset."""

    since: str = ""
    """When it was created, in ISO format and UTC: one that was made again under its name is later
    than the one before."""
    number: int = 0
    """Of the newest generation that has ended, or the newest version."""


def recall(store: Store, path: str) -> Seen:
    """Return what was seen of a run or dataset before; nothing where no keys are configured.

    It is asked for before the store is: what others complete meanwhile is not missed then.
    """
    file = _file_of(store, path)
    if file is None:
        return Seen()
    try:
        values = json.loads(file.read_bytes())
        return Seen(since=str(values["since"]), number=int(values["number"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Seen()


def check_not_older(seen: Seen, found: Seen, store: Store, path: str) -> None:
    """Refuse a store that has less than was seen of it before.

    `seen` is what `recall` returned, before the store was asked.
    """
    if found.since > seen.since or (found.since == seen.since and found.number >= seen.number):
        return
    file = _file_of(store, path)
    raise SignatureError(
        f"{path} in the artifact store {store.url} is older than when it was last read here: "
        f"number {found.number or 'none'}, and number {seen.number} had been signed. Restore what "
        f"is missing; if you went back on purpose, delete {file}."
    )


def remember(store: Store, path: str, found: Seen) -> None:
    """Keep what was verified of a run or dataset, where it is newer than what was before.

    Where no keys are configured, or this user has no folder of state, nothing is kept.
    """
    file = _file_of(store, path)
    before = recall(store, path)
    if file is None or (found.since, found.number) <= (before.since, before.number):
        return
    content = json.dumps({"store": store.url, "path": path, **asdict(found)}).encode()
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        temporary.replace(file)


def _file_of(store: Store, path: str) -> Path | None:
    folder = state_folder() if is_configured(store) else None
    if folder is None:
        return None
    name = hashlib.sha256(f"{place_of(store.url)}\n{path}".encode()).hexdigest()
    return folder / _FOLDER / f"{name}.json"
