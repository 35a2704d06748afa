"""How columns are stored in part files: plain values, and codes into a dictionary that grows.

Batches of one source can carry different dictionaries. A stream that replaced them would write
each dictionary once per shard and batch, and the IPC file format refuses such batches altogether.
So dictionary columns are written as int32 codes into one dictionary for each part, written at the
part's end. Those of all parts are merged afterwards. Which of the values are the categories of a
partition is decided when its shard is sorted.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError, SourceError
from partwise.tables.category_orders import GrowingDictionary, settled
from partwise.tables.column_types import comparable_type

_PLAIN = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.date32(), pa.date64(), pa.timestamp("us"), pa.duration("us")),
    )
)
"""The kinds of most columns: of 2,000 it takes long to ask each what else it might be."""


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_storage(field.type))


def plain_storage(data_type: pa.DataType) -> pa.DataType:
    """The type without views, run-length encodings and dictionaries, however deep they stand.

    Decimals of a negative scale, which no file format knows, get the digits that they leave out.
    """
    if data_type.id in _PLAIN:
        return data_type
    kind = pa.types
    if kind.is_dictionary(data_type) or kind.is_run_end_encoded(data_type):
        return plain_storage(data_type.value_type)
    if kind.is_string_view(data_type):
        return pa.string()
    if kind.is_binary_view(data_type):
        return pa.binary()
    if kind.is_decimal(data_type) and data_type.scale < 0:
        digits = min(data_type.precision - data_type.scale, 76)
        return pa.decimal128(digits, 0) if digits <= 38 else pa.decimal256(digits, 0)
    if kind.is_struct(data_type):
        return pa.struct([_plain_field(data_type.field(i)) for i in range(data_type.num_fields)])
    if kind.is_map(data_type):
        return pa.map_(
            _plain_field(data_type.key_field),
            _plain_field(data_type.item_field),
            keys_sorted=data_type.keys_sorted,
        )
    if kind.is_fixed_size_list(data_type):
        return pa.list_(_plain_field(data_type.value_field), data_type.list_size)
    if kind.is_large_list(data_type):
        return pa.large_list(_plain_field(data_type.value_field))
    if kind.is_list(data_type):
        return pa.list_(_plain_field(data_type.value_field))
    return data_type


def holds(data_type: pa.DataType, *tests: Callable[[pa.DataType], bool]) -> bool:
    """Whether one of the tests is true of a type, or of one within lists, structs and maps."""
    kinds = [data_type]
    # The list grows while the loop goes through it.
    for kind in kinds:
        if any(test(kind) for test in tests):
            return True
        if pa.types.is_map(kind):
            kinds += [kind.key_type, kind.item_type]
        elif pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind):
            kinds += [kind.field(place).type for place in range(kind.num_fields)]
    return False


def holds_views(data_type: pa.DataType) -> bool:
    """Whether a type is a view of text or bytes, or has some within."""
    return holds(data_type, pa.types.is_string_view, pa.types.is_binary_view)


def without_views(rows: pa.Table) -> pa.Table:
    """Return rows with text and bytes laid out by offsets: views cannot be taken from."""
    for index, field in enumerate(rows.schema):
        if holds_views(field.type):
            plain = _plain_field(field)
            rows = rows.set_column(index, plain, rows.column(index).cast(plain.type))
    return rows


def _keeps_dictionary(data_type: pa.DataType) -> bool:
    """Whether its values can be looked up in others, which Arrow does not do for every type."""
    if not pa.types.is_dictionary(data_type):
        return False
    values = data_type.value_type
    return not (
        pa.types.is_nested(values)
        or pa.types.is_float16(values)
        or pa.types.is_decimal32(values)
        or pa.types.is_decimal64(values)
        or isinstance(values, pa.BaseExtensionType)
    )


def decoded(array: pa.Array) -> pa.Array:
    """The values of an array without the dictionary or the run-length encoding around them.

    Arrow itself decodes neither dictionaries of structs and lists, nor runs of these and of views.
    """
    if pa.types.is_run_end_encoded(array.type):
        # `run_ends` and `values` are those of the whole array, also where this is a slice of it.
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
        values, places = array.values, pa.array(runs)
    elif pa.types.is_dictionary(array.type):
        values, places = array.dictionary, array.indices
    else:
        return array
    if holds_views(values.type):
        values = values.cast(plain_storage(values.type))
    return values.take(places)


def decoded_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column without the dictionary around them, also of one without chunks."""
    kind = plain_storage(column.type)
    return pa.chunked_array([decoded(chunk).cast(kind) for chunk in column.chunks], kind)


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as Arrow can compare values, look them up and sort them, if it can."""
    kind = comparable_type(plain_storage(column.type))
    return pa.chunked_array([decoded(chunk).cast(kind) for chunk in column.chunks], kind)


def without_null_values(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Make a null among the values of a dictionary a null of the array: no file holds the other."""
    values, kind = array.dictionary, array.type
    if not values.null_count:
        return array
    places = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
    codes = pc.if_else(values.is_valid(), places, None).take(array.indices)
    return pa.DictionaryArray.from_arrays(
        codes.cast(kind.index_type), values.drop_null(), ordered=kind.ordered
    )


