"""A program at work: its output is copied to the log of the rank, and metrics are taken from it."""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

from partwise.engine.failures import printable
from partwise.engine.works import check_metrics

READ_BYTES = 256 << 10
LONGEST_LINE = 64 << 10
"""A longer one is not a metrics line, and is not waited for."""
UNFINISHED_S = 0.2
"""After so long without its end, the beginning of a line is written to the log."""
METRICS = "metrics"
_SIGN = b'"metrics"'


class Program:
    """A program that runs as the child of a rank, in its process group.

    Its stdout and stderr are pipes that this process empties, so that no line of it is missed,
    however much it writes: it has to wait where it writes faster. What it wrote to stdout before a
    traceback stands before that in the log, as long as this process keeps up.
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
        with ExitStack() as stack:
            was_told = stack.enter_context(left_to_the_program())
            output, errors = (stack.enter_context(_Pipe()) for _ in range(2))
            try:
                process = subprocess.Popen(  # noqa: S603 (the caller's program)
                    self._words,
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output.writing,
                    stderr=errors.writing,
                )
            finally:
                output.close_writing()
                errors.close_writing()
            started(process.pid)
            if was_told():
                # Between the handler and the start: the program has not got it.
                process.send_signal(signal.SIGTERM)
            self._follow(process, {output.reading: self._take, errors.reading: _show})
            return process.wait()

    def _follow(
        self, process: subprocess.Popen[bytes], streams: Mapping[int, Callable[[bytes], None]]
    ) -> None:
        """Copy what it writes until it has ended; what it left behind is not waited for."""
        ended = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            for descriptor in (*streams, ended):
                poll.register(descriptor, select.POLLIN)
            while True:
                ready = dict(poll.poll(int(UNFINISHED_S * 1000)))
                for reading, take in streams.items():
                    if reading in ready and not _copy(reading, take):
                        poll.unregister(reading)
                if ended in ready:
                    for reading, take in streams.items():
                        while _copy(reading, take):
                            pass
                    break
                if not ready:
                    _show(self._line[self._shown :])
                    self._shown = len(self._line)
        finally:
            os.close(ended)
        self._take(b"\n" if self._line else b"")

    def _take(self, content: bytes) -> None:
        whole, newline, rest = content.rpartition(b"\n")
        if not newline:
            self._line += content
        else:
            text = self._line + whole + b"\n"
            _show(text[self._shown :])
            self._line, self._shown = rest, 0
            if _SIGN in text:
                self._take_metrics(text)
        if len(self._line) > LONGEST_LINE:
            _show(self._line[self._shown :])
            self._line, self._shown = b"", 0

    def _take_metrics(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if _SIGN in line and len(line) <= LONGEST_LINE:
                self._metrics.update(parse_metrics(line))


class _Pipe:
    """A pipe of which this process has the end that is read, without waiting."""

    def __enter__(self) -> Self:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        # Of a user who has many pipes the kernel keeps it at its usual size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 1 << 20)
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.reading)

    def close_writing(self) -> None:
        """Leave the other end to the program, so that its death is the end of what can be read."""
        os.close(self.writing)


def _copy(reading: int, take: Callable[[bytes], None]) -> bool:
    """Copy what can be read at once; False: there is nothing, or nobody writes any more."""
    try:
        content = os.read(reading, READ_BYTES)
    except BlockingIOError:
        return False
    take(content)
    return bool(content)


def _show(content: bytes) -> None:
    # The log is this process's stdout.
    while content:
        content = content[os.write(1, content) :]


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
    numbers: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        numbers.append(number)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: bool(numbers)
    finally:
        signal.signal(signal.SIGTERM, before)
