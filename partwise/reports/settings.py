"""What a run was called with, and each time that work on it began."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from partwise.errors import InputError
from partwise.formatting import counted
from partwise.runs.run import Run
from partwise.tables.keys.given_keys import KEYS_URL, keys_of_url

MOST_SETTINGS = 200
MOST_GENERATIONS = 20
_VALUE_CHARS = 600
_FINGERPRINT_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One time that work on a run began."""

    number: int
    started_at: datetime
    owner: str
    intent: str
    source: str
    inputs: str
    code: str
    kept_from: str
    """Earlier generations whose finished partitions could be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The newest call of a run, and the history of calls."""

    call: tuple[tuple[str, str], ...]
    """Dotted names and values, at most `MOST_SETTINGS`."""
    left_out: int
    unset: tuple[str, ...]
    """Names without a value."""
    obstacle: str | None
    """Why the call is not known."""
    generations: tuple[Generation, ...]
    """The newest first, at most `MOST_GENERATIONS`."""
    older: int
    environment: tuple[tuple[str, str], ...]
    fingerprints: tuple[tuple[str, str], ...]


def describe_settings(run: Run) -> Settings | None:
    """Return what is written down of a run's calls; None where no work on it ever began."""
    if not run.generation:
        return None
    oldest = max(run.oldest_generation, run.generation - MOST_GENERATIONS + 1)
    numbers = range(run.generation, oldest - 1, -1)
    documents = [run.read_generation_document(number) for number in numbers]
    newest = documents[0]
    call = [] if newest.call is None else list(_flatten(newest.call, ""))
    call = [(name.removeprefix("arguments."), value) for name, value in call]
    unset = tuple(name for name, value in call if value is None)
    known = [(name, value) for name, value in call if value is not None]
    return Settings(
        call=tuple(known[:MOST_SETTINGS]),
        left_out=max(0, len(known) - MOST_SETTINGS),
        unset=unset[:MOST_SETTINGS],
        obstacle=newest.call_obstacle,
        generations=tuple(
            Generation(
                number=document.generation,
                started_at=document.started_at,
                owner=document.owner,
                intent=document.on_existing_artifacts,
                source=_short(document.source_fingerprint),
                inputs=_short(document.inputs_fingerprint),
                code=_short(document.code_fingerprint),
                kept_from=", ".join(map(str, document.compatible[-5:])) or "none",
            )
            for document in documents
        ),
        older=oldest - run.oldest_generation,
        environment=tuple(newest.environment.items()),
        fingerprints=(
            ("source", newest.source_fingerprint),
            ("inputs", newest.inputs_fingerprint or "unknown: counts as changed"),
            ("code", newest.code_fingerprint or "unknown: counts as changed"),
        ),
    )


def _short(fingerprint: str | None) -> str:
    return "unknown" if fingerprint is None else fingerprint[:_FINGERPRINT_CHARS]


def _flatten(value: JsonValue, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the leaves of a document by their dotted names; a list is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{name}.{key}" if name else key)
        return
    if value is None:
        yield name, None
        return
    if isinstance(value, str) and value.startswith(KEYS_URL):
        # Of many keys megabytes, which nobody can read.
        with suppress(InputError):
            value = counted(keys_of_url(value).num_rows, "key")
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        text = ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    yield name, text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}..."
