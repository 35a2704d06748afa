"""CSV files: what their first bytes say of how they are written, and their rows."""

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from partwise.errors import SourceError
from partwise.sources.files.csv_lines import with_line
from partwise.sources.files.csv_numbers import schema_of_numbers, without_nulls
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.reading_options import UTF_8, CsvOptions, codec_name
from partwise.sources.files.written_numbers import code_in, quoted_numbers
from partwise.sources.files.written_thousands import Thousands, thousands_in
from partwise.sources.files.written_ways import Ways, ways_of_writing
from partwise.tables.column_types import is_ordered_number

_BLOCK_BYTES = 8 * 2**20
_START_BYTES = 2**20
_QUOTED_BYTES = 2**16
_MARKS = (
    # The mark of UTF-16 is the beginning of that of UTF-32.
    *((mark, "utf-32") for mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    *((mark, "utf-16") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    (codecs.BOM_UTF8, UTF_8),
)
_OTHER_DELIMITERS = (";", "\t", "|")
_ENCODING_HINT = (
    "say its encoding, such as cp1252 or latin-1, with --csv-encoding, or in Python "
    'Files(..., csv=CsvOptions(encoding="cp1252"))'
)
_DELIMITER_HINT = (
    "say which of them is the delimiter with --csv-delimiter, or in Python "
    'Files(..., csv=CsvOptions(delimiter=";"))'
)
_DECIMAL_HINT = (
    "; numbers with a decimal comma are read with --csv-decimal , or in Python "
    'Files(..., csv=CsvOptions(decimal=","))'
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?[\r\n]')
"""The line by which a file tells Excel its delimiter."""
_TITLE_LINES = 20
_TITLE_HINT = (
    "; if the lines above it are not a header, --csv-skip-rows says how many they are, in Python "
    "Files(..., csv=CsvOptions(skip_rows=...))"
)
_OTHER_WIDTH = re.compile(r"line (\d+): Expected (\d+) columns, got (\d+)")
_WITH_COMMA = re.compile(r"invalid value '[+-]?[0-9]*,[0-9]+'")
_NOT_UTF_8 = "invalid UTF8 data"


def settle(file: FoundFile, options: CsvOptions) -> CsvOptions:
    """Return the options with the delimiter and encoding of a file, which its first bytes say.

    What the caller's options say is not looked for. SourceError where the bytes do not say it, or
    something else than the options.
    """
    with file.open_stream() as stream:
        start = stream.read(_START_BYTES)
    encoding = _encoding_of(file, options, start)
    text = _decoded(file, start, encoding)
    delimiter = options.delimiter
    first = _SEPARATOR.match(text)
    if first and not options.skip_rows and delimiter in ("", first[1]):
        options = options.model_copy(update={"delimiter": first[1], "skip_rows": 1})
        delimiter = first[1]
    # Behind it there may be .gz, .bz2 or .zst.
    if not delimiter and ".tsv" in file.path.lower()[-8:]:
        delimiter = "\t"
    line = _first_line(text, options)
    if "\0" in line:
        raise SourceError(
            f"File {file.path!r} has NUL characters, as UTF-16 without a byte order mark would: "
            "if it is that, say so with --csv-encoding utf-16-le, or in Python "
            'Files(..., csv=CsvOptions(encoding="utf-16-le")).'
        )
    return options.model_copy(
        update={
            "encoding": encoding,
            "delimiter": delimiter or _delimiter_of(file, options, line),
        }
    )


def _encoding_of(file: FoundFile, options: CsvOptions, start: bytes) -> str:
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if not options.encoding:
        return marked or UTF_8
    if marked is not None and not codec_name(options.encoding).startswith(marked):
        raise SourceError(
            f"File {file.path!r} begins with the byte order mark of {marked}, but its encoding is "
            f"said to be {options.encoding}: leave --csv-encoding out (encoding= of CsvOptions)."
        )
    return options.encoding


def _decoded(file: FoundFile, start: bytes, encoding: str) -> str:
    try:
        # A cut in the middle of a character is not a mistake of the file.
        is_all = len(start) < _START_BYTES
        text = codecs.getincrementaldecoder(encoding)().decode(start, final=is_all)
    except UnicodeError as error:
        raise _wrong_text(file, encoding, error) from error
    return text.removeprefix("\ufeff")


def _wrong_text(file: FoundFile, encoding: str, error: Exception | str) -> SourceError:
    if codec_name(encoding) != UTF_8:
        return SourceError(
            f"File {file.path!r} is not text in {encoding} ({error}): name another encoding with "
            "--csv-encoding, or in Python Files(..., csv=CsvOptions(encoding=...))."
        )
    where = ""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        where = f", such as byte 0x{error.object[error.start]:02x} in line {line}"
    return SourceError(f"File {file.path!r} holds text that is not UTF-8{where}: {_ENCODING_HINT}.")


def _first_line(text: str, options: CsvOptions) -> str:
    """Return the header, or the first row where there is none, without what is quoted in it."""
    skipped = _LINE_END.split(text, maxsplit=options.skip_rows) if options.skip_rows else [text]
    text = skipped[-1].lstrip("\r\n")
    if not options.quote:
        return _LINE_END.split(text, maxsplit=1)[0]
    quote = re.escape(options.quote)
    # Only at the beginning of a value is it more than a character.
    quoted = rf"(?:\A|(?<=[,;|\t])){quote}(?:[^{quote}]|{quote}{quote})*{quote}"
    line = re.match(rf"(?:{quoted}|[^\r\n])*", text)
    return re.sub(quoted, "", line[0]) if line else ""


def _delimiter_of(file: FoundFile, options: CsvOptions, line: str) -> str:
    """Return the delimiter that a line has."""
    counts = {each: line.count(each) for each in (",", *_OTHER_DELIMITERS) if each in line}
    if options.column_names:
        # A row may have commas in its numbers.
        fitting = [each for each in counts if counts[each] == len(options.column_names) - 1]
        counts = {each: counts[each] for each in fitting} or counts
    most = max(counts.values(), default=0)
    found = [each for each, count in counts.items() if count == most]
    # Beside commas, others may stand in names; without them, all others but one are not to be.
    if len(counts) < 2 or found == [","]:
        return found[0] if found else ","
    what = "first row" if options.column_names else "header"
    raise SourceError(
        f"The {what} of file {file.path!r} has {' and '.join(map(repr, counts))} between its "
        f"values: {_DELIMITER_HINT}."
    )


def read_schema(file: FoundFile, options: CsvOptions) -> pa.Schema:
    """Return the types that the first rows of a file look like.

    Raises:
        SourceError: The text is not in the encoding.
        pa.ArrowInvalid: A row cannot be read.
    """
    with opened_csv(file, options) as reader:
        schema: pa.Schema = reader.schema
        first = next(iter(reader), None)
    _check_names(file, schema.names)
    if any(pa.types.is_binary(field.type) for field in schema):
        # As which the reader gives text in another encoding.
        raise _wrong_text(file, options.encoding, _NOT_UTF_8)
    # Refused by `read_head`, which names them: what follows would take two such columns for one.
    if len(set(schema.names)) < len(schema.names):
        return schema
    return schema_of_numbers(
        schema, first, options, lambda names: _first_texts(file, options, names)
    )


def find_codes(
    file: FoundFile, options: CsvOptions, schema: pa.Schema, names: Sequence[str]
) -> tuple[dict[str, str], dict[str, Thousands]]:
    """Return those columns of numbers that are written as codes, with a value of each.

    `names` are looked at in all the rows that say their types; none: all columns, in fewer of the
    first rows. Returned is also how those that were looked at write their thousands.
    """
    looked_at = [n for n in names or schema.names if is_ordered_number(schema.field(n).type)]
    if not looked_at:
        return {}, {}
    try:
        texts = _first_texts(file, options, looked_at, 0 if names else _START_BYTES)
    except pa.ArrowInvalid:
        # A row is larger than the few bytes.
        return {}, {}
    codes: dict[str, str] = {}
    thousands = {}
    for name in looked_at:
        column = without_nulls(texts.column(name), options)
        kind = schema.field(name).type
        code = code_in(column, kind, options)
        codes |= {} if code is None else {name: code}
        thousands[name] = thousands_in(column, kind, options)
    if options.quote:
        with file.open_stream() as stream:
            text = stream.read(_QUOTED_BYTES).decode(options.encoding, errors="replace")
        quoted = quoted_numbers(text, schema.names, options)
        codes |= {name: code for name, code in quoted.items() if name in looked_at}
    return codes, thousands


def ways_in(file: FoundFile, options: CsvOptions, name: str) -> dict[Ways, str]:
    """Return the ways in which the numbers of a column may be written, by the first rows."""
    return ways_of_writing(_first_texts(file, options, [name]).column(0), options)


def _first_texts(
    file: FoundFile, options: CsvOptions, names: Sequence[str], block_bytes: int = 0
) -> pa.RecordBatch:
    """Read columns of the first rows as they are written."""
    texts = pa.schema([(name, pa.string()) for name in names])
    with opened_csv(file, options, texts, names, block_bytes) as reader:
        first: pa.RecordBatch | None = next(iter(reader), None)
    return pa.RecordBatch.from_pylist([], schema=texts) if first is None else first


def _check_names(file: FoundFile, names: Sequence[str]) -> None:
    """Refuse a header with several columns that have no name, as of delimiters at its end."""
    places = [str(place) for place, name in enumerate(names, start=1) if not name]
    if len(places) > 1:
        raise SourceError(
            f"The header of file {file.path!r} has no names for its columns {', '.join(places)} of "
            f"{len(names)}: take away the delimiters that are too many, or name all columns with "
            "--csv-column-names, and pass over the header with --csv-skip-rows 1; in Python "
            "Files(..., csv=CsvOptions(column_names=..., skip_rows=1))."
        )


@contextmanager
def opened_csv(
    file: FoundFile,
    options: CsvOptions,
    schema: pa.Schema | None = None,
    names: Sequence[str] = (),
    block_bytes: int = 0,
) -> Iterator[Any]:
    """Give a reader of a file, with what Arrow refuses named by its line.

    `schema` None: as the first rows look; `names` none: all; `block_bytes` 0: as much as types are
    found out by.

    Raises:
        SourceError: The text is not in the encoding.
        pa.ArrowInvalid: A row or value cannot be read.
    """
    try:
        with _reader(file, options, schema, names, block_bytes) as reader:
            yield reader
    except UnicodeError as error:
        raise _wrong_text(file, options.encoding, error) from error
    except pa.ArrowInvalid as error:
        if _NOT_UTF_8 in str(error):
            raise _wrong_text(file, options.encoding, str(error)) from error
        message = _by_line(error, file, options, schema, names)
        raise pa.ArrowInvalid(f"{message.rstrip('.')}{_hint(message, options)}") from error


def _hint(message: str, options: CsvOptions) -> str:
    """Return what may help against an error; empty: nobody knows."""
    if options.decimal == "." and _WITH_COMMA.search(message):
        return _DECIMAL_HINT
    other = _OTHER_WIDTH.search(message)
    if other and int(other[1]) <= _TITLE_LINES and int(other[2]) < int(other[3]):
        return _TITLE_HINT
    return ""


def _by_line(
    error: pa.ArrowInvalid,
    file: FoundFile,
    options: CsvOptions,
    schema: pa.Schema | None,
    names: Sequence[str],
) -> str:
    try:
        # Only without threads does it count rows.
        with _reader(file, options, schema, names, threads=False) as reader:
            for _ in reader:
                pass
    except pa.ArrowInvalid as counted:
        with _text_stream(file, options) as stream:
            return with_line(str(counted), stream, options)
    return str(error)


@contextmanager
def _text_stream(file: FoundFile, options: CsvOptions) -> Iterator[pa.NativeFile]:
    """Give a file as UTF-8."""
    with file.streamed() as stream:
        if codec_name(options.encoding) == UTF_8:
            yield stream
        else:
            yield pa.transcoding_input_stream(stream, options.encoding, UTF_8)


@contextmanager
def _reader(
    file: FoundFile,
    options: CsvOptions,
    schema: pa.Schema | None,
    names: Sequence[str],
    block_bytes: int = 0,
    *,
    threads: bool = True,
) -> Iterator[pacsv.CSVStreamingReader]:
    convert = pacsv.ConvertOptions(
        column_types=(
            None if schema is None else {f.name: _parsed_type(f.type, options) for f in schema}
        ),
        include_columns=list(names),
        decimal_point=options.decimal,
    )
    if options.date_formats:
        convert.timestamp_parsers = [*options.date_formats, pacsv.ISO8601]
    if options.null_words:
        convert.null_values = [*convert.null_values, *options.null_words]
    read = pacsv.ReadOptions(
        block_size=block_bytes or _BLOCK_BYTES,
        use_threads=threads,
        skip_rows=options.skip_rows,
        column_names=list(options.column_names) or None,
    )
    parse = pacsv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        # Arrow's threads are slower with it, and without quotes no value has a line end.
        newlines_in_values=bool(options.quote),
    )
    with (
        _text_stream(file, options) as stream,
        pacsv.open_csv(stream, read, parse, convert) as reader,
    ):
        yield reader


def _parsed_type(wanted: pa.DataType, options: CsvOptions) -> pa.DataType:
    """Return the type with which a column is parsed that is to be of another."""
    if options.date_formats and pa.types.is_date(wanted):
        # The reader takes formats for times only.
        return pa.timestamp("s")
    if options.thousands and is_ordered_number(wanted):
        # It knows nothing between thousands.
        return pa.string()
    return wanted


def with_nulls(batch: pa.RecordBatch, options: CsvOptions) -> pa.RecordBatch:
    """Return a batch with nulls in place of the words for null in its columns of text."""
    if not options.null_words:
        return batch
    # Not by Arrow's `strings_can_be_null`: with that, NA and the empty text would be null as well.
    words = pa.array(options.null_words, pa.string())
    columns = [
        pc.if_else(pc.is_in(column, words.cast(column.type)), None, column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