def leaves(array: pa.Array) -> list[pa.Array]:
    """The arrays of values of lists, maps and structs, however deep; else the array itself."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [leaf for part in array.flatten() for leaf in leaves(part)]
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    return leaves(array.flatten()) if pa.types.is_nested(kind) else [array]


def check_no_opaque(fields: Sequence[pa.Field]) -> None:
    """Refuse columns of Arrow's type for what only another system can read, however deep."""
    for field in fields:
        kinds = [field.type]
        # The list grows while the loop goes through it.
        for kind in kinds:
            if isinstance(kind, pa.OpaqueType):
                raise ColumnError(
                    f"Column {field.name!r} is of type {kind.type_name} of {kind.vendor_name}, and "
                    "Arrow has only the bytes in which that stores it: cast it to a type of "
                    "Arrow's there, or leave it out of columns."
                )
            if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
                kinds.append(kind.value_type)
            elif pa.types.is_nested(kind):
                kinds += [kind.field(place).type for place in range(kind.num_fields)]


def readable_type(data_type: pa.DataType) -> pa.DataType:
    """The type as a source delivers it: dictionaries of plain values, and else plain ones.

    Views and run-length encodings cannot be taken from, filtered or written to every format.
    """
    if not _keeps_dictionary(data_type):
        return plain_storage(data_type)
    values = plain_storage(data_type.value_type)
    if values == data_type.value_type:
        return data_type
    return pa.dictionary(data_type.index_type, values, ordered=data_type.ordered)


