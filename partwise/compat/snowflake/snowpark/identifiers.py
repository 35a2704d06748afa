"""Names as SQL has them: in upper case unless they are quoted."""

import re
from urllib.parse import quote

from partwise.errors import InputError

PART = r'(?:[A-Za-z_][\w$]*|"[\w $.-]+")'
NAME = rf"{PART}(?:\.{PART}){{0,2}}"
"""A name with its schema and database, or without."""


def stored(name: str) -> str:
    """Return the name that is meant: `target` is TARGET, and `"target"` is target."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name.upper()


def quoted(name: str) -> str:
    """Return how a stored name is written: in quotes, unless it is one of upper case."""
    return name if re.fullmatch(r"[A-Z_][A-Z0-9_$]*", name) else f'"{name}"'


def parts_of(name: str) -> list[str]:
    """Return the stored parts of a name: those of database and schema, where it has them, first.

    Raises:
        InputError: It is no name.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(f"{name!r} is no name: write TABLE or DATABASE.SCHEMA.TABLE.")
    return [stored(part) for part in re.findall(PART, name)]


def qualified(name: str, database: str, schema: str) -> str:
    """Return the full name of a table, as the name of a folder."""
    parts = parts_of(name)
    full = [database, schema][: 3 - len(parts)] + parts
    # A point within quotes would make two names one.
    return ".".join(quote(part, safe=" $").replace(".", "%2E") for part in full)
