"""One schema for many files or frames."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.choices import SchemaPolicy
from partwise.errors import ColumnError
from partwise.tables.column_names import names_in_words
from partwise.tables.decimals import cast_values
from partwise.tables.dictionaries import decoded, plain_storage


def common_type(first: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which both widen, None where there is none."""
    if first.equals(other):
        return first
    plain, plain_other = plain_storage(first), plain_storage(other)
    if plain.equals(plain_other):
        return plain
    try:
        merged = pa.unify_schemas(
            [pa.schema([("x", plain)]), pa.schema([("x", plain_other)])],
            promote_options="permissive",
        )
    except pa.ArrowException:
        return None
    return merged.field("x").type


def common_schema(
    schemas: Sequence[tuple[pa.Schema, str]],
    policy: SchemaPolicy = "cast",
    declared: Mapping[str, pa.DataType] | None = None,
) -> pa.Schema:
    """One schema for several, of types to which those of all widen.

    Args:
        schemas: Schemas, each with words that name it in a message, such as "file 'a.csv'".
        policy: "cast": the columns of the first, which all others must have. "strict": all have
            the same columns and types, in any order. "union": the columns of all.
        declared: Types of columns, which are taken in place of those that the schemas say.
    """
    first, first_name = schemas[0]
    declared = declared or {}
    found: dict[str, tuple[pa.Field, str]] = {f.name: (f, first_name) for f in first}
    for schema, name in schemas[1:]:
        if schema.equals(first):
            continue
        _check_columns(schema, name, schemas[0], policy)
        for field in schema:
            if field.name not in found:
                if policy == "union":
                    found[field.name] = field.with_nullable(True), name
                continue
            known, where = found[field.name]
            if field.name not in declared:
                found[field.name] = _widened(known, where, field, name, policy), where
        if policy == "union":
            for missing in found.keys() - set(schema.names):
                known, where = found[missing]
                found[missing] = known.with_nullable(True), where
    fields = [
        field.with_type(declared[field.name]) if field.name in declared else field
        for field, _ in found.values()
    ]
    return pa.schema(fields, metadata=first.metadata)


def _check_columns(
    schema: pa.Schema, name: str, first: tuple[pa.Schema, str], policy: SchemaPolicy
) -> None:
    """Raise `ColumnError` where a schema lacks a column of the first, or strictly has another."""
    names, first_names = set(schema.names), set(first[0].names)
    missing = [column for column in first[0].names if column not in names]
    if missing and policy != "union":
        raise ColumnError(
            f"Column {missing[0]!r} of {first[1]} is missing in {name}, whose columns "
            f"are {names_in_words(schema.names)}: all must have the same columns."
        )
    extra = [column for column in schema.names if column not in first_names]
    if extra and policy == "strict":
        raise ColumnError(
            f"Column {extra[0]!r} of {name} is missing in {first[1]}, and schema='strict' allows "
            "no difference: use 'cast' or 'union', or write the files alike."
        )


def _widened(
    known: pa.Field, where: str, field: pa.Field, name: str, policy: SchemaPolicy
) -> pa.Field:
    """The field with a type that holds the values of both."""
    if known.type.equals(field.type):
        return known.with_nullable(known.nullable or field.nullable)
    if policy == "strict":
        raise ColumnError(
            f"Column {field.name!r} is of type {field.type} in {name}, but of type {known.type} in "
            f"{where}, and schema='strict' allows no difference: use 'cast' or 'union', or write "
            "the files alike."
        )
    common = common_type(known.type, field.type)
    if common is None:
        raise ColumnError(
            f"Column {field.name!r} is of type {field.type} in {name}, but of type "
            f"{known.type} in {where}: cast it to one type; that of files can be declared with "
            "Files(..., types=...)."
        )
    return known if known.type.equals(common) else known.with_type(common).with_nullable(True)


def cast_batch(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any], what: str
) -> pa.RecordBatch:
    """Bring a batch into a schema: columns by name, and constant ones that are not in it."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            value = constants[field.name]
            constant = pa.nulls(batch.num_rows, field.type)
            if value is not None:
                constant = pa.repeat(pa.scalar(value, field.type), batch.num_rows)
            arrays.append(constant)
            continue
        array = batch.column(index)
        if array.type != field.type:
            array = _cast(array, field, what)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, what: str) -> pa.Array:
    try:
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type):
            # Parquet keeps dictionaries of text only, and Arrow casts to no others.
            array = cast_values(decoded(array), field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(array.type) and pa.types.is_dictionary(field.type):
            values = cast_values(array.dictionary, field.type.value_type)
            return pa.DictionaryArray.from_arrays(
                array.indices, values, ordered=field.type.ordered
            ).cast(field.type)
        if pa.types.is_timestamp(array.type) and pa.types.is_date(field.type):
            _check_midnights(array, field, what)
        return cast_values(decoded(array), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        reason = " ".join(str(exc).split()).rstrip(".")
        raise ColumnError(
            f"Column {field.name!r} of {what} is of type {array.type} and does not fit "
            f"{field.type}: {reason}. Declare the type of a column of files with "
            "Files(..., types=...), or cast it."
        ) from exc


def _check_midnights(array: pa.Array, field: pa.Field, what: str) -> None:
    """Refuse a time stamp that is not a date: Arrow would drop its time of the day."""
    is_date = pc.equal(pc.floor_temporal(array, unit="day"), array)
    times = array.filter(pc.invert(is_date.fill_null(True)))
    if len(times):
        raise ColumnError(
            f"Column {field.name!r} of {what} is to be {field.type}, but holds "
            f"{times[0].cast(pa.string()).as_py()}, which has a time of the day: declare it as "
            "timestamp[s] (--types NAME=timestamp[s]; Files(..., types=...)), or leave its type "
            "out."
        )
