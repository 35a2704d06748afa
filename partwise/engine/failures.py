"""Failures as text: what a ledger, a log and a group of equal failures say of them."""

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from partwise.errors import PartwiseError
from partwise.redaction import without_secrets

MESSAGE_CHARS = 2_000
TRACEBACK_CHARS = 20_000
_MASKED_CHARS = 1 << 17
"""Of a text of any length so much is looked through for secrets. A mask may be far shorter than
what it stands for, so that what the first cut divides comes near to the second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt at a partition failed."""

    error_type: str
    message: str
    fingerprint: str
    """Equal failures of different partitions have one."""
    final: bool
    """Whether a second attempt would come to the same."""
    traceback: str = ""

    @property
    def summary(self) -> str:
        """Type and message."""
        return f"{self.error_type}: {self.message}"


def fingerprint_failure(*parts: str) -> str:
    """Return 12 hex digits by which equal failures are one group."""
    return hashlib.sha256(printable("\n".join(parts)).encode()).hexdigest()[:12]


def printable(text: str) -> str:
    """Return text that can be encoded: lone surrogates, as in odd file names, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def storable(text: str) -> str:
    """Return a user's text as it may be written down: without secrets, and printable."""
    return printable(without_secrets(text))


def storable_start(text: str, most: int = MESSAGE_CHARS) -> str:
    """Return the beginning of a user's text, of any length, as it may be written down."""
    # A secret that the cut would divide is masked before.
    return storable(text[:_MASKED_CHARS])[:most]


def _hint_at_relative_path(message: str, given: Mapping[str, Any]) -> str:
    """Return a sentence on a path that was right where the caller stood, and leads nowhere here."""
    for name, value in given.items():
        text = str(value) if isinstance(value, str | PurePath) else ""
        # Of a single word it is not known whether a path is meant.
        is_path = "/" in text.strip("/") or ("." in text and "No such file" in message)
        if not is_path or "://" in text or text not in message or Path(text).is_absolute():
            continue
        try:
            is_here, here = Path(text).exists(), str(Path.cwd())
        except (OSError, ValueError):
            continue
        if not is_here:
            return (
                f" (If {name}={text!r} is a path: it is relative, and is not found from "
                f"{printable(here)}, where this process works. Give an absolute one that workers "
                "see.)"
            )
    return ""


def _middle_left_out(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[...]\n{text[-half:]}"


def describe_error(error: BaseException, given: Mapping[str, Any] | None = None) -> Failure:
    """Return what is known of an exception, as text.

    The fingerprint is of the type and of where it was raised (file name, function, line), so that
    equal failures of partitions with different values are one group.

    `given` are the user's values by name. One that looks like a relative path, and which the
    message is about, is explained.
    """
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name = printable(f"{module}{kind.__qualname__}")
    try:
        message = str(error)
    except BaseException as nested:
        message = f"<str() of the exception raised {type(nested).__name__}>"
    is_long = len(message) > MESSAGE_CHARS
    chars = len(message)
    message = storable_start(message) if is_long else storable(message)
    if is_long:
        message = f"{message}... ({chars} characters)"
    message += _hint_at_relative_path(message, given or {})
    where = [
        f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    # One line of code raises for all that may not hold, and `check` tells these apart.
    check = [error.check] if isinstance(error, PartwiseError) and error.check else []
    digest = fingerprint_failure(name, *check, *where[-3:])
    try:
        # Formatting the exception itself would copy a message of any length several times.
        lines = traceback.format_tb(error.__traceback__, limit=40)
        lines += [f"{name}: {message}"] if is_long else []
        text = "".join(lines) if is_long else "".join(traceback.format_exception(error, limit=40))
    except BaseException:
        text = f"{name}: {message}"
    text = _middle_left_out(storable(_middle_left_out(text, _MASKED_CHARS)), TRACEBACK_CHARS)
    return Failure(
        error_type=name,
        message=message,
        fingerprint=digest,
        # Of an exception that is not ours nothing is known: it may be gone at the next attempt.
        final=isinstance(error, PartwiseError) and error.final,
        traceback=text,
    )
