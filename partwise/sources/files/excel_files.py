"""Workbooks of Excel and OpenDocument: one sheet of one, read whole, typed by its values."""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from partwise.errors import SourceError
from partwise.formatting import counted
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.reading_options import ExcelOptions

MOST_BYTES = 256 * 2**20
"""Of a workbook, unpacked: it takes up to four times as much memory."""
_MOST_CELLS = 2**24
_BATCH_ROWS = 65_536
_MOST_EXACT = 2**53
_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
_SHEETS = re.compile(rb"<(?:\w+:)?sheet [^>]*?\b\w+:id=\"([^\"]+)\"")
_EXTENT = re.compile(rb"<(?:\w+:)?dimension ref=\"([A-Z]+)(\d+):([A-Z]+)(\d+)\"")
_OPEN_DOCUMENT = "content.xml"
_ROWS = re.compile(rb"<table:table-row([^>]*[^/>])?>(.*?)</table:table-row>", re.DOTALL)
_CELLS = re.compile(rb"<table:(?:covered-)?table-cell([^>]*)>")
_REPEATED = re.compile(rb"-repeated=\"(\d+)\"")
_ARROW_TYPES: dict[frozenset[type], pa.DataType] = {
    frozenset({bool}): pa.bool_(),
    frozenset({str}): pa.string(),
    frozenset({date}): pa.date32(),
    frozenset({datetime}): pa.timestamp("us"),
    frozenset({time}): pa.time64("us"),
    frozenset({timedelta}): pa.duration("us"),
}


def read_workbook(file: FoundFile, options: ExcelOptions) -> tuple[pa.Table, ExcelOptions]:
    """Read a sheet of a workbook.

    A column of whole numbers is of integers, and one of values of several kinds is text. The
    options come back with the name of the sheet that was read.
    """
    sheet, name = _open_sheet(file, options)
    what = f"Sheet {name!r} of file {file.path!r}"
    if sheet.start is None:
        raise SourceError(f"{what} is empty: name another with --excel-sheet (ExcelOptions).")
    first_row, first_column = sheet.start
    rows = sheet.to_python()[max(0, options.skip_rows - first_row) :]
    rows = [row for row in rows if any(value != "" for value in row)]
    names = list(options.column_names) or [_text(value) for value in (rows.pop(0) if rows else [])]
    columns = [list(column) for column in zip(*rows, strict=True)]
    if options.column_names and columns and len(names) != len(columns):
        raise SourceError(
            f"{what} has {counted(len(columns), 'column')}, and column_names has {len(names)}: "
            "name each."
        )
    columns = columns or [[] for _ in names]
    nulls = {"", *options.null_words}
    arrays = {}
    for place, (heading, values) in enumerate(zip(names, columns, strict=True)):
        found = [None if type(value) is str and value in nulls else value for value in values]
        if heading:
            if heading in arrays:
                raise SourceError(f"{what} has more than one column named {heading!r}: rename one.")
            arrays[heading] = found
        elif any(value is not None for value in found):
            raise SourceError(
                f"{what} has values in column {_letters(first_column + place)}, and no name above "
                "them: if the header is further below, say how many rows are above it with "
                "--excel-skip-rows, or in Python Files(..., excel=ExcelOptions(skip_rows=...))."
            )
    if not arrays:
        raise SourceError(f"{what} has no header: name its columns with --excel-column-names.")
    table = pa.table({heading: _array(values) for heading, values in arrays.items()})
    return table, options.model_copy(update={"sheet": name})


