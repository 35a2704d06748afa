"""How the command line prints: aligned for people, JSON for programs."""

import base64
import datetime as dt
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from partwise.errors import PartwiseError
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS
from partwise.formatting import PICTURES, STYLES, counted, number, shortened, size, visible
from partwise.redaction import without_secrets
from partwise.reports.fields import field_lines

KEPT = "\n\t"
"""Control characters that lines of text may have."""
# All of them stand in strings of JSON, where an escape is the same character to a program.
_ESCAPES = {code: f"\\u{code:04x}" for code in PICTURES}


class _Console(Console):
    """Shows what a terminal would obey as pictures, in all that is printed."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(_harmless, objects), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _harmless(shown: Any) -> Any:
    if isinstance(shown, str):
        return visible(shown, KEPT)
    if isinstance(shown, Text):
        shown = shown.copy()
        # As long as before, so the styles stay where they are.
        shown.plain = visible(shown.plain, KEPT)
    return shown


def print_text(text: str) -> None:
    """Print a text of somebody's as it is, such as a log, but for what a terminal would obey."""
    sys.stdout.write(visible(text, KEPT))


def print_line(line: str = "") -> None:
    """Print a line as it is, but for what a terminal would obey, and at once."""
    print_text(f"{line}\n")
    sys.stdout.flush()


def tell(line: str) -> None:
    """Print a line of news on stderr at once."""
    sys.stderr.write(f"{visible(line, KEPT)}\n")
    sys.stderr.flush()


def console() -> Console:
    """Return a console on stdout, for what has colours; it breaks no lines, and reads no signs."""
    return _Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_fields(fields: Mapping[str, Text | str]) -> None:
    """Print names and values in two columns; a value may have several lines."""
    out = console()
    for line in field_lines(fields):
        out.print(line)


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows in aligned columns, numbers to the right."""
    texts = [[cell_text(value) for value in row] for row in rows]
    widths = [
        max([len(name), *(len(row[i]) for row in texts)], default=0) for i, name in enumerate(names)
    ]
    right = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(names))]

    def line(cells: Sequence[str]) -> Text:
        text = Text()
        for cell, width, is_right in zip(cells, widths, right, strict=True):
            padded = f"{cell:>{width}}" if is_right else f"{cell:<{width}}"
            text.append(f"{padded}  ", STYLES.get(cell))
        text.rstrip()
        return text

    out = console()
    out.print(line([name.upper() for name in names]))
    for row in texts:
        out.print(line(row))


def print_json(*values: Mapping[str, Any]) -> int:
    """Print a line of JSON for each value, and return the exit code of a command that does this."""
    for value in values:
        line = json.dumps(_finite(value), default=_plain, ensure_ascii=False)
        sys.stdout.write(f"{line.translate(_ESCAPES)}\n")
    return SUCCESS


def print_listed(
    names: Iterable[str],
    read: Callable[[str], tuple[Mapping[str, Any], Sequence[Any]]],
    heads: Sequence[str],
    nothing: str,
    *,
    as_json: bool,
) -> int:
    """Print what a store has by names, and return the exit code.

    `read` returns what is printed of one, as a line of JSON and as a row. One that cannot be read
    has its name alone, and the reason stands below. `nothing` is said where there are none.
    """
    found, unreadable = [], {}
    for name in names:
        try:
            found.append(read(name))
        except Exception as error:
            # Whatever is wrong with one, the others are to be seen.
            unreadable[name] = why_unreadable(error)
    if as_json:
        unread = [{"name": k, "status": "UNREADABLE", "error": v} for k, v in unreadable.items()]
        return print_json(*(record for record, _ in found), *unread)
    if not found and not unreadable:
        print_line(nothing)
        return SUCCESS
    rows = [row for _, row in found]
    print_table(heads, [*rows, *((name, *[None] * (len(heads) - 1)) for name in unreadable)])
    for name, why in unreadable.items():
        print_line(f"{name}: {why}")
    return SUCCESS


def print_garbage(
    found: Sequence[tuple[str, int]],
    where: str,
    *,
    dry_run: bool,
    as_json: bool,
    waiting: Sequence[tuple[str, int]] = (),
) -> int:
    """Print files that were deleted, or would be, with their sizes in bytes; return the exit code.

    And those that are `waiting` for the end of their grace.
    """
    if as_json:
        for path, size_bytes in found:
            print_json({"path": path, "size_bytes": size_bytes, "deleted": not dry_run})
        for path, size_bytes in waiting:
            record = {"path": path, "size_bytes": size_bytes, "deleted": False}
            print_json({**record, "waits_for_grace": True})
        return SUCCESS
    for path, size_bytes in found:
        print_line(f"{size(size_bytes):>10}  {path}")
    verb = "would be deleted" if dry_run else "deleted"
    total = size(sum(size_bytes for _, size_bytes in found))
    print_line(f"{counted(len(found), 'file')} of {where} {verb}, {total}")
    if waiting:
        total = size(sum(size_bytes for _, size_bytes in waiting))
        them = counted(len(waiting), "more file")
        print_line(f"{them}, {total}: once readers have had their grace")
    return SUCCESS


def print_damages(
    damages: Sequence[str], files: int, size_bytes: int, where: str, *, as_json: bool
) -> int:
    """Print what was found to be damaged in something, and return the exit code."""
    code = FAILURE if damages else SUCCESS
    if as_json:
        print_json(*({"damage": damage} for damage in damages))
        return code
    for damage in damages:
        print_line(visible(damage))
    wrong = f"{len(damages):,} damaged" if damages else "all as they were written"
    print_line(f"{counted(files, 'file')} of {where}, {size(size_bytes)}: {wrong}")
    return code


def why_unreadable(error: Exception) -> str:
    """Return in one line why something in a store cannot be listed."""
    kind = "" if isinstance(error, PartwiseError) else f"{type(error).__name__}: "
    return shortened(without_secrets(f"{kind}{error}"), 500)


def cell_text(value: Any) -> str:
    """Return a cell's text, in one line."""
    return visible(_text(value))


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return number(value)
        case dt.datetime():
            return value.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        case _:
            return str(value)


def _finite(value: Any) -> Any:
    """Return the value with null for numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return str(value)
