"""The database of a Prefect server that has just begun, kept from one session of tests to the next.

A new server makes its tables by a hundred migrations, which is half of the work of its start.
"""

import os
import shutil
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

_kept: Path | None = None
"""In pytest's cache, by the release of Prefect; None: there is no cache."""


def pytest_configure(config: pytest.Config) -> None:
    global _kept
    if (cache := getattr(config, "cache", None)) is not None:
        _kept = cache.mkdir("prefect") / f"{version('prefect')}.db"


def copy_to(home: Path) -> None:
    """Put the database into a folder for a server that is not yet started, where there is one."""
    if _kept is not None and _kept.exists():
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_kept, home / "prefect.db")


def keep(home: Path) -> None:
    """Keep the database of a server that has begun, and that nobody has asked for anything yet."""
    if _kept is None or _kept.exists():
        return
    copy = _kept.with_suffix(f".{os.getpid()}")
    with (
        closing(sqlite3.connect(home / "prefect.db")) as made,
        closing(sqlite3.connect(copy)) as at,
    ):
        made.backup(at)
        [is_used] = at.execute("SELECT EXISTS (SELECT 1 FROM flow_run)").fetchone()
    if is_used:
        copy.unlink()
    else:
        copy.replace(_kept)
