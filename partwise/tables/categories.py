"""The categories of a partition's dictionary columns: the one rule for their codes.

The categories of a partition are the values that its own rows have: in ascending order, or, where
the dictionary is ordered, in the order of that (of several, in the one of `category_orders`). So a
code does not depend on who else is in the table. A partition whose model was trained before has the
categories of the training first, in their order, and behind them those that the training had not
met: a code means what it meant then.
"""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.tables.category_orders import one_dictionary
from partwise.tables.column_types import is_text
from partwise.tables.decimals import cast_values
from partwise.tables.dictionaries import plain_storage, readable_type, without_views
from partwise.tables.schemas import common_type

CODES_VERSION = "2"
"""Of this rule. Before it, all partitions of a run shared the categories of the whole source."""


def keeps_order(kind: pa.DictionaryType) -> bool:
    """Whether categories have the order of the dictionary, and not that of their values.

    Calendar intervals have no order of their own.
    """
    return bool(kind.ordered or pa.types.is_interval(kind.value_type))


def category_order(dictionary: pa.Array, kind: pa.DictionaryType) -> np.ndarray:
    """Return the places of a dictionary's values in the order of categories.

    The values are distinct and not null; places are int64.
    """
    if keeps_order(kind):
        return np.arange(len(dictionary))
    if pa.types.is_floating(dictionary.type):
        values = dictionary.to_numpy()
        # -0.0 before 0.0, which are equal, and two values of a dictionary.
        return np.lexsort((~np.signbit(values), values))
    places: np.ndarray = pc.array_sort_indices(dictionary).to_numpy()
    return places.astype(np.int64)


def as_in_partition(table: pa.Table) -> pa.Table:
    """Return a table in memory with categories and text as a partition of a run has them."""
    # Of views, as polars has them, Arrow can take no rows.
    return with_own_categories(without_views(table))


def with_own_categories(table: pa.Table) -> pa.Table:
    """Return a table with the categories of its own rows, as a partition of a run has them.

    Its dictionary columns may have unused values, and differing dictionaries.
    """
    for index, field in enumerate(table.schema):
        kind = readable_type(field.type)
        if not pa.types.is_dictionary(kind):
            continue
        chunks = table.column(index).chunks
        # Views can be cast, but not taken from.
        lists = [chunk.dictionary.cast(kind.value_type) for chunk in chunks]
        places = [pc.unique(chunk.indices) for chunk in chunks]
        taken = [values.take(own) for values, own in zip(lists, places, strict=True)]
        used = pc.unique(pa.chunked_array(taken, kind.value_type)).drop_null()
        if keeps_order(kind):
            listed = one_dictionary(lists, kind)
            kind = listed.type
            used = listed.dictionary.filter(pc.is_in(listed.dictionary, value_set=used))
        categories = used.take(pa.array(category_order(used, kind)))
        table = _recoded(table, index, categories, ordered=kind.ordered)
    return table


def without_order(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary column of which nothing says that its categories have an order."""
    kind = pa.dictionary(column.type.index_type, column.type.value_type)
    chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary) for c in column.chunks]
    return pa.chunked_array(chunks, kind)


def without_orders(rows: pa.Table) -> pa.Table:
    """Return rows of which no dictionary column says that its categories have an order."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and field.type.ordered:
            column = without_order(rows.column(index))
            rows = rows.set_column(index, field.with_type(column.type), column)
    return rows


def categories_of_rows(table: pa.Table, left_out: tuple[str, ...]) -> pa.Table | None:
    """Return what `with_categories_of` needs to give the codes of these rows to others.

    It is one row, with a list of categories in place of each dictionary column; None without one.
    """
    lists = {}
    for index, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type) or field.name in left_out:
            continue
        column, name = table.column(index), field.name
        if column.num_chunks:
            values = column.chunk(0).dictionary
            lists[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)]), values)
    return pa.table(lists) if lists else None


def with_categories_of(table: pa.Table, trained: pa.Table) -> pa.Table:
    """Return rows with the codes that their values had in training.

    A column that has no dictionary now stays as it is. One with values that the training had not
    met is not ordered any more, as nobody knows where they belong, nor is one with an order that is
    not the training's. `trained` is what `categories_of_rows` returned for the rows trained on.

    Raises:
        ColumnError: No type holds both the values of the training and those of these rows.
    """
    for name in trained.column_names:
        index = table.schema.get_field_index(name)
        kind = None if index < 0 else table.schema.field(index).type
        if kind is None or not pa.types.is_dictionary(kind) or not table.column(index).num_chunks:
            continue
        known, own = _of_one_type(
            name,
            trained.column(name).chunk(0).flatten(),
            # Of nulls alone, Arrow has null among the values.
            table.column(index).chunk(0).dictionary.drop_null(),
        )
        new = own.filter(pc.invert(pc.is_in(own, value_set=known)))
        ordered = kind.ordered and not len(new) and _is_in_order(own, known)
        table = _recoded(table, index, pa.concat_arrays([known, new]), ordered=ordered)
    return table


def _is_in_order(values: pa.Array, known: pa.Array) -> bool:
    places = pc.index_in(values, value_set=known).to_numpy(zero_copy_only=False)
    return bool((np.diff(places) > 0).all())


def _of_one_type(name: str, known: pa.Array, own: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return categories of the training and those of now in a type that tells all of them apart."""
    trained, now = known.type, own.type
    if pa.types.is_floating(trained) and pa.types.is_floating(now):
        # 0.1 in single precision is the 0.1 that the training had in double.
        common = now
    else:
        common = common_type(trained, now)
    # Text and numbers widen to no type, but one may be written as the other.
    for kind in (common, now, trained):
        if kind is not None:
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
                return _cast_apart(known, kind), _cast_apart(own, kind)
    raise ColumnError(
        f"Column {name!r} had categories of type {trained} in training, and has some of {now} in "
        f"these rows, and no type holds the values of both: cast it to {trained}, or train again."
    )


def _cast_apart(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast distinct values; pa.ArrowInvalid where that would lose what tells them from others."""
    found = cast_values(values, kind)
    if not len(values):
        is_apart = True
    elif pa.types.is_floating(kind) or is_text(kind) or is_text(values.type):
        is_apart = len(found.unique()) == len(values)
    else:
        # Arrow drops the time of a day for a date, and makes every number a boolean.
        is_apart = cast_values(found, values.type).equals(values)
    if not is_apart:
        raise pa.ArrowInvalid(f"as {kind} some values of type {values.type} are others")
    return found


def with_one_dictionary(table: pa.Table, index: int) -> pa.Table:
    """Return a table with one dictionary of a column: each value once, without nulls."""
    kind = table.schema.field(index).type
    plain = pa.dictionary(kind.index_type, plain_storage(kind.value_type), kind.ordered)
    joined = one_dictionary([chunk.dictionary for chunk in table.column(index).chunks], plain)
    return _recoded(table, index, joined.dictionary, ordered=joined.type.ordered)


def _recoded(table: pa.Table, index: int, categories: pa.Array, *, ordered: bool) -> pa.Table:
    """Return the table with a dictionary column as codes into categories, which hold its values."""
    kind = pa.dictionary(pa.int32(), categories.type, ordered)
    chunks = []
    for chunk in table.column(index).chunks:
        values = cast_values(chunk.dictionary, categories.type)
        places = pc.index_in(values, value_set=categories, skip_nulls=True)
        codes = places.take(chunk.indices)
        chunks.append(pa.DictionaryArray.from_arrays(codes, categories, ordered=ordered))
    field = table.schema.field(index).with_type(kind)
    return table.set_column(index, field, pa.chunked_array(chunks, kind))
