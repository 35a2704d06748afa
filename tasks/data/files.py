"""Files as rows: one schema for all of them, and the parts in which they are read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.tasks.data.dictionaries import plain_storage
from partwise.tasks.data.discovery import FoundFile, hive_columns
from partwise.tasks.data.file_formats import FileHead, naming, read_batches, read_head
from partwise.tasks.data.filters import Conditions, filter_batch, filter_expression
from partwise.tasks.data.fragments import Fragment, Place
from partwise.tasks.data.schemas import cast_batch, common_schema

_FOOTER_THREADS = 16
_FRAGMENT_BYTES = 64 * 2**20
_TOLD_BY_STATISTICS = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
"""Types of which equal bounds are equal values in every writer's footers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFragment:
    """A file, or some row groups of one."""

    file: FoundFile
    row_groups: range | None
    """Those of a Parquet file that belong to it; None: all of the file."""
    names: tuple[str, ...]
    """The columns that are read from the file itself."""
    file_schema: pa.Schema
    """The types of the file's own columns, where the format has none."""
    schema: pa.Schema
    """Of the batches that it gives."""
    constants: Mapping[str, Any]
    """The values of columns that stand in the file's path."""
    known: Mapping[str, pa.Scalar]
    rows: int | None
    size_bytes: int
    row_bytes: int

    @property
    def place(self) -> Place:
        """A URL can be read anywhere; a path where this machine's disk is seen."""
        return "disk" if self.file.filesystem is None else "anywhere"

    def __str__(self) -> str:
        return f"file {self.file.path!r}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows.

        Raises:
            SourceError: The file cannot be read, or changed since it was found.
            ColumnError: A value does not fit the common type of its column.
        """
        what = f"file {self.file.path!r}"
        with naming(self.file):
            self.file.check_unchanged()
            for batch in read_batches(
                self.file, self.names, self.file_schema, self.row_groups, self.row_bytes
            ):
                yield cast_batch(batch, self.schema, self.constants, what)
        self.file.check_unchanged()


class FileRows:
    """The rows of files of one format, in the order given.

    The first file says which columns there are; every other file must have them too, in any
    order, of types that widen to a common one. What other files have beyond them is not read.

    Args:
        files: The files, at least one.
        paths: What the caller named: absolute paths, globs or URLs.

    Raises:
        SourceError: A file cannot be read.
        ColumnError: A file lacks a column, has one twice, or with a type that does not fit.
    """

    def __init__(self, files: Sequence[FoundFile], paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._files = list(files)
        remote = files[0].filesystem is not None
        if remote and len(files) > 1:
            with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
                self._heads = list(pool.map(read_head, files))
        else:
            self._heads = [read_head(file) for file in files]
        self._hive_schema, self._hive_values = hive_columns(files)
        heads = zip(self._heads, files, strict=True)
        own = common_schema([(head.schema, f"file {file.path!r}") for head, file in heads])
        # A column that stands in the files wins over one in their paths.
        extra = [field for field in self._hive_schema if field.name not in own.names]
        self._own_schema = own
        self.schema = pa.schema([*own, *extra], metadata=own.metadata)

    @property
    def rows(self) -> int | None:
        """Rows in all files, None where the format does not say."""
        counts = [head.rows for head in self._heads]
        return None if None in counts else sum(count or 0 for count in counts)

    def size_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of some columns in Arrow memory."""
        return sum(head.column_bytes.get(name, 0) for head in self._heads for name in names)

    def identity(self) -> bytes:
        """What changes when a file is added, removed or written again."""
        files = [[file.path, file.size_bytes, file.version] for file in self._files]
        return json.dumps(files).encode()

    def recipe(self) -> dict[str, Any] | None:
        """What finds the files again from another process."""
        return {"paths": self._paths}

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> list[Fragment]:
        """The files, big ones in parts, without what a filter's look at paths and footers excludes.

        Args:
            names: The columns to read.
            conditions: A normalized filter.
            keys: Columns whose value is told where a fragment has only one.
        """
        fragments: list[Fragment] = []
        schema = pa.schema([self.schema.field(name) for name in names])
        own = tuple(name for name in names if name in self._own_schema.names)
        for file, head, hive in zip(self._files, self._heads, self._hive_values, strict=True):
            constants = {name: hive[name] for name in names if name not in own}
            left = self._without_constants(constants, conditions)
            if left == []:
                continue
            known = {
                key: pa.scalar(constants[key], schema.field(key).type)
                for key in keys
                if key in constants
            }
            asked = [key for key in keys if key not in known]
            whole = sum(head.column_bytes[name] for name in own)
            row_bytes = head.row_bytes(own)
            fragments += [
                FileFragment(
                    file=file,
                    row_groups=part.row_groups,
                    names=own,
                    file_schema=self._own_schema,
                    schema=schema,
                    constants=constants,
                    known={**known, **part.known},
                    rows=part.rows,
                    size_bytes=whole if part.rows is None else row_bytes * part.rows,
                    row_bytes=row_bytes,
                )
                for part in self._parts(file, head, left, asked)
            ]
        return fragments

    def _without_constants(
        self, constants: Mapping[str, Any], conditions: Conditions | None
    ) -> Conditions | None:
        """Settle what a filter says of columns in a path.

        Returns:
            The lists of conditions on other columns, of which one must hold: none of them, where no
            row of the file can pass; None, where all do.
        """
        if conditions is None:
            return None
        row = pa.RecordBatch.from_pylist([dict(constants)], schema=self._schema_of(constants))
        left: Conditions = []
        for conjunction in conditions:
            settled = [c for c in conjunction if c[0] in constants]
            if settled and not filter_batch(row, [settled]).num_rows:
                continue
            rest = [c for c in conjunction if c[0] not in constants]
            if not rest:
                return None
            left.append(rest)
        return left

    def _schema_of(self, names: Mapping[str, Any]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in names])

    def _parts(
        self, file: FoundFile, head: FileHead, conditions: Conditions | None, keys: Sequence[str]
    ) -> list["_Part"]:
        """Divide a file into parts: of few row groups each, or of one key."""
        if head.metadata is None:
            return [_Part(row_groups=None, rows=None, known={})]
        groups: Sequence[int] = range(head.metadata.num_row_groups)
        if conditions is not None:
            # The footer's statistics exclude row groups; of types that differ they say nothing.
            groups = _pruned(file, filter_expression(conditions, head.schema), head)
        return _joined(head, groups, keys, head.row_bytes(self._own_schema.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Row groups of a file; all of it, where its format has none."""

    row_groups: range | None
    rows: int | None
    known: Mapping[str, pa.Scalar]


def _pruned(file: FoundFile, expression: pc.Expression | None, head: FileHead) -> Sequence[int]:
    """The row groups in which a row can pass a filter, by their statistics."""
    groups = range(head.metadata.num_row_groups) if head.metadata else range(0)
    if expression is None:
        return groups
    # It imports pandas.
    import pyarrow.dataset as pads

    with naming(file):
        fragment = pads.ParquetFileFormat().make_fragment(
            file.bare_path(), filesystem=file.arrow_filesystem()
        )
        return [group.id for group in fragment.subset(expression).row_groups]


def _joined(
    head: FileHead, groups: Sequence[int], keys: Sequence[str], row_bytes: int
) -> list[_Part]:
    """Join neighbouring row groups into parts of a fair size; a part of one key has only that."""
    if head.metadata is None:
        return []
    parts: list[_Part] = []
    for index in groups:
        group = head.metadata.row_group(index)
        known = _single_values(group, head.schema, keys)
        last = parts[-1] if parts else None
        if (
            last is not None
            and last.row_groups is not None
            and last.row_groups.stop == index
            and last.known == known
            and (last.rows or 0) * row_bytes < _FRAGMENT_BYTES
        ):
            joined = range(last.row_groups.start, index + 1)
            rows = (last.rows or 0) + group.num_rows
            parts[-1] = _Part(row_groups=joined, rows=rows, known=known)
        else:
            here = range(index, index + 1)
            parts.append(_Part(row_groups=here, rows=group.num_rows, known=known))
    return parts


def _single_values(
    group: pq.RowGroupMetaData, schema: pa.Schema, keys: Sequence[str]
) -> dict[str, pa.Scalar]:
    """The keys that have one value in a whole row group, by its statistics."""
    if not keys:
        return {}
    places = {group.column(i).path_in_schema: i for i in range(group.num_columns)}
    known = {}
    for key in keys:
        kind = plain_storage(schema.field(key).type)
        if key not in places or not any(tells(kind) for tells in _TOLD_BY_STATISTICS):
            continue
        found = group.column(places[key]).statistics
        if found is None or not found.has_min_max or found.null_count or not found.has_null_count:
            continue
        if found.min == found.max:
            known[key] = pa.scalar(found.min, kind)
    return known
