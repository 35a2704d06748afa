"""One schema for many files or frames."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from partwise.tasks.data.dictionaries import decoded, plain_storage
from partwise.tasks.data.key_classes import names_in_words
from partwise.tasks.errors import ColumnError


def _common_type(first: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type to which both widen, None where there is none."""
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


def common_schema(schemas: Sequence[tuple[pa.Schema, str]]) -> pa.Schema:
    """The columns of the first schema, of types to which those of all others widen.

    Args:
        schemas: Schemas, each with words that name it in a message, such as "file 'a.csv'".

    Raises:
        ColumnError: A schema lacks a column of the first, or has it with an unfit type.
    """
    first, first_name = schemas[0]
    types = [field.type for field in first]
    for schema, name in schemas[1:]:
        if schema.equals(first):
            continue
        for index, field in enumerate(first):
            position = schema.get_field_index(field.name)
            if position < 0:
                raise ColumnError(
                    f"Column {field.name!r} of {first_name} is missing in {name}, whose columns "
                    f"are {names_in_words(schema.names)}: all must have the same columns."
                )
            found = schema.field(position).type
            common = _common_type(types[index], found)
            if common is None:
                raise ColumnError(
                    f"Column {field.name!r} is of type {found} in {name}, but of type "
                    f"{types[index]} in {first_name}: cast it to one type."
                )
            types[index] = common
    fields = [
        field if field.type.equals(data_type) else field.with_type(data_type).with_nullable(True)
        for field, data_type in zip(first, types, strict=True)
    ]
    return pa.schema(fields, metadata=first.metadata)


def cast_batch(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any], what: str
) -> pa.RecordBatch:
    """Bring a batch into a schema: columns by name, and constant ones that are not in it.

    Raises:
        ColumnError: A value does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            constant = pa.scalar(constants[field.name], field.type)
            arrays.append(pa.repeat(constant, batch.num_rows))
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
            array = decoded(array).cast(field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(array.type) and pa.types.is_dictionary(field.type):
            values = array.dictionary.cast(field.type.value_type)
            return pa.DictionaryArray.from_arrays(
                array.indices, values, ordered=field.type.ordered
            ).cast(field.type)
        return decoded(array).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise ColumnError(
            f"Column {field.name!r} of {what} is of type {array.type} and does not fit "
            f"{field.type}: {' '.join(str(exc).split())}."
        ) from exc
