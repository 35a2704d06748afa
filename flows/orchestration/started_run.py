"""The handle of a call of a flow that is carried out in a process of its own."""

import asyncio
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar, cast, get_args

import cloudpickle

from partwise.blocks import StoreBlock
from partwise.errors import (
    FunctionError,
    PartwiseError,
    RunCancelledError,
    RunFailedError,
    RunNotFoundError,
)
from partwise.flows.orchestration.endings import cancelled
from partwise.flows.orchestration.notebook import LIVE_LINE_S, LiveLine
from partwise.flows.orchestration.saved_blocks import names_block, open_store
from partwise.flows.orchestration.started_process import (
    ARGUMENTS,
    CALL,
    DETACHED,
    LOG,
    OUTCOME,
    PARENT,
)
from partwise.outcomes import RunStatus
from partwise.processes.starting import python_words
from partwise.redaction import without_secrets
from partwise.runs.pipeline import Pipeline, Stage, stage_run_id
from partwise.runs.progress import RunProgress
from partwise.runs.run import Run
from partwise.store.store import Store

if TYPE_CHECKING:
    from partwise.flows.orchestration.block_parameters import StoreParameter

LOOK_S = 0.1
KEPT_S = 7 * 24 * 3600.0
"""For so long the lines of a run stay that was detached, or killed with its caller."""
_FOLDER = "partwise-started-"

R = TypeVar("R", bound=Run | Pipeline)


