"""The caller's side of the judge: one process for each format, which outlives the files it judges.

Linux only: cases travel in a memfd, so that nothing is left on any disk when one of both dies.
"""

import atexit
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from partwise.errors import ClusterError
from partwise.exports.proof.case_files import ArrayWriter, write_request
from partwise.exports.proof.verdict import Case, Expectation, Finding, Verdict
from partwise.models.export_options import ModelFormat
from partwise.processes.starting import Starter, describe_exit

START_S = 120.0
"""For so long a judge may take to start."""
_LOG_TAIL_BYTES = 2000


class _DiedError(Exception):
    """The process ended before it answered."""


class JudgeProcess:
    """A running judge."""

    def __init__(self) -> None:
        self._cases_fd = os.memfd_create("partwise-cases")
        self._log_fd = os.memfd_create("partwise-judge-log")
        # A thread for each judge, which ends with it: a judge that is replaced leaves none behind.
        self._starter = Starter("judge")
        self.at = ["start", ""]
        self._process = self._starter.start(
            "partwise.exports.proof.judge_process",
            str(os.getpid()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_fd,
            pass_fds=(self._cases_fd,),
            bufsize=0,
        )
        self.pid = self._process.pid
        self.is_late = False
        self._answers = io.BufferedReader(cast("io.FileIO", self._process.stdout))
        try:
            with self._ending_after(START_S):
                self.at = self._receive()["at"]
        except _DiedError:
            end = f"{START_S:g} s" if self.is_late else self.describe_end()
            log = self.read_log()
            self.close()
            raise ClusterError(
                f"The process that judges exports did not start ({end}); it wrote: "
                f"{log or 'nothing'}"
            ) from None

    @contextmanager
    def _ending_after(self, limit_s: float) -> Iterator[None]:
        # A thread, since a runtime that hangs answers to nothing but its end.
        timer = threading.Timer(min(limit_s, threading.TIMEOUT_MAX), self._end_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            # Else one that goes off at this moment could end the judge within its next question.
            timer.join()

    def ask(self, file_path: str, expectation: Expectation, cases: Sequence[Case]) -> Verdict:
        """Return what the judge says of a file.

        Raises:
            _DiedError: It died, or was ended since it took too long.
        """
        self.at = ["load", ""]
        for descriptor in (self._cases_fd, self._log_fd):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(self._cases_fd, "wb", closefd=False) as file:
            absolute = os.path.abspath(file_path)
            request = write_request(ArrayWriter(file), absolute, expectation, cases)
        # The judge has the descriptor under the same number, and opens it again, to read from 0.
        request["cases_path"] = f"/proc/self/fd/{self._cases_fd}"
        with self._ending_after(expectation.timeout_s):
            self._send(json.dumps(request).encode() + b"\n")
            while "verdict" not in (answer := self._receive()):
                self.at = answer["at"]
        found = answer["verdict"]
        findings = tuple(Finding(**finding) for finding in found["findings"])
        return Verdict(findings=findings, metrics=found["metrics"], notes=tuple(found["notes"]))

    def _end_late(self) -> None:
        self.is_late = True
        self._process.kill()

    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self._process.poll() is not None

    def describe_end(self) -> str:
        """Return how the process ended, in words."""
        return describe_exit(self._process.wait())

    def read_log(self) -> str:
        """Return the end of what the process wrote."""
        size = os.fstat(self._log_fd).st_size
        tail = os.pread(self._log_fd, _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
        return tail.decode(errors="replace").strip()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._close_files()
        self._starter.close()

    def abandon(self) -> None:
        """Let go of a judge that belongs to the process which this one was forked from."""
        # It is not a child of this process, so there is nothing to wait for.
        self._process.returncode = 0
        self._close_files()

    def _send(self, line: bytes) -> None:
        # Without a buffer: a forked process would write what stands in its copy once more.
        questions = cast("io.FileIO", self._process.stdin)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[questions.write(rest) :]
        except BrokenPipeError:
            raise _DiedError from None

    def _receive(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise _DiedError
        message: dict[str, Any] = json.loads(line)
        return message

    def _close_files(self) -> None:
        self._answers.close()
        cast("io.FileIO", self._process.stdin).close()
        os.close(self._cases_fd)
        os.close(self._log_fd)


_judges: dict[ModelFormat, JudgeProcess] = {}
_lock = threading.Lock()


def judge(file_path: str, expectation: Expectation, cases: Sequence[Case]) -> Verdict:
    """Return what is wrong with an export, as a process says that has nothing else loaded.

    The first call starts that process, which takes about half a second; others use it again. An
    export that ends it, by a crash of the library that runs it, has a finding for that, and the
    next one gets a new process.

    Raises:
        ClusterError: The process does not start.
    """
    with _lock:
        process = _judges.get(expectation.format)
        if process is None or process.has_ended():
            _end(expectation.format)
            process = _judges[expectation.format] = JudgeProcess()
        try:
            return process.ask(file_path, expectation, cases)
        except _DiedError:
            finding = _describe_death(process, expectation)
            _end(expectation.format)
            return Verdict(findings=(finding,))
        except BaseException:
            # It may still answer, and must not do so to the next question.
            _end(expectation.format)
            raise


@atexit.register
def close_judges() -> None:
    """End this process's judges."""
    for name in list(_judges):
        _end(name)


def _end(name: ModelFormat) -> None:
    process = _judges.pop(name, None)
    if process is not None:
        process.close()


def _describe_death(process: JudgeProcess, expectation: Expectation) -> Finding:
    what, case = process.at
    doing = f"ran on the case {case!r}" if what == "run" else "was loaded"
    if process.is_late:
        message = (
            f"The export was not judged within {expectation.timeout_s:g} s, and its process was "
            f"ended while the export {doing}: {expectation.when_late}."
        )
    else:
        message = (
            f"The process died while the export {doing}: {process.describe_end()}. It wrote: "
            f"{process.read_log() or 'nothing'}"
        )
    return Finding(check="run" if what == "run" else "load", message=message, case=case)


def _forget_judges() -> None:
    global _lock
    # As this process was forked, another thread may have held it.
    _lock = threading.Lock()
    for process in _judges.values():
        process.abandon()
    _judges.clear()


os.register_at_fork(after_in_child=_forget_judges)
