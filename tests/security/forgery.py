"""What somebody does who may write to a store: changes a run, and all checksums to suit."""

import hashlib
import json
from pathlib import Path
from typing import Any

from partwise.runs.documents import RUN_DOCUMENT, generation_file, summary_file
from partwise.store.signing import seal


def read_members(path: Path) -> dict[str, Any]:
    """Return the members of a document, without its seal."""
    members: dict[str, Any] = json.loads(path.read_bytes())
    for name in ("sha256", "signature"):
        members.pop(name, None)
    return members


def write_members(path: Path, members: dict[str, Any]) -> None:
    """Write a document with a checksum of its own, and without a signature."""
    path.write_bytes(seal(json.dumps(members, indent=2).encode() + b"\n"))


def reseal(folder: Path) -> None:
    """Have all documents of a run, which was changed, name the checksums of each other.

    Args:
        folder: That of the run.
    """
    write_members(folder / RUN_DOCUMENT, read_members(folder / RUN_DOCUMENT))
    sums = {"run_sha256": _sum_of(folder / RUN_DOCUMENT)}
    number = 0
    while (path := folder / generation_file(number + 1)).exists():
        number += 1
        before = {}
        if number > 1:
            before = {"before_sha256": _sum_of(folder / generation_file(number - 1))}
        write_members(path, read_members(path) | sums | before)
        summary = folder / summary_file(number)
        if summary.exists():
            members = read_members(summary) | sums | {"generation_sha256": _sum_of(path)}
            ledger = folder / str(members["ledger_file"]).replace("\0", "")
            if ledger.is_file():
                members["ledger_sha256"] = _sum_of(ledger)
            write_members(summary, members)


def _sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
