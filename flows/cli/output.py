"""How the command line prints: aligned for people, JSON for programs."""

import base64
import datetime as dt
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from partwise.formatting import number, size

STYLES: dict[str, str] = {
    "SUCCESS": "green",
    "DONE": "green",
    "IN_PROGRESS": "cyan",
    "PARTIAL_FAILURE": "yellow",
    "SKIPPED": "dim",
    "CANCELLED": "yellow",
    "FAILURE": "red",
    "FAILED": "red",
    "INTERNAL_ERROR": "red",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return a console on stdout that breaks no lines and colours nothing by itself."""
    return _Console(highlight=False, soft_wrap=True)


def print_fields(fields: Mapping[str, Text | str]) -> None:
    """Print names and values in two columns; a value may have several lines."""
    out = console()
    width = max(map(len, fields))
    for name, value in fields.items():
        lines = (value if isinstance(value, Text) else Text(value)).split("\n", allow_blank=True)
        for i, line in enumerate(lines):
            out.print(Text(f"  {'' if i else name:<{width}}  ").append_text(line))


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


def print_json(value: Mapping[str, Any]) -> None:
    """Print one line of JSON."""
    line = json.dumps(_finite(value), default=_plain, ensure_ascii=False)
    sys.stdout.write(f"{line}\n")


def print_garbage(
    found: Sequence[tuple[str, int]], where: str, *, dry_run: bool, as_json: bool
) -> None:
    """Print files that were deleted, or would be, with their sizes in bytes."""
    if as_json:
        for path, size_bytes in found:
            print_json({"path": path, "size_bytes": size_bytes, "deleted": not dry_run})
        return
    out = console()
    for path, size_bytes in found:
        out.print(f"{size(size_bytes):>10}  {path}", markup=False)
    verb = "would be deleted" if dry_run else "deleted"
    total = size(sum(size_bytes for _, size_bytes in found))
    out.print(f"{len(found):,} files of {where} {verb}, {total}", markup=False)


def cell_text(value: Any) -> str:
    """Return a cell's text."""
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