class ColumnStorage:
    """Brings the batches of a source into the form in which they are written.

    A column of unions is refused: Arrow can neither take from nor join them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._known: dict[int, GrowingDictionary] = {}
        self._last: dict[int, tuple[pa.Array, pa.Array]] = {}
        fields, shown = [], []
        for index, field in enumerate(schema):
            plain = plain_storage(field.type)
            # Dictionaries within list views, which Arrow casts to no others.
            if pa.types.is_union(plain) or holds(plain, pa.types.is_dictionary):
                raise ColumnError(
                    f"Column {field.name!r} of type {plain} cannot be sharded: leave it out of "
                    "columns, or cast it to a plain type."
                )
            if _keeps_dictionary(field.type):
                ordered = field.type.ordered
                self._known[index] = GrowingDictionary(pa.array([], plain), ordered=ordered)
                fields.append(field.with_type(pa.int32()))
                plain = pa.dictionary(pa.int32(), plain, ordered=ordered)
            else:
                fields.append(field.with_type(plain))
            shown.append(field.with_type(plain))
        self.stored_schema = pa.schema(fields)
        """What is written: int32 where the source has dictionaries."""
        self.shown_schema = pa.schema(shown, metadata=schema.metadata)
        """What readers of the sorted shards see."""

    def store(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Turn a batch of the source into one of `stored_schema`."""
        arrays = []
        for index, field in enumerate(self.stored_schema):
            array = batch.column(index)
            if index in self._known:
                arrays.append(self._codes(index, array))
            elif array.type == field.type:
                arrays.append(array)
            else:
                arrays.append(self._plain(array, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self.stored_schema)

    def _plain(self, array: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return decoded(array).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            raise SourceError(
                f"Column {field.name!r} of type {array.type} cannot be stored as {field.type}: "
                f"{exc}; cast it to a plain type first."
            ) from exc

    def _codes(self, index: int, array: pa.Array) -> pa.Array:
        """The codes of one column in the dictionary of the whole source, which grows."""
        known, dictionary = self._known[index], array.dictionary
        if not array.type.ordered:
            known.forget_order()
        # Batch after batch has the same dictionary, whose values are looked up once.
        seen, mapping = self._last.get(index, (None, None))
        if seen is None or not (seen is dictionary or seen.equals(dictionary)):
            mapping = known.places(dictionary)
            known.learn_order(mapping)
            self._last[index] = (dictionary, mapping)
        return mapping.take(array.indices)

    def learn(self, dictionaries: pa.RecordBatch) -> None:
        """Add what another storage knows: what its `dictionaries` returned."""
        for index, known in self._known.items():
            values = dictionaries.column(index).dictionary
            known.learn_field(dictionaries.schema.field(index), values)

    def show_keys(self, stored: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The columns `names` of a stored batch, with values in place of codes."""
        arrays: list[Any] = []
        for name in names:
            index = self.schema.get_field_index(name)
            array = stored.column(index)
            if index in self._known:
                array = pa.DictionaryArray.from_arrays(array, self._known[index].values)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=list(names))

    def dictionaries(self) -> pa.RecordBatch:
        """A batch of no rows in `shown_schema` that carries the dictionaries, as codes have them.

        `settle_dictionaries` brings them into their order.
        """
        fields, values = [], []
        for index, field in enumerate(self.shown_schema):
            known = self._known.get(index)
            fields.append(field if known is None else known.field(field))
            values.append(None if known is None else known.values)
        return _empty_batch(fields, values, self.shown_schema.metadata)


def _empty_batch(
    fields: Sequence[pa.Field], values: Sequence[pa.Array | None], metadata: Any
) -> pa.RecordBatch:
    """A batch of no rows with these values in the dictionaries of its columns."""
    codes = pa.array([], pa.int32())
    arrays: list[Any] = [
        pa.nulls(0, field.type)
        if known is None
        else pa.DictionaryArray.from_arrays(codes, known, ordered=field.type.ordered)
        for field, known in zip(fields, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def settle_dictionaries(known: pa.RecordBatch) -> pa.RecordBatch:
    """Bring what `ColumnStorage.dictionaries` returned into the order of the values.

    Those that have no one order are not ordered any more.
    """
    fields: list[pa.Field] = []
    values: list[pa.Array | None] = []
    for field, column in zip(known.schema, known.columns, strict=True):
        is_coded = isinstance(column, pa.DictionaryArray)
        own = settled(field, column.dictionary) if is_coded else (field, None)
        fields.append(own[0])
        values.append(own[1])
    return _empty_batch(fields, values, known.schema.metadata)


def decode_batch(stored: pa.RecordBatch, dictionaries: pa.RecordBatch) -> pa.RecordBatch:
    """Turn stored rows back into what the source had: codes into dictionary columns.

    `dictionaries` is what `ColumnStorage.dictionaries` returned when all batches were stored.
    """
    if stored.schema.equals(dictionaries.schema):
        return stored.replace_schema_metadata(dictionaries.schema.metadata)
    arrays: Sequence[Any] = [
        pa.DictionaryArray.from_arrays(array, known.dictionary, ordered=known.type.ordered)
        if isinstance(known, pa.DictionaryArray)
        else array
        for array, known in zip(stored.columns, dictionaries.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=dictionaries.schema)


def stored_schema(shown: pa.Schema) -> pa.Schema:
    """The schema of stored rows, by that of the rows as readers see them."""
    fields = [
        field.with_type(pa.int32()) if pa.types.is_dictionary(field.type) else field
        for field in shown
    ]
    return pa.schema(fields)


def merge_dictionaries(schema: pa.Schema, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Make one dictionary per column of those of several parts, in the order of their values.

    `parts` is what `ColumnStorage.dictionaries` returned for each.
    """
    storage = ColumnStorage(schema)
    for part in parts:
        storage.learn(part)
    return settle_dictionaries(storage.dictionaries())


def same_dictionaries(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether codes of the one are codes of the other too."""
    pairs = zip(one.columns, other.columns, strict=True)
    return all(
        mine.dictionary.equals(theirs.dictionary)
        for mine, theirs in pairs
        if isinstance(mine, pa.DictionaryArray)
    )


def write_dictionaries(path: str, batches: Sequence[pa.RecordBatch]) -> None:
    """Write batches of no rows to one file, each as a stream of its own."""
    with pa.OSFile(path, "wb") as file:
        for batch in batches:
            with pa.ipc.new_stream(file, batch.schema) as stream:
                stream.write_batch(batch)


def read_one(source: Any) -> pa.RecordBatch:
    """Read an IPC stream of one batch, and no byte of what follows it."""
    (batch,) = pa.ipc.open_stream(source)
    return batch


def read_dictionaries(path: str, wanted: Collection[int]) -> dict[int, pa.RecordBatch]:
    """Read batches of `write_dictionaries` by their numbers."""
    batches = {}
    with pa.memory_map(path) as source:
        for number in range(max(wanted, default=-1) + 1):
            batch = read_one(source)
            if number in wanted:
                batches[number] = batch
    return batches


def recode(stored: pa.RecordBatch, own: pa.RecordBatch, merged: pa.RecordBatch) -> pa.RecordBatch:
    """Turn codes of a part's own dictionaries into those of the merged ones."""
    arrays: list[Any] = []
    for codes, part, whole in zip(stored.columns, own.columns, merged.columns, strict=True):
        if isinstance(part, pa.DictionaryArray):
            places = pc.index_in(part.dictionary, value_set=whole.dictionary)
            arrays.append(places.take(codes))
        else:
            arrays.append(codes)
    return pa.RecordBatch.from_arrays(arrays, schema=stored.schema)
