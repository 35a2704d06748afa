"""Dictionary columns as categories: one list for all rows, each value in it once."""

import pyarrow as pa


def with_categories_once(table: pa.Table) -> pa.Table:
    """Give each dictionary column one dictionary without nulls and repetitions.

    Columns that have one, as those of a partition do, are left as they are, without a copy.
    """
    table = table.unify_dictionaries()
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and not _is_plain(table.column(index)):
            values = table.column(index).cast(field.type.value_type)
            encoded = values.dictionary_encode().unify_dictionaries()
            table = table.set_column(index, field.with_type(encoded.type), encoded)
    return table


def _is_plain(column: pa.ChunkedArray) -> bool:
    if not column.num_chunks:
        return True
    dictionary = column.chunk(0).dictionary
    return dictionary.null_count == 0 and len(dictionary.unique()) == len(dictionary)


def categories_of(column: pa.ChunkedArray) -> pa.Array:
    """The dictionary of a column that `with_categories_once` gave; a code is a place in it."""
    if not column.num_chunks:
        return pa.array([], column.type.value_type)
    return column.chunk(0).dictionary
