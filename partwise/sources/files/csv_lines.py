"""In which line of a CSV file a row stands: Arrow counts rows, and people look for lines."""

import io
import re
from typing import Any

from partwise.sources.files.reading_options import CsvOptions

_COMMAS = CsvOptions(delimiter=",")
_ROW = re.compile(r"Row #(\d+): ")


def with_line(message: str, stream: Any, options: CsvOptions = _COMMAS) -> str:
    """Return a message of Arrow's CSV reader with the line of the file in place of its row.

    `message` counts rows from 1, with the header, and without lines that are empty. `stream` gives
    the bytes of the file from its beginning, decompressed, as UTF-8.
    """
    found = _ROW.search(message)
    if found is None:
        return message
    line = line_of_row(stream, int(found[1]), options)
    return f"{message[: found.start()]}line {line}: {message[found.end() :]}"


def line_of_row(stream: Any, row: int, options: CsvOptions = _COMMAS) -> int:
    r"""Return the number of the line in which a row begins, from 1.

    `row` counts from 1 too, empty lines left out but for those that are skipped; `stream` gives the
    bytes of the file from its beginning.

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
        is_skipped = number <= options.skip_rows
        if is_skipped or (not quoted and text != "\n"):
            row -= 1
            if not row:
                break
        if not is_skipped and options.quote:
            quoted = _stays_quoted(text, quoted, options)
    lines.detach()
    return number


def _stays_quoted(line: str, quoted: bool, options: CsvOptions) -> bool:
    """Whether a quoted value goes on behind the end of a line."""
    quote = options.quote
    if not quoted and quote not in line:
        return False
    place, begins = 0, not quoted
    while True:
        if quoted:
            place = line.find(quote, place) + 1
            if not place:
                return True
            if line.startswith(quote, place):
                # Two of them stand for one.
                place += 1
                continue
            quoted = False
        if not begins:
            # A quote in the middle of a value is nothing but a character.
            place = line.find(options.delimiter, place) + 1
            if not place:
                return False
        begins = False
        if line.startswith(quote, place):
            quoted, place = True, place + 1
