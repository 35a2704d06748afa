"""Which Arrow types Parquet holds, and gives back as they were."""

import io
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import ColumnError
from partwise.tables.column_types import has_offsets
from partwise.tables.dictionaries import (
    decoded_column,
    holds,
    holds_views,
    without_null_values,
    without_views,
)


@lru_cache(maxsize=64)
def _unwritable(serialized: bytes) -> tuple[int, str] | None:
    """The place of a field that Parquet has no type for, and what its writer says, if there is one.

    The schema is serialized, since one with an extension type of the user's has no hash.
    """
    for place, field in enumerate(pa.ipc.read_schema(pa.BufferReader(serialized))):
        # Its writer says so of rows alone.
        if holds(field.type, _lists_structs_of_views):
            return place, "views in structs in lists cannot be sliced"
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except (pa.ArrowException, OSError) as error:
            return place, " ".join(str(error).split()).rstrip(".")
    return None


def _lists_structs_of_views(kind: pa.DataType) -> bool:
    types = pa.types
    lists = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    is_list = any(test(kind) for test in lists)
    return is_list and holds(kind, lambda each: types.is_struct(each) and holds_views(each))


def unwritable_field(schema: pa.Schema) -> tuple[pa.Field, str] | None:
    """Return the first field that Parquet has no type for, and what its writer says."""
    refused = _unwritable(schema.serialize().to_pybytes())
    return None if refused is None else (schema.field(refused[0]), refused[1])


def check_writable(schema: pa.Schema, what: str) -> None:
    """Refuse columns that Parquet has no type for.

    `what` begins the message: "keep_columns names".
    """
    refused = unwritable_field(schema)
    if refused is not None:
        field, reason = refused
        raise ColumnError(
            f"{what} column {field.name!r} of type {field.type}, which Parquet cannot hold "
            f"({reason}): cast it to another type, or leave it out."
        )


def loses_order(kind: pa.DataType) -> bool:
    """Whether a type has ordered categories that come out of a Parquet file as plain values."""
    return bool(pa.types.is_dictionary(kind) and kind.ordered and not has_offsets(kind.value_type))


def columns_of_leaves(schema: pa.Schema) -> list[str]:
    """Return the column of each leaf that a Parquet file of this schema stores, in their order.

    A nested column has one or more. Their paths do not say it: names of columns may have dots too.
    """
    return [field.name for field in schema for _ in range(_leaf_count(field.type))]


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaf_count(kind.field(place).type) for place in range(kind.num_fields))


def dictionary_columns(schema: pa.Schema) -> bool | list[str]:
    """Return for which columns a writer should try a dictionary: its `use_dictionary`.

    Fractions are seldom equal. To find that out by a dictionary takes four times as long as to
    write them, and makes a file a third larger, as it keeps those that came before the limit.
    """
    # Below a nested column a list would have to name each leaf.
    if any(pa.types.is_nested(field.type) for field in schema):
        return True
    return [field.name for field in schema if not pa.types.is_floating(field.type)]


def storable(rows: pa.Table) -> pa.Table:
    """Bring the rows that a function returned into types that Parquet gives back as they were.

    Of dictionaries it gives back those of text and bytes; others would come back as the numbers
    in which their values are stored. A file has the rows of many partitions, each with values of
    its own: one after the other they are in no order, and more than codes of one byte can count.
    """
    rows = without_views(rows)
    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and not has_offsets(field.type.value_type):
            plain = decoded_column(rows.column(index))
            rows = rows.set_column(index, field.with_type(plain.type), plain)
        elif pa.types.is_dictionary(field.type):
            kind = pa.dictionary(pa.int32(), field.type.value_type)
            chunks = [without_null_values(chunk) for chunk in rows.column(index).chunks]
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), chunk.dictionary)
                for chunk in chunks
            ]
            rows = rows.set_column(index, field.with_type(kind), pa.chunked_array(chunks, kind))
    check_writable(rows.schema, "The function returned")
    return rows