class StartedRun(Generic[R]):
    """A run at work in a process of its own, while its caller does something else.

    It ends with its caller, as if it was cancelled, unless `detach` was called. In a notebook its
    value is a line that follows the run.

    Example:
        >>> work = train_models.start("sales.parquet", "store", train)  # doctest: +SKIP
        >>> print(work.progress())  # doctest: +SKIP
        >>> run = work.result()  # doctest: +SKIP

    Attributes:
        run_id: The ID of the run.
    """

    def __init__(self, flow: str, arguments: Mapping[str, Any]) -> None:
        self.run_id: str = arguments["run_id"]
        self._store: StoreParameter = arguments.get("store", "artifacts")
        if not (isinstance(self._store, StoreBlock) or names_block(self._store, StoreBlock)):
            # As it is meant now: the caller may go to another folder meanwhile.
            self._store = Store.parse(self._store).url
        self._run_ids = [self.run_id]
        if flow == "model_pipeline":
            stages = reversed(get_args(Stage))
            self._run_ids = [stage_run_id(self.run_id, stage) for stage in stages]
        self._is_cancelled = False
        # Only this user can enter it: what lies in it is carried out.
        _remove_old()
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self._tidy = weakref.finalize(self, _remove, self._folder, os.getpid())
        _write_call(self._folder, flow, arguments)
        (self._folder / PARENT).write_text(str(os.getpid()))
        with (self._folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (this Python)
                python_words("partwise.flows.orchestration.started_process", str(self._folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal, and a notebook's interrupt, go to all of a process group.
                start_new_session=True,
            )
        self._has_ended = threading.Event()
        # Keeps this handle, and with it the folder, as long as the process needs it.
        threading.Thread(target=self._follow, daemon=True, name="partwise-started").start()

    def _follow(self) -> None:
        self._process.wait()
        self._has_ended.set()

    def __repr__(self) -> str:
        return f"StartedRun({self.run_id!r}, {self.status.value})"

    @property
    def status(self) -> RunStatus:
        """IN_PROGRESS until the call has ended, then how; FAILURE also where it was refused."""
        if not self._has_ended.is_set():
            return RunStatus.IN_PROGRESS
        try:
            return self.result().status
        except RunCancelledError:
            return RunStatus.CANCELLED
        except BaseException:
            return RunStatus.FAILURE

    def progress(self) -> RunProgress | None:
        """Return how many partitions are in which state; None before the run has begun.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            return self._open().progress()
        except RunNotFoundError:
            return None

    def _open(self) -> Run:
        """Open the run; of a pipeline that of the stage which has begun last.

        Raises:
            RunNotFoundError: It has not begun.
        """
        store = open_store(self._store)
        for run_id in self._run_ids:
            with suppress(RunNotFoundError):
                return Run.open(run_id, store)
        raise RunNotFoundError(f"The run {self.run_id!r} has not begun.")

    def wait(self, timeout_s: float | None = None) -> RunStatus:
        """Wait until the call has ended, or for so long; return the status.

        Ctrl-C ends the waiting, and not the work.
        """
        self._has_ended.wait(timeout_s)
        return self.status

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the end of the call, and return what it returns, or raise what it raises.

        Raises:
            TimeoutError: It is still at work after `timeout_s` seconds.
            RunFailedError: Also where its process was killed.
        """
        if not self._has_ended.wait(timeout_s):
            raise TimeoutError(f"The run {self.run_id!r} is still at work after {timeout_s:g} s.")
        try:
            packed = pickle.loads((self._folder / OUTCOME).read_bytes())  # noqa: S301 (our folder)
        except FileNotFoundError:
            raise self._died() from None
        returned, raised, cause = (pickle.loads(each) if each else None for each in packed)  # noqa: S301
        if raised is not None:
            # Frames of another process help nobody, but those of the caller's own code.
            own = raised.with_traceback(None) if isinstance(raised, PartwiseError) else raised
            raise own from cause
        return cast("R", returned)

    def _died(self) -> PartwiseError:
        """Return the error of a process that left no outcome."""
        code = self._process.returncode
        if self._is_cancelled and code == -signal.SIGTERM:
            return cancelled(self.run_id, has_begun=False)
        lines = self.logs().strip().splitlines()
        last = f" Its last line: {without_secrets(lines[-1])[:200]}" if lines else ""
        try:
            run = self._open()
        except PartwiseError:
            run = None
        return RunFailedError(
            f"The process of the run {self.run_id!r} ended by {_name_of(code)}, before it could "
            "say how the run ended. What is committed is kept, and a resume goes on with it."
            f"{last}",
            run,
        )

    def cancel(self) -> bool:
        """Have the work end as Ctrl-C ends it, within seconds: what is committed is kept.

        Returns:
            Whether it was at work. `wait` says when it has ended.
        """
        if self._has_ended.is_set():
            return False
        if not self._is_cancelled:
            # Once: a second signal would interrupt what tidies up.
            self._is_cancelled = True
            self._process.send_signal(signal.SIGTERM)
        return True

    def detach(self) -> Path:
        """Have the work go on when this process has ended, however that ends.

        Returns:
            The file with the lines of its process. It stays for a week after the last of them.
        """
        (self._folder / DETACHED).touch()
        self._tidy.detach()
        return self._folder / LOG

    def logs(self) -> str:
        """Return the lines that its process has written so far."""
        return (self._folder / LOG).read_text(errors="replace")

    def __await__(self) -> Generator[Any, None, R]:
        """Wait as `result` does; where the waiting is cancelled, so is the work."""
        return self._awaited().__await__()

    async def _awaited(self) -> R:
        try:
            while not self._has_ended.is_set():
                await asyncio.sleep(LOOK_S)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    def _line(self) -> str:
        """Return how it stands, in a line."""
        if self._has_ended.is_set():
            try:
                return f"{self.run_id}: {self.result().status.value}"
            except BaseException as error:
                return f"{self.run_id}: {error}"
        try:
            return f"{self.run_id}: {self.progress() or 'about to begin'}"
        except PartwiseError as error:
            return f"{self.run_id}: {error}"

    def _ipython_display_(self) -> None:
        """Show a line that follows the run, and ends with it."""
        line = LiveLine(self._line())

        def follow() -> None:
            while not self._has_ended.wait(LIVE_LINE_S):
                line.show(self._line())
            line.show(self._line())

        threading.Thread(target=follow, daemon=True, name="partwise-live-line").start()


class _Pickler(cloudpickle.Pickler):
    """Notes of which modules the functions and classes are that it is given."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.modules: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType):
            self.modules.add(value.__module__)
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _write_call(folder: Path, flow: str, arguments: Mapping[str, Any]) -> None:
    """Write a call as its process reads it.

    Raises:
        FunctionError: An argument is only in this process.
    """
    modules = set()
    # Each by itself and into the file: rows in memory are not to be there once more.
    with (folder / ARGUMENTS).open("wb") as file:
        for name, value in arguments.items():
            pickler = _Pickler(file)
            try:
                pickler.dump(value)  # type: ignore[no-untyped-call]
            except Exception as error:
                why = without_secrets(" ".join(str(error).split()))[:200]
                raise FunctionError(
                    f"{flow}.start: the argument {name!r}, a {type(value).__name__}, cannot be "
                    f"sent to the process of the run ({why}). Give "
                    f"what can be, such as a table or a file's name, or call {flow} itself."
                ) from error
            modules |= pickler.modules - {"__main__"}
    call = flow, arguments["run_id"], list(arguments), sorted(modules)
    (folder / CALL).write_bytes(pickle.dumps(call))


def _remove(folder: Path, owner: int) -> None:
    # A fork of the caller's has the handle too, and comes by here as it ends.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_old() -> None:
    """Remove the folders that this user's processes have left, a week after their last line."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError):
            is_ours = folder.lstat().st_uid == os.getuid()
            # One without files was made just now.
            latest = max((each.stat().st_mtime for each in folder.iterdir()), default=time.time())
            is_old = time.time() - latest > KEPT_S
            if is_ours and is_old and not Path("/proc", (folder / PARENT).read_text()).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _name_of(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
