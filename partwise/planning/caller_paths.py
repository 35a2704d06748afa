"""Paths that are there for the caller, and not for the processes that are given them."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from partwise.formatting import some_of

_SHOWN = 3


def paths_left_behind(
    words: Sequence[str], shell: str, variables: Mapping[str, str], names: frozenset[str]
) -> tuple[str, ...]:
    """Return a sentence about relative paths that processes will look for in vain; else none.

    They run in a folder with a copy of the source directory, and not in the caller's. `shell` is a
    command line for /bin/sh; `names` are the files in the source directory.
    """
    folders = {str(each) for name in names for each in PurePath(name).parents}
    found = [
        f"{what} {text!r}"
        for what, text in _texts(words, shell, variables)
        if _is_here(text) and str(PurePath(text)) not in names | folders
    ]
    return _said(
        found,
        "in the source directory, of which the processes have a copy. Give it as an input and "
        "write {inputs.NAME} in its place, or give an absolute path that all workers see.",
    )


def params_left_behind(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence about relative paths that ranks will look for in vain; else none.

    Each rank has a folder of its own.
    """
    found = [
        f"the parameter {name} {str(value)!r}"
        for name, value in params.items()
        if isinstance(value, str | PurePath) and _is_here(str(value))
    ]
    return _said(
        found,
        "in the folders of the ranks. Give an absolute path that all workers see, or a URL.",
    )


def _said(found: Sequence[str], where_not: str) -> tuple[str, ...]:
    if not found:
        return ()
    here = str(Path.cwd())
    return (f"{some_of(found, _SHOWN)}: this path is there in {here!r}, and not {where_not}",)


def _texts(
    words: Sequence[str], shell: str, variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    # Of a quote that is left open the shell will say it.
    with suppress(ValueError):
        words = [*words, *shlex.split(shell)]
    for word in words:
        yield "the argument", word.partition("=")[2] if word.startswith("-") else word
    for name, value in variables.items():
        yield f"the variable {name}", value


def _is_here(text: str) -> bool:
    """Whether a text is a relative path of something that the caller has; numbers seldom are."""
    is_path = bool(text.strip("./")) and not text.isdigit() and not os.path.isabs(text)
    return is_path and os.path.exists(text)
