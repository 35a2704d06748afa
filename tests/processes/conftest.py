"""Servers of children for one test, and a library that notes where it is imported."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from partwise.engine.worker import child as worker_child
from partwise.engine.worker.child import ChildPlan, ChildProcess, borrow_child, discard_child
from partwise.processes import warm_server
from partwise.processes.warm_server import Preloaded, WarmServers

NOTES = """
import os
from pathlib import Path
with Path({path!r}).open("a") as notes:
    notes.write(f"{{os.getpid()}} ")
"""


@pytest.fixture
def servers(monkeypatch):
    """Servers of this test alone."""
    worker_child.close_children()
    # Those of gangs that other tests ran in this process.
    warm_server.SERVERS.close()
    made = WarmServers()
    monkeypatch.setattr(worker_child, "SERVERS", made)
    yield made
    discard_child()
    made.close()


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Make a library of some text, which notes where it is imported, and return those notes."""

    def make(text: str = "") -> Path:
        path = tmp_path / "imported"
        (tmp_path / "libraries").mkdir()
        (tmp_path / "libraries" / "slow_library.py").write_text(NOTES.format(path=str(path)) + text)
        monkeypatch.syspath_prepend(str(tmp_path / "libraries"))
        return path

    return make


@pytest.fixture
def start(servers, tmp_path):
    """Start a child that has imported `slow_library`; return it, of its thread the newest."""
    work = tmp_path / "work.pkl"
    # Loading it imports the module, and calls nothing.
    work.write_bytes(b"cslow_library\nos\n.")

    def call(
        owner: str = "owner",
        work_name: str = "work",
        modules: Sequence[str] = (),
        token: str = "",
        **variables: str,
    ) -> ChildProcess:
        discard_child()
        plan = ChildPlan(
            owner=owner,
            directory=str(tmp_path),
            memory_bytes=2 << 30,
            environment=variables,
            work_name=work_name,
            preloaded=Preloaded(modules=tuple(modules), token=token),
        )
        child = borrow_child(plan)
        assert child.open_work(str(work)) is None
        return child

    return call
