"""Numbers of CSV files with something between their thousands, which Arrow does not parse."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from partwise.errors import ColumnError
from partwise.sources.files.reading_options import CsvOptions
from partwise.tables.column_types import is_ordered_number, is_text

_SPACES = " \u00a0\u202f"
_NULLS = tuple(pacsv.ConvertOptions().null_values)


def schema_of_numbers(
    schema: pa.Schema, first: pa.RecordBatch | None, options: CsvOptions
) -> pa.Schema:
    """Return the schema of a file with columns of text as numbers, where all their values are some.

    Args:
        schema: As Arrow sees the first rows.
        first: These rows.
        options: How the file is read.
    """
    if first is None:
        return schema
    for place, field in enumerate(schema):
        if not is_text(field.type):
            continue
        values = _without_nulls(first.column(place), options).drop_null()
        if len(values) and _is_true(pc.match_substring_regex(values, _pattern(options))):
            plain = pc.match_substring_regex(values, r"^[+-]?[^eE" + options.decimal + r"]*$")
            whole = pa.int64() if _is_true(plain) else pa.float64()
            schema = schema.set(place, field.with_type(whole))
    return schema


def with_numbers(
    batch: pa.RecordBatch, wanted: pa.Schema, options: CsvOptions, what: str
) -> pa.RecordBatch:
    """Return a batch with numbers in place of the texts that they were read as.

    Args:
        batch: As it was read.
        wanted: The types of its columns.
        options: How the file is read.
        what: The file, for errors.

    Raises:
        ColumnError: A value is no number of this form.
    """
    if not options.thousands:
        return batch
    columns = list(batch.columns)
    for place, name in enumerate(batch.schema.names):
        kind = wanted.field(name).type
        if is_ordered_number(kind):
            columns[place] = _numbers(columns[place], kind, options, f"Column {name!r} of {what}")
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _numbers(texts: pa.Array, kind: pa.DataType, options: CsvOptions, what: str) -> pa.Array:
    texts = _without_nulls(texts, options)
    is_number = pc.match_substring_regex(texts, _pattern(options))
    wrong = texts.filter(pc.invert(is_number.fill_null(True)))
    if len(wrong):
        raise ColumnError(
            f"{what} is of numbers with {options.thousands!r} between thousands and "
            f"{options.decimal!r} before decimals, but holds {wrong[0].as_py()!r}: look at "
            "--csv-thousands and --csv-decimal (CsvOptions), or declare the column as text with "
            "--types NAME=string (Files(..., types=...))."
        )
    plain = pc.replace_substring_regex(texts, f"[{_separator(options)}]", "")
    plain = pc.replace_substring(plain, options.decimal, ".")
    try:
        return plain.cast(kind)
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"{what} does not fit {kind}: {' '.join(str(error).split()).rstrip('.')}. Declare "
            "another type with --types NAME=double (Files(..., types=...))."
        ) from error


def _without_nulls(texts: pa.Array, options: CsvOptions) -> pa.Array:
    texts = texts.cast(pa.string())
    words = pa.array([*_NULLS, *options.null_words], pa.string())
    return pc.if_else(pc.is_in(texts, words), None, pc.utf8_trim_whitespace(texts))


def _pattern(options: CsvOptions) -> str:
    between, decimal = f"[{_separator(options)}]", re.escape(options.decimal)
    # Groups are of three digits, so that 1.23 is not taken for 123.
    whole = rf"(\d{{1,3}}({between}\d{{3}})+|\d+)"
    return rf"^[+-]?({whole}({decimal}\d*)?|{decimal}\d+)([eE][+-]?\d+)?$"


def _separator(options: CsvOptions) -> str:
    return _SPACES if options.thousands == " " else options.thousands


def _is_true(array: pa.Array) -> bool:
    return bool(pc.all(array).as_py())
