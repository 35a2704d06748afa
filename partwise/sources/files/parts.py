"""The parts in which a file is read: of a fair size, and of one key where its footer shows that."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.formats import naming
from partwise.sources.files.parquet_int96 import UNIT
from partwise.tables.dictionaries import plain_storage
from partwise.tables.filters import Conditions, filter_columns, filter_expression
from partwise.tables.parquet_types import columns_of_leaves

_PART_BYTES = 64 * 2**20
_EXACT_IN_STATISTICS = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
"""Types of which equal bounds are equal values in every writer's footers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Row groups, stripes or record batches of a file; all of it, where its format has none."""

    pieces: range | None
    rows: int | None
    known: Mapping[str, pa.Scalar]
    """The keys that have one value in all its rows, by the footer's statistics."""
    share: float
    """Of the file's size."""


def divide_file(
    file: FoundFile,
    head: FileHead,
    schema: pa.Schema,
    conditions: Conditions | None,
    keys: Sequence[str],
) -> list[FilePart]:
    """Divide a file into parts: of few pieces each, or of one key.

    `conditions` are on columns of the file itself: row groups of which the footer shows that none
    of their rows passes are left out. The value of `keys` is stated where a part has only one, in
    the type that `schema` says.
    """
    if head.metadata is None:
        return _even_parts(head)
    groups: Sequence[int] = range(head.metadata.num_row_groups)
    with naming(file):
        looked_at = {*keys, *filter_columns(conditions)}
        if shut := sorted(looked_at & head.encrypted):
            raise OSError(f"its column {shut[0]!r} is encrypted: Cannot decrypt it without a key")
        places = _places(head.metadata, head.schema, looked_at)
        if conditions is not None:
            # The footer's statistics exclude row groups; of types that differ they say nothing.
            says = _says_of(filter_columns(conditions), head.schema, schema)
            expression = filter_expression(conditions, head.schema) if says else None
            groups = groups if expression is None else _passing(file, head, expression)
        known = {key: places[key] for key in keys if key in places}
        return _joined(head, head.metadata, groups, known, schema)


def _says_of(names: Sequence[str], own: pa.Schema, wider: pa.Schema) -> bool:
    """Whether a comparison with a file's columns is one with them in the types of all files.

    0.3 of 32 bits is above 0.3 as a double, to which the column is widened, and equal to it before.
    """
    for name in names:
        mine, all_of = (plain_storage(schema.field(name).type) for schema in (own, wider))
        is_exact = pa.types.is_integer(mine) or not pa.types.is_floating(all_of)
        if mine != all_of and not is_exact:
            return False
    return True


def _places(metadata: pq.FileMetaData, schema: pa.Schema, names: Collection[str]) -> dict[str, int]:
    """Return where columns stand of which statistics are to be looked at: not nested ones.

    Raises:
        OSError: Values of another type are stored there: to ask for their statistics, by pyarrow or
            its datasets, would end the process.
    """
    places = {}
    for place, name in enumerate(columns_of_leaves(schema) if names else ()):
        column = metadata.schema.column(place)
        if name not in names or column.path != name:
            continue
        places[name] = place
        for group in range(metadata.num_row_groups):
            stored = metadata.row_group(group).column(place).physical_type
            if stored != column.physical_type:
                raise OSError(
                    f"its column {column.path!r} is said to be {column.physical_type}, and is "
                    f"stored as {stored}: the file is damaged"
                )
    return places


def _even_parts(head: FileHead) -> list[FilePart]:
    """Divide a file of stripes or record batches, whose sizes are unknown, by their number."""
    size = sum(head.column_bytes.values())
    step = max(1, head.pieces * _PART_BYTES // max(1, size))
    if head.pieces <= step:
        return [FilePart(pieces=None, rows=head.rows, known={}, share=1.0)]
    starts = range(0, head.pieces, step)
    parts = [range(start, min(start + step, head.pieces)) for start in starts]
    return [
        FilePart(pieces=part, rows=None, known={}, share=len(part) / head.pieces) for part in parts
    ]


def _passing(file: FoundFile, head: FileHead, expression: pc.Expression) -> list[int]:
    """The row groups in which a row can pass a filter, by their statistics."""
    # It imports pandas.
    import pyarrow.dataset as pads

    options = pads.ParquetReadOptions(coerce_int96_timestamp_unit=UNIT)
    if head.metadata is None or head.encrypted:
        # To write the footer of such a file would end the process.
        source = file.fetched().open()
    else:
        # As a file of its footer alone, so that the file itself is not opened again.
        footer = pa.BufferOutputStream()
        head.metadata.write_metadata_file(footer)
        source = pa.BufferReader(footer.getvalue())
    fragment = pads.ParquetFileFormat(read_options=options).make_fragment(source)
    return [group.id for group in fragment.subset(expression).row_groups]


def _joined(
    head: FileHead,
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    places: Mapping[str, int],
    common: pa.Schema,
) -> list[FilePart]:
    """Join neighbouring row groups into parts of a fair size; a part of one key has only that."""
    runs: list[tuple[range, int, dict[str, pa.Scalar]]] = []
    row_bytes = head.row_bytes(head.schema.names)
    for index in groups:
        group = metadata.row_group(index)
        known = {
            key: value.cast(plain_storage(common.field(key).type))
            for key, value in _single_values(group, head.schema, places).items()
        }
        pieces, rows = range(index, index + 1), group.num_rows
        if runs:
            before, rows_before, known_before = runs[-1]
            joined = rows_before + rows
            fits = joined * row_bytes <= _PART_BYTES
            if before.stop == index and known_before == known and fits:
                pieces, rows = range(before.start, index + 1), joined
                runs.pop()
        runs.append((pieces, rows, known))
    total = max(1, metadata.num_rows)
    return [
        FilePart(pieces=pieces, rows=rows, known=known, share=rows / total)
        for pieces, rows, known in runs
    ]


def _single_values(
    group: pq.RowGroupMetaData, schema: pa.Schema, places: Mapping[str, int]
) -> dict[str, pa.Scalar]:
    """The keys that have one value in a whole row group, by its statistics."""
    known = {}
    for key, place in places.items():
        kind = plain_storage(schema.field(key).type)
        if not any(is_kind(kind) for is_kind in _EXACT_IN_STATISTICS):
            continue
        statistics = group.column(place).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        # Without a count of nulls there may be some, and a null is a key of its own.
        if statistics.null_count or not statistics.has_null_count:
            continue
        if statistics.min == statistics.max:
            known[key] = pa.scalar(statistics.min, kind)
    return known
