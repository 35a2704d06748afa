"""A program at work: its output is copied to the log of the rank, and metrics are taken from it."""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from partwise.engine.failures import printable
from partwise.engine.works import check_metrics

READ_BYTES = 256 << 10
LONGEST_LINE = 64 << 10
"""A longer one is no metrics line, and is not waited for."""
UNFINISHED_S = 0.2
"""After so long without its end, the beginning of a line is written to the log."""
METRICS = "metrics"
_SIGN = b'"metrics"'


class Program:
    """A program that runs as the child of a rank, in its process group.

    Its stdout is a pipe that this process empties, so that no line of it is missed, however much it
    writes: it has to wait where it writes faster. Its stderr goes to the log by itself.

    Args:
        words: The program and its arguments.
        directory: Where it works.
        environment: All of its variables.
        metrics: Is updated by what it reports.
    """

    def __init__(
        self,
        words: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        metrics: dict[str, float],
    ) -> None:
        self._words = list(words)
        self._directory = directory
        self._environment = dict(environment)
        self._metrics = metrics
        self._line = b""
        self._shown = 0

    def run(self, started: Callable[[int], object] = int) -> int:
        """Start the program, and follow it to its end.

        A SIGTERM to this process, as a stop sends it to the whole group, is left to the program:
        this process goes on until that has ended.

        Args:
            started: Is called with the number of its process.

        Returns:
            How it ended, as `subprocess` says it. What it started itself may still run.

        Raises:
            OSError: It cannot be started.
        """
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
        with os.fdopen(reading, "rb", 0), left_to_the_program() as was_told:
            try:
                process = subprocess.Popen(  # noqa: S603 (the caller's program)
                    self._words,
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=writing,
                )
            finally:
                os.close(writing)
            started(process.pid)
            if was_told():
                # Between the handler and the start: the program has not got it.
                process.send_signal(signal.SIGTERM)
            self._follow(process, reading)
            return process.wait()

    def _follow(self, process: subprocess.Popen[bytes], reading: int) -> None:
        """Copy what it writes until it has ended; what it left behind is not waited for."""
        os.set_blocking(reading, False)
        ended = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(reading, select.POLLIN)
            poll.register(ended, select.POLLIN)
            while True:
                ready = dict(poll.poll(int(UNFINISHED_S * 1000)))
                if reading in ready and not self._copy(reading):
                    poll.unregister(reading)
                if ended in ready:
                    while self._copy(reading):
                        pass
                    break
                if not ready:
                    self._show(self._line[self._shown :])
                    self._shown = len(self._line)
        finally:
            os.close(ended)
        self._take(b"\n" if self._line else b"")

    def _copy(self, reading: int) -> bool:
        """Copy what can be read at once; False: there is nothing, or nobody writes any more."""
        try:
            content = os.read(reading, READ_BYTES)
        except BlockingIOError:
            return False
        self._take(content)
        return bool(content)

    def _take(self, content: bytes) -> None:
        whole, newline, rest = content.rpartition(b"\n")
        if not newline:
            self._line += content
        else:
            text = self._line + whole + b"\n"
            self._show(text[self._shown :])
            self._line, self._shown = rest, 0
            if _SIGN in text:
                self._take_metrics(text)
        if len(self._line) > LONGEST_LINE:
            self._show(self._line[self._shown :])
            self._line, self._shown = b"", 0

    def _show(self, content: bytes) -> None:
        # The log is this process's stdout; whole lines, since stderr is written there as well.
        while content:
            content = content[os.write(1, content) :]

    def _take_metrics(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if _SIGN in line and len(line) <= LONGEST_LINE:
                self._metrics.update(parse_metrics(line))


def parse_metrics(line: bytes) -> dict[str, float]:
    """Return the metrics that a line reports; none where it is anything else.

    Args:
        line: Of a program's stdout. One that reports is a JSON object whose key "metrics" holds an
            object of numbers; other keys may stand beside it.

    Example:
        >>> parse_metrics(b'{"metrics": {"loss": 0.25}, "epoch": 3}')
        {'loss': 0.25}
    """
    try:
        metrics = json.loads(line)[METRICS]
        return {printable(name): value for name, value in check_metrics(metrics).items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


@contextmanager
def left_to_the_program() -> Iterator[Callable[[], bool]]:
    """Have SIGTERM not end this process; gives a function that says whether it has come."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        told.append(number)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGTERM, before)
