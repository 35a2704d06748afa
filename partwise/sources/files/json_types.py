"""Types of lines of JSON: what Arrow guesses of them, and what it would lose.

It takes text that looks like a time for one without a zone, though it has one, and whole
numbers beyond int64 for doubles. So times are read as text here and then parsed, since parsing
refuses a zone that the type lacks, and whole numbers are of a type that holds them.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from partwise.sources.files.csv_numbers import WHOLE_TYPES, is_beyond_int64

_WITH_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def json_schema(guessed: pa.Schema, read: Callable[[pa.Schema], pa.RecordBatch]) -> pa.Schema:
    """Return the types of the first lines of a file, with zones, and with whole numbers exact.

    A column of times with and without a zone is text. `read` reads them with a schema.

    Raises:
        pa.ArrowInvalid: They cannot be read.
    """
    as_text = pa.schema([field.with_type(times_as_text(field.type)) for field in guessed])
    doubles = [f.name for f in guessed if pa.types.is_floating(f.type)]
    if as_text == guessed and not doubles:
        return guessed
    first = read(as_text)
    for place, field in enumerate(guessed):
        column = first.column(place)
        if field.type != as_text.field(place).type:
            guessed = guessed.set(place, field.with_type(_with_zones(field.type, column)))
        elif field.name in doubles and is_beyond_int64(column):
            whole = _whole_type(as_text, place, read)
            guessed = guessed.set(place, field.with_type(whole or field.type))
    return guessed


def times_as_text(kind: pa.DataType) -> pa.DataType:
    """Return a type of JSON with text in place of time stamps, however deep."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    return _with_children(kind, {f.name: times_as_text(f.type) for f in _children(kind)})


def _with_zones(kind: pa.DataType, texts: pa.Array) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        zoned = pc.match_substring_regex(texts.drop_null(), _WITH_ZONE)
        if not pc.any(zoned).as_py():
            return kind
        return pa.timestamp(kind.unit, "UTC") if pc.all(zoned).as_py() else pa.string()
    parts = texts.flatten() if _children(kind) else []
    parts = parts if pa.types.is_struct(kind) else [parts]
    children = zip(_children(kind), parts, strict=False)
    return _with_children(kind, {f.name: _with_zones(f.type, part) for f, part in children})


def _children(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a struct or list: JSON has no other types within types."""
    is_parent = pa.types.is_struct(kind) or pa.types.is_list(kind)
    return [kind.field(place) for place in range(kind.num_fields)] if is_parent else []


def _with_children(kind: pa.DataType, types: Mapping[str, pa.DataType]) -> pa.DataType:
    fields = [field.with_type(types[field.name]) for field in _children(kind)]
    if not fields:
        return kind
    return pa.struct(fields) if pa.types.is_struct(kind) else pa.list_(fields[0])


def _whole_type(
    schema: pa.Schema, place: int, read: Callable[[pa.Schema], pa.RecordBatch]
) -> pa.DataType | None:
    """Return a type of whole numbers that holds a column; None: it has others, or larger ones."""
    # Not int64: this is asked of columns only that have a number beyond it.
    for kind in WHOLE_TYPES[1:]:
        try:
            read(schema.set(place, schema.field(place).with_type(kind)))
        except pa.ArrowInvalid:
            continue
        return kind
    return None
