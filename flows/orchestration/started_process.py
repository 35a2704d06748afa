"""The process of a run that was started with `start`: it carries out one call, and says how.

<folder>/call.pkl      the name of the flow, and the arguments of the call
<folder>/parent        the process ID of the caller
<folder>/detached      the work goes on when the caller has ended
<folder>/log           all lines that this process writes
<folder>/outcome.pkl   what the call returned or raised
"""

import os
import pickle
import select
import shutil
import signal
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from partwise.errors import PartwiseError, RunCancelledError
from partwise.flows.orchestration.endings import cancelled
from partwise.processes.garbage import collect_rarely
from partwise.redaction import without_secrets
from partwise.stand_ins import load

CALL, ARGUMENTS, PARENT = "call.pkl", "arguments.pkl", "parent"
DETACHED, LOG, OUTCOME = "detached", "log", "outcome.pkl"


def main(folder: str) -> None:
    """Carry out the call that lies in a folder, and leave there what came of it."""
    # What Ctrl-C does: until the flow has a handler of its own, a cancel would end this process
    # without a word.
    signal.signal(signal.SIGTERM, _interrupt)
    # A caller that was started in the background of a shell ignores it, and hands that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    collect_rarely()
    place = Path(folder)
    parent = int((place / PARENT).read_text())
    threading.Thread(
        target=_end_with_caller, args=(place, parent), daemon=True, name="partwise-caller"
    ).start()
    run_id = ""
    is_called = False
    returned: Any = None
    raised: BaseException | None = None
    try:
        # The caller's own words, in a folder that only this user can enter.
        name, run_id, names, modules = pickle.loads((place / CALL).read_bytes())  # noqa: S301
        _import(modules)
        with (place / ARGUMENTS).open("rb") as file:
            arguments = {key: pickle.load(file) for key in names}  # noqa: S301
        # They may be large, and have keys of a store among them.
        (place / ARGUMENTS).unlink()
        is_called = True
        returned = load("partwise.flows", name)(**arguments)
        # A cancel that comes now is too late, and must not keep the outcome back.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        raised = cancelled(run_id, has_begun=is_called)
    except BaseException as error:
        raised = error
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The folder goes with the caller's handle.
    with suppress(OSError):
        _leave(place, returned, raised)
    if os.getppid() != parent and not (place / DETACHED).exists():
        shutil.rmtree(place, ignore_errors=True)


def _import(modules: list[str]) -> None:
    """Import the modules that functions are of: also what came by value has its fingerprint so."""
    for name in modules:
        # A notebook's, or one that is in no file, cannot be: its functions came by value.
        with suppress(Exception):
            import_module(name)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _end_with_caller(folder: Path, parent: int) -> None:
    """Interrupt the work once the caller has ended, unless it was detached."""
    with suppress(ProcessLookupError):
        # By its handle, since another process may come to have its number.
        process = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([process], [], [])
    if not (folder / DETACHED).exists():
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(folder: Path, returned: Any, raised: BaseException | None) -> None:
    content = _packed(returned)
    if raised is None and not content:
        kind = type(returned).__name__
        raised = PartwiseError(f"The call returned a {kind}, which cannot be sent to its caller.")
    cause = None if raised is None else raised.__cause__
    written = folder / f"{OUTCOME}.new"
    written.write_bytes(pickle.dumps((content, _packed(_sendable(raised)), _packed(cause))))
    written.rename(folder / OUTCOME)


def _sendable(error: BaseException | None) -> BaseException | None:
    """Return an error, or one in its words where it cannot be sent to the caller."""
    if error is None or _packed(error):
        return error
    words = without_secrets(f"{type(error).__name__}: {error}")
    if isinstance(error, RunCancelledError):
        return RunCancelledError(str(error), None)
    return PartwiseError(words)


def _packed(value: Any) -> bytes:
    """Return a value as bytes; none where it cannot be read back."""
    with suppress(Exception):
        content: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        # Some exceptions can be written and not read: the caller is not to find that out.
        pickle.loads(content)  # noqa: S301 (what was written just now)
        return content
    return b""
