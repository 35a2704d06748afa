"""Ask a server at an open rate, with wrk."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("open_rate.lua")
CONNECTIONS = 64


class NoLoadToolError(Exception):
    """The program that asks is not there."""


@dataclass(frozen=True)
class Asked:
    """What came of questions at a rate."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    seconds: float
    sent: int
    answers: int
    late: int
    """Questions that were sent over 10 ms after their time, since all connections waited: where
    these are many, the percentiles are better than what a user would see."""
    latest_ms: float
    broken: int
    """Connections refused, cut or out of time."""
    statuses: Mapping[str, int]
    versions: Mapping[str, int]
    """Answers by the version of the model that they name."""

    @property
    def failed(self) -> int:
        """How many questions have no answer that is a success."""
        return self.broken + sum(n for status, n in self.statuses.items() if status != "200")


def ask(url: str, bodies: Sequence[str], rate: int, seconds: float) -> Asked:
    """Send bodies one after the other, so many a second, whatever becomes of them.

    Raises:
        NoLoadToolError: There is no wrk.
    """
    program = shutil.which("wrk")
    if program is None:
        raise NoLoadToolError("There is no wrk, which asks: apt-get install wrk.")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(f"{body}\n" for body in bodies))
        file.flush()
        words = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "--timeout", "10s"]
        ended = subprocess.run(
            [program, *words, "-s", str(SCRIPT), url, "--", str(rate), file.name],
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(ended.stdout.splitlines()[-1])
    return Asked(**{name: found[name] for name in Asked.__dataclass_fields__})
