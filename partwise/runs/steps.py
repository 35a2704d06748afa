"""What is deleted or moved in a run: announced first, and carried out by whoever takes it over.

    <run>/lease/0002.step-0001   names files, relative to the run

`partwise.store.lease` says why: so a process that was stopped in the middle of it, and goes on when
another one has completed the run, deletes nothing that this one has found and kept. Steps are
signed, so that with keys configured nobody else has files deleted.
"""

from typing import ClassVar

from partwise.errors import InputError, RunFormatError, SignatureError
from partwise.runs.contents import write_removal
from partwise.runs.documents import REPLACED, Document, run_path
from partwise.store.lease import Lease
from partwise.store.signing import check_signed
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
    # First: readers are to find a run that was removed, and not one of which parts are gone.
    if step.remove is not None:
        write_removal(store, run_id, step.remove)
    for path in step.delete:
        store.delete(run_path(run_id, path))
    for path in step.replace:
        store.move(run_path(run_id, path), run_path(run_id, REPLACED, path))


def announce(lease: Lease, store: Store, run_id: str, step: Step) -> None:
    """Announce a step, and carry it out.

    Raises:
        RunBusyError: Another process took the run over; nothing is done.
    """
    lease.announce(step.to_bytes(lease.next_step, store))
    carry_out(store, run_id, step)


def finish_earlier_steps(lease: Lease, store: Store, run_id: str) -> None:
    """Carry out what earlier owners of a run announced, before anybody looks which files it has.

    Raises:
        RunFormatError: A step is damaged, or of a newer format.
        SignatureError: Keys are configured, and none of them signed it.
    """
    # Not as a list: asked for more, it notes that all of an owner's steps were carried out.
    for path, content in lease.earlier_steps():
        where = f"{path} of the artifact store {store.url}"
        advice = (
            f"It says which files of the run {run_id!r} are to be deleted, and none was. Delete it "
            "if no process of yours was stopped while it collected, removed or completed this run."
        )
        try:
            check_signed(content, path, where, store)
            carry_out(store, run_id, Step.from_bytes(content, where))
        except SignatureError as error:
            raise SignatureError(f"{error} {advice}") from error
        except (RunFormatError, InputError) as error:
            raise RunFormatError(f"{where} cannot be carried out: {error} {advice}") from error
