"""Numbers of CSV files that Arrow does not parse: with thousands, or beyond its own integers."""

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from partwise.errors import ColumnError
from partwise.sources.files.reading_options import CsvOptions
from partwise.tables.column_types import is_ordered_number, is_text

WHOLE_TYPES = (pa.int64(), pa.uint64(), pa.decimal128(38, 0))
"""Of whole numbers, the narrowest first."""
_BEYOND_INT64 = 2.0**63
_SPACES = " \u00a0\u202f"
_NULLS = tuple(pacsv.ConvertOptions().null_values)


def schema_of_numbers(
    schema: pa.Schema,
    first: pa.RecordBatch | None,
    options: CsvOptions,
    read_texts: Callable[[Sequence[str]], pa.RecordBatch],
) -> pa.Schema:
    """Return the schema of a file with the numbers that Arrow takes for text or for doubles.

    Columns of text are of numbers where all their values are some with thousands. Whole numbers
    from 2^63 on, which would be doubles, are uint64, or else decimals. `first` are these rows;
    `read_texts` reads columns of them as they are written.

    Raises:
        pa.ArrowInvalid: They cannot be read.
    """
    if first is None:
        return schema
    columns = dict(zip(first.schema.names, first.columns, strict=True))
    doubles = [f.name for f in schema if pa.types.is_floating(f.type)]
    if wide := [name for name in doubles if is_beyond_int64(columns[name])]:
        columns |= {name: read_texts([name]).column(0) for name in wide}
    for place, field in enumerate(schema):
        if field.name in wide or (options.thousands and is_text(field.type)):
            kind = _number_type(without_nulls(columns[field.name], options).drop_null(), options)
            schema = schema.set(place, field.with_type(kind or field.type))
    return schema


def is_beyond_int64(numbers: pa.Array) -> bool:
    """Whether one of some doubles is beyond int64: they may stand for whole numbers."""
    return any(abs(each or 0.0) >= _BEYOND_INT64 for each in pc.min_max(numbers).as_py().values())


def _number_type(texts: pa.Array, options: CsvOptions) -> pa.DataType | None:
    """Return the type of numbers as they are written; None: they are others."""
    texts = pc.utf8_trim_whitespace(texts)
    if not len(texts) or not _is_true(pc.match_substring_regex(texts, _pattern(options))):
        return None
    plain = as_plain(texts, options)
    if not _is_true(pc.match_substring_regex(plain, r"^[+-]?[0-9]+$")):
        return pa.float64()
    for kind in WHOLE_TYPES:
        try:
            plain.cast(kind)
        except pa.ArrowInvalid:
            continue
        return kind
    return pa.float64()


def with_numbers(
    batch: pa.RecordBatch, wanted: pa.Schema, options: CsvOptions, what: str
) -> pa.RecordBatch:
    """Return a batch with numbers in place of the texts that they were read as."""
    if not options.thousands:
        return batch
    columns = list(batch.columns)
    for place, name in enumerate(batch.schema.names):
        kind = wanted.field(name).type
        if is_ordered_number(kind):
            texts = pc.utf8_trim_whitespace(without_nulls(columns[place], options))
            column = f"Column {name!r} of {what}"
            check_groups(texts, options, f"{column} is")
            columns[place] = _numbers(texts, kind, options, column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def check_groups(texts: pa.Array, options: CsvOptions, what: str) -> None:
    """Refuse texts that are not numbers with groups of three digits, such as 1.00 with dots."""
    is_number = pc.match_substring_regex(texts, _pattern(options))
    wrong = texts.filter(pc.invert(is_number.fill_null(True)))
    if len(wrong):
        raise ColumnError(
            f"{what} of numbers with {options.thousands!r} between thousands and "
            f"{options.decimal!r} before decimals, but holds {wrong[0].as_py()!r}: look at "
            "--csv-thousands and --csv-decimal (CsvOptions), or declare the column as text with "
            "--types NAME=string (Files(..., types=...))."
        )


def _numbers(texts: pa.Array, kind: pa.DataType, options: CsvOptions, what: str) -> pa.Array:
    try:
        return as_plain(texts, options).cast(kind)
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"{what} does not fit {kind}: {' '.join(str(error).split()).rstrip('.')}. Declare "
            "another type with --types NAME=double (Files(..., types=...))."
        ) from error


def without_nulls(texts: pa.Array, options: CsvOptions) -> pa.Array:
    """Return texts with null in place of words that stand for it in columns of numbers."""
    texts = texts.cast(pa.string())
    words = pa.array([*_NULLS, *options.null_words], pa.string())
    return pc.if_else(pc.is_in(texts, words), None, texts)


def as_plain(texts: pa.Array, options: CsvOptions) -> pa.Array:
    """Return texts of numbers with nothing between thousands, and a dot before decimals."""
    if options.thousands:
        texts = pc.replace_substring_regex(texts, f"[{_separator(options)}]", "")
    return texts if options.decimal == "." else pc.replace_substring(texts, options.decimal, ".")


def _pattern(options: CsvOptions) -> str:
    decimal, whole = re.escape(options.decimal), r"\d+"
    if options.thousands:
        # Groups are of three digits, so that 1.23 is not taken for 123.
        whole = rf"(\d{{1,3}}([{_separator(options)}]\d{{3}})+|\d+)"
    return rf"^[+-]?({whole}({decimal}\d*)?|{decimal}\d+)([eE][+-]?\d+)?$"


def _separator(options: CsvOptions) -> str:
    return _SPACES if options.thousands == " " else options.thousands


def _is_true(array: pa.Array) -> bool:
    return bool(pc.all(array).as_py())
