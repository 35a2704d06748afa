"""What is deleted or moved in a run: announced first, and carried out by whoever takes it over.

    <run>/lease/0002.step-0001   names files, relative to the run

`partwise.store.lease` says why: so a process that was stopped in the middle of it, and goes on when
another one has completed the run, deletes nothing that this one has found and kept.
"""

import contextlib
from typing import ClassVar

from partwise.runs.documents import REPLACED, Document, removal_file, run_path
from partwise.store.lease import Lease
from partwise.store.store import Store

AT_ONCE = 200
"""Files of one step: what a process that takes over has to delete before it begins."""


class Step(Document):
    """Files to be deleted, and output files to be set aside. To do so twice changes nothing."""

    format_version: int = 2
    sealed_since: ClassVar[int | None] = 1
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    remove: int | None = None
    """The generation up to which the run is removed; None: it is not. Since version 2."""


def carry_out(store: Store, run_id: str, step: Step) -> None:
    """Do what was announced, in its order; what is not there any more is as good as done."""
    if step.remove is not None:
        with contextlib.suppress(FileExistsError):
            store.create(run_path(run_id, removal_file(step.remove)), b"removed\n")
    for path in step.delete:
        store.delete(run_path(run_id, path))
    for path in step.replace:
        store.move(run_path(run_id, path), run_path(run_id, REPLACED, path))


def finish_earlier_steps(lease: Lease, store: Store, run_id: str) -> None:
    """Carry out what earlier owners of a run announced, before anybody looks which files it has.

    Raises:
        RunFormatError: A step is damaged, or of a newer format.
    """
    for content in lease.earlier_steps():
        where = f"a step in {run_path(run_id)}/lease of the artifact store {store.url}"
        carry_out(store, run_id, Step.from_bytes(content, where))