def workbook_batches(
    file: FoundFile, options: ExcelOptions, names: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Give columns of a sheet, with numbers as text where text is wanted.

    `options` is what `read_workbook` returned.
    """
    table = read_workbook(file, options)[0].select(names)
    for place, name in enumerate(names):
        column = table.column(place)
        if pa.types.is_string(schema.field(name).type) and not pa.types.is_string(column.type):
            texts = [None if value is None else _text(value) for value in column.to_pylist()]
            table = table.set_column(place, name, pa.array(texts, pa.string()))
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _open_sheet(file: FoundFile, options: ExcelOptions) -> tuple[Any, str]:
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise SourceError(
            f"File {file.path!r} is an Excel workbook, which the package python-calamine reads: "
            "pip install 'partwise[excel]', here and on the workers."
        ) from error
    too_large = (
        f"File {file.path!r} is too large for an Excel workbook, which is read whole: at most "
        f"{MOST_BYTES >> 20} MiB unpacked, and {_MOST_CELLS:,} cells from the first to the last "
        "one that is used. Save the sheet as CSV or Parquet."
    )
    if file.size_bytes > MOST_BYTES:
        raise SourceError(too_large)
    with file.open_stream() as stream:
        content = stream.read()
    try:
        # A sheet of the old format has at most 65,536 rows and 256 columns.
        parts = None if content.startswith(_OLD_FORMAT) else zipfile.ZipFile(io.BytesIO(content))
        if parts is not None and _is_too_large(parts):
            raise SourceError(too_large)
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        name = options.sheet or book.sheet_names[0]
        if name not in book.sheet_names:
            raise SourceError(
                f"File {file.path!r} has no sheet {name!r}: there are "
                f"{', '.join(map(repr, book.sheet_names))}."
            )
        # The reader takes memory for all cells between the first and the last one.
        if parts is not None and _cells(parts, book.sheet_names.index(name)) > _MOST_CELLS:
            raise SourceError(too_large)
        return book.get_sheet_by_name(name), name
    except (calamine.CalamineError, zipfile.BadZipFile, IndexError) as error:
        reason = " ".join(str(error).split()) or "it has no sheet"
        if content.startswith(_OLD_FORMAT):
            reason += "; if it has a password, save it without one"
        raise SourceError(f"File {file.path!r} cannot be read as excel: {reason}.") from error


def _is_too_large(parts: zipfile.ZipFile) -> bool:
    """Whether what is packed is more than is read whole, or says that it stands for more cells."""
    if sum(part.file_size for part in parts.infolist()) > MOST_BYTES:
        return True
    if _OPEN_DOCUMENT not in parts.namelist():
        return False
    cells = 0
    for marks, content in _ROWS.findall(parts.read(_OPEN_DOCUMENT)):
        columns = filled = 0
        for cell in _CELLS.findall(content):
            columns += _repeated(cell)
            filled = columns if b"value-type" in cell else filled
        cells += _repeated(marks) * filled
    return cells > _MOST_CELLS


def _repeated(marks: bytes) -> int:
    found = _REPEATED.search(marks)
    return int(found[1]) if found else 1


def _cells(parts: zipfile.ZipFile, place: int) -> int:
    """Return how many cells a sheet says that it has, from first to last; 0: it does not say."""
    try:
        identifier = re.escape(_SHEETS.findall(parts.read("xl/workbook.xml"))[place])
        relations = re.findall(rb"<Relationship [^>]+>", parts.read("xl/_rels/workbook.xml.rels"))
        (relation,) = [each for each in relations if re.search(rb'\bId="%b"' % identifier, each)]
        target = re.search(rb'\bTarget="/?(?:xl/)?([^"]+)"', relation)
        # The extent stands in front of the rows, of which nothing has to be unpacked for it.
        with parts.open(f"xl/{target[1].decode() if target else ''}") as sheet:
            extent = _EXTENT.search(sheet.read(4096))
    except (KeyError, IndexError, ValueError):
        return 0
    if extent is None:
        return 0
    left, top, right, bottom = extent.groups()
    return (_number(right) - _number(left) + 1) * (int(bottom) - int(top) + 1)


def _number(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _letters(column: int) -> str:
    letters = ""
    while column >= 0:
        column, place = divmod(column, 26)
        letters, column = chr(65 + place) + letters, column - 1
    return letters


def _array(values: list[Any]) -> pa.Array:
    kinds = frozenset(type(value) for value in values if value is not None)
    if not kinds:
        return pa.nulls(len(values))
    if kinds <= {int, float}:
        # A workbook knows no integers.
        numbers = [value for value in values if value is not None]
        whole = all(number == int(number) and abs(number) <= _MOST_EXACT for number in numbers)
        return pa.array(values, pa.float64()).cast(pa.int64() if whole else pa.float64())
    if kinds == {date, datetime}:
        # A time stamp at midnight comes as a date.
        values = [datetime.combine(v, time()) if type(v) is date else v for v in values]
        return pa.array(values, pa.timestamp("us"))
    if kinds in _ARROW_TYPES:
        return pa.array(values, _ARROW_TYPES[kinds])
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)
