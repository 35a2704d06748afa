"""Dictionary columns as categories: one list for all rows, each value in it once."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from partwise.tables.categories import with_one_dictionary
from partwise.tables.dictionaries import readable_type
from partwise.tables.schemas import cast_batch


def with_categories_once(table: pa.Table) -> pa.Table:
    """Give each dictionary column one dictionary without nulls and repetitions.

    Views and run-length encodings, which Arrow cannot take rows from, become plain columns. The
    rows of a partition are like that already, and are left as they are, without a copy.
    """
    plain = [field.with_type(readable_type(field.type)) for field in table.schema]
    schema = pa.schema(plain, metadata=table.schema.metadata)
    if schema != table.schema:
        batches = [cast_batch(batch, schema, {}, "the table") for batch in table.to_batches()]
        table = pa.Table.from_batches(batches, schema=schema)
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Many large dictionaries are joined in a fraction of the time so, where the codes of all
        # values fit into the type of those that are there.
        table = with_joinable_categories(table).unify_dictionaries()
    for index, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and not _has_one_dictionary(column):
            table = with_one_dictionary(table, index)
    return table


def with_joinable_categories(table: pa.Table) -> pa.Table:
    """Return a table with dictionaries that Arrow may join, as it does for pandas too.

    It takes no null among the values of one, which becomes a null of the column; and it puts what
    is new in one behind the others, also where they are ordered.
    """
    for index, column in enumerate(table.columns):
        if not pa.types.is_dictionary(column.type) or not column.num_chunks:
            continue
        first, *others = [chunk.dictionary for chunk in column.chunks]
        differ = column.type.ordered and not all(other.equals(first) for other in others)
        if differ or any(known.null_count for known in (first, *others)):
            table = with_one_dictionary(table, index)
    return table


def _has_one_dictionary(column: pa.ChunkedArray) -> bool:
    """Whether all chunks have one dictionary, with each value once and without nulls."""
    if not column.num_chunks:
        return True
    first, *others = [chunk.dictionary for chunk in column.chunks]
    is_one = all(other.equals(first) for other in others)
    return is_one and not first.null_count and len(first.unique()) == len(first)


def categories_of(column: pa.ChunkedArray) -> pa.Array:
    """The dictionary of a column that `with_categories_once` gave; a code is a place in it."""
    if not column.num_chunks:
        return pa.array([], column.type.value_type)
    return column.chunk(0).dictionary


def with_categories(
    codes: pa.Array | pa.ChunkedArray, categories: Sequence[Any]
) -> pa.ChunkedArray:
    """Return codes with their categories as XGBoost takes them from Arrow: text, and at least one.

    Numbers come back from the model as text too.
    """
    texts = pa.array([str(category) for category in categories] or [""], pa.string())
    chunks = codes.chunks if isinstance(codes, pa.ChunkedArray) else [codes]
    coded = [pa.DictionaryArray.from_arrays(chunk.cast(pa.int32()), texts) for chunk in chunks]
    return pa.chunked_array(coded, pa.dictionary(pa.int32(), pa.string()))
