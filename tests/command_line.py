"""Commands of partwise, carried out in this process."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from partwise.flows.cli.main import main


class Ended(NamedTuple):
    """A command that came to its end."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error, which is the last of stderr."""
        *news, last = self.err.splitlines()
        assert last.startswith("error: ")
        assert not any(line.startswith(("error", "Traceback")) for line in news)
        return last.removeprefix("error: ")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it printed as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def partwise(*words: object) -> Ended:
    """Carry out a command."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in words])
    return Ended(code, out.getvalue(), err.getvalue())
