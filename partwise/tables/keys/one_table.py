"""Rows of several runs or versions in one table, whose key columns may be of several types."""

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from partwise.errors import KeyClassError
from partwise.tables.column_names import names_in_words


def one_table(tables: Sequence[pa.Table]) -> pa.Table:
    """Return rows as one table; of each column's types, one that holds the values of all.

    Raises:
        KeyClassError: There is none, as for the keys -1 and 2**64 - 1.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowInvalid as error:
        # Of signed and unsigned integers Arrow makes signed ones, which not all fit into.
        kinds: defaultdict[str, set[pa.DataType]] = defaultdict(set)
        for each in (field for table in tables for field in table.schema):
            kinds[each.name].add(each.type)
        unsigned = {name for name, found in kinds.items() if found == {pa.int64(), pa.uint64()}}
        try:
            return pa.concat_tables(
                [table.cast(_unsigned(table.schema, unsigned)) for table in tables],
                promote_options="permissive",
            )
        except pa.ArrowInvalid:
            mixed = [name for name, found in kinds.items() if len(found) > 1]
            raise KeyClassError(
                f"The values of {names_in_words(mixed)} are of types that have none in common for "
                f"all of them, such as the keys -1 and 2**64 - 1 ({error}): cast the column to one "
                "type, and train again under another name."
            ) from error


def _unsigned(schema: pa.Schema, names: set[str]) -> pa.Schema:
    fields = [each.with_type(pa.uint64()) if each.name in names else each for each in schema]
    return pa.schema(fields, metadata=schema.metadata)
