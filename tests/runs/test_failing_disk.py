"""A store on a disk that fails anywhere in a run: one sentence, nothing torn, whole when mended."""

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import PartwiseError, StoreError
from partwise.runs.run import Run
from partwise.store import local_objects
from partwise.store.store import Store
from tests.one_shard import RUN_ID, check, drive

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"a": 1.0, "b": 20.0, "c": 3.0, "d": 4.0}

# Which calls of the operating system fail, and what the sentence advises.
DISKS = {
    "full": (errno.ENOSPC, {"write", "fsync", "mkdir", "create", "link"}, "free some space there"),
    "over quota": (errno.EDQUOT, {"write", "mkdir", "create"}, "free some space there"),
    "read-only": (
        errno.EROFS,
        {"create", "mkdir", "link", "replace", "unlink", "rmdir"},
        "choose a store that can be written",
    ),
    "not ours": (
        errno.EACCES,
        {"create", "mkdir", "link", "replace", "unlink", "rmdir"},
        "give this user the right to it",
    ),
}


class FailingDisk:
    """Stands for the module `os` in the code that writes; its calls fail from the n-th on."""

    def __init__(self, kind: str, fails_from: int) -> None:
        self.number, self.calls, self.advice = DISKS[kind]
        self.count = 0
        self._left = fails_from

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name == "open":
            return self._open
        return self._guarded(call) if name in self.calls else call

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and "create" in self.calls:
            self._tick(path)
        return os.open(path, flags, mode)

    def _guarded(self, call: Any) -> Any:
        def guarded(*arguments: Any, **more: Any) -> Any:
            self._tick(arguments[0])
            return call(*arguments, **more)

        return guarded

    def _tick(self, what: Any) -> None:
        # The heartbeat has a time of its own; it fails, and does not count.
        if threading.current_thread().name != "lease-heartbeat":
            self.count += 1
        if self.count >= self._left:
            raise OSError(self.number, os.strerror(self.number), what)


@contextmanager
def failing(kind: str, fails_from: int) -> Iterator[FailingDisk]:
    disk = FailingDisk(kind, fails_from)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_objects, "os", disk)
        yield disk


def fail_everywhere(folder: Path, kind: str, every: int, offset: int = 0) -> tuple[int, list[str]]:
    """Have a disk fail from each n-th call on while a run is changed; mend it, and resume.

    Returns:
        How often that was tried, and what was lost.
    """
    lost: list[str] = []
    for tried, fails_from in enumerate(itertools.count(1 + offset, every), 1):
        store = Store.parse(folder / f"{fails_from}")
        drive(store, FIRST)
        refused: PartwiseError | None = None
        try:
            with failing(kind, fails_from) as disk:
                try:
                    drive(store, SECOND)
                except StoreError as error:
                    refused = error
            if refused is None:
                check(Run.open(RUN_ID, store), SECOND)  # there was nothing left but to release it
            else:
                text = str(refused)
                assert disk.advice in text, text
                assert text.count("Cannot ") == 1, text
            run = Run.open(RUN_ID, store)
            check(run, FIRST if run.generation == 1 or run.summary is None else SECOND)
            check(drive(store, SECOND), SECOND)
        except (PartwiseError, OSError, AssertionError) as error:
            lost.append(f"{kind}, call {fails_from}: {type(error).__name__}: {error}"[:300])
        if disk.count < fails_from:
            return tried, lost
    raise AssertionError


@pytest.mark.parametrize("kind", DISKS)
def test_a_disk_that_fails_in_a_run_loses_nothing(tmp_path: Path, kind: str) -> None:
    tried, lost = fail_everywhere(tmp_path, kind, 9)
    assert lost == []
    assert tried > 3
