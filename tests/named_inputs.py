"""The named inputs of docs/inputs.md, read from its tables: the page and the tests cannot drift."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from partwise.errors import PartwiseError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "inputs.md"
OUTCOMES = ("accepted", "partition fails", "refused")
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
SENTENCE = re.compile("\u201c(.+?)\u201d")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInput:
    """One row of the tables."""

    number: int
    words: str
    outcome: str
    rule: str

    @property
    def name(self) -> str:
        """The number and the words, as they stand in the name of its test."""
        return f"{self.number:02d}-{re.sub('[^a-z0-9]+', '-', self.words.lower()).strip('-')}"

    @property
    def pattern(self) -> str:
        """The sentence that the rule quotes, as a regular expression."""
        (sentence,) = SENTENCE.findall(self.rule)
        return ".*".join(re.escape(part) for part in sentence.split("\u2026"))

    def fails(self, message: str) -> str:
        """The outcome, when the message of a partition is the sentence that the rule quotes."""
        assert re.search(self.pattern, message)
        return "partition fails"

    def is_refused(self, call: Callable[[], Any]) -> str:
        """The outcome, when `call` raises our error with the sentence that the rule quotes."""
        with pytest.raises(PartwiseError, match=self.pattern) as caught:
            call()
        message = str(caught.value)
        assert "\n" not in message
        assert len(message) < 600
        return "refused"


def _read_page() -> dict[str, NamedInput]:
    rows = [
        NamedInput(number=int(number), words=words, outcome=outcome, rule=rule)
        for number, words, outcome, rule in ROW.findall(PAGE.read_text())
    ]
    return {row.name: row for row in rows}


NAMED = _read_page()
"""All rows, by the names of their tests."""


class Cases(dict[str, Callable[..., str]]):
    """The cases of one module: functions of what they need, which return the outcome they saw."""

    def __call__(self, name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """Add the decorated function under a name of `NAMED`."""

        def add(function: Callable[..., str]) -> Callable[..., str]:
            assert name not in self, name
            self[name] = function
            return function

        return add


def names_between(first: int, last: int) -> set[str]:
    """The names of the rows of these numbers: what a module has to have cases for."""
    return {name for name, row in NAMED.items() if first <= row.number <= last}
