"""In which line of a CSV file a row stands: Arrow counts rows, and people look for lines."""

import io
import re
from typing import Any

_ROW = re.compile(r"Row #(\d+): ")


def with_line(message: str, stream: Any) -> str:
    """Return a message of Arrow's CSV reader with the line of the file in place of its row.

    Args:
        message: Its rows count from 1, with the header, and without lines that are empty.
        stream: Gives the bytes of the file from its beginning, decompressed.
    """
    found = _ROW.search(message)
    if found is None:
        return message
    line = line_of_row(stream, int(found[1]))
    return f"{message[: found.start()]}line {line}: {message[found.end() :]}"


def line_of_row(stream: Any, row: int) -> int:
    r"""Return the number of the line in which a row begins, from 1.

    Args:
        stream: Gives the bytes of the file from its beginning.
        row: The number of the row, from 1, empty lines not counted.

    Example:
        >>> line_of_row(io.BytesIO(b'a,b\n\n"x\ny",1\n2,3\n'), 3)
        5
    """
    # Every byte is a character of this encoding; lines end with \n, \r\n or \r.
    lines = io.TextIOWrapper(stream, "latin-1", newline=None)
    quoted = False
    number = 0
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix("\xef\xbb\xbf") if number == 1 else line
        if not quoted and text != "\n":
            row -= 1
            if not row:
                break
        quoted = _stays_quoted(text, quoted)
    lines.detach()
    return number


def _stays_quoted(line: str, quoted: bool) -> bool:
    """Whether a quoted value goes on behind the end of a line."""
    if not quoted and '"' not in line:
        return False
    place, begins = 0, not quoted
    while True:
        if quoted:
            place = line.find('"', place) + 1
            if not place:
                return True
            if line.startswith('"', place):
                # Two of them stand for one.
                place += 1
                continue
            quoted = False
        if not begins:
            # A quote in the middle of a value is nothing but a character.
            place = line.find(",", place) + 1
            if not place:
                return False
        begins = False
        if line.startswith('"', place):
            quoted, place = True, place + 1
