"""Iceberg tables: which Parquet files a snapshot has, read by `pyiceberg`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    Or,
)
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from partwise.errors import ColumnError, SourceError
from partwise.sources.files.remote_files import Access, filesystem_of
from partwise.sources.table_formats.log_table import TableFile
from partwise.sources.table_formats.roots import TableRoot
from partwise.tables.comparisons import ALWAYS, comparison, equal_values
from partwise.tables.filters import Conditions, combined

_COMPARE: Mapping[str, Any] = {
    "=": EqualTo,
    "==": EqualTo,
    "!=": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "in": In,
    "not in": NotIn,
}
_NUMBERED = re.compile(r"v?(\d+)(-.*)?(\.gz)?\.metadata\.json(\.gz)?$")
_FIELD_ID = b"PARQUET:field_id"


class IcebergSnapshot:
    """A snapshot of an Iceberg table: a `LogTable`.

    `snapshot` is its ID; None: the current one.
    """

    def __init__(
        self, root: TableRoot, access: Access | None, table: Table, snapshot: int | None
    ) -> None:
        self._root, self._access, self._table = root, access, table
        found = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
        if found is None and snapshot is not None:
            raise self._error(f"has no snapshot {snapshot}, or no longer")
        self.version = -1 if found is None else found.snapshot_id
        self._said: Mapping[str, str] = {}
        if found is not None and found.summary is not None:
            self._said = found.summary.additional_properties
        manifests = [] if found is None else found.manifests(table.io)
        if any(manifest.content == ManifestContent.DELETES for manifest in manifests):
            raise self._error(
                "marks rows as deleted in files of their own, which are not read: compact it "
                "(CALL system.rewrite_data_files, or rewrite_position_delete_files, in Spark), or "
                "read it with another library and give the Arrow stream"
            )
        # Named by its ID, it has the columns of its time, which may have been renamed since.
        is_current = found == table.current_snapshot()
        self._scan = table.scan(snapshot_id=None if is_current else self.version)
        fields = self._scan.projection().fields
        if any(field.initial_default is not None for field in fields):
            raise self._error("has columns with default values, which are not read")
        self._fields = schema_to_pyarrow(self._scan.projection())
        self.schema = pa.schema(
            [pa.field(f.name, _small(f.type), f.nullable) for f in self._fields]
        )

        dividing = {
            part.source_id
            for spec in table.metadata.specs().values()
            for part in spec.fields
            if isinstance(part.transform, IdentityTransform)
        }
        self._dividing = {field.name for field in self._fields if _id_of(field) in dividing}

    @property
    def rows(self) -> int | None:
        """How many rows it has, where its summary says so."""
        if self.version == -1:
            return 0
        count = self._said.get("total-records")
        return None if count is None else int(count)

    @property
    def size_bytes(self) -> int:
        """The size of its files, as its summary says."""
        return int(self._said.get("total-files-size", 0))

    def identity(self) -> Sequence[str]:
        """The table, the snapshot, and the names of columns, which change without a snapshot."""
        return [str(self._table.metadata.table_uuid), str(self.version), str(self._fields)]

    def files(self, conditions: Conditions | None) -> list[TableFile]:
        """The files, in the order of their paths."""
        if self.version == -1:
            return []
        scan = self._scan
        if conditions is not None:
            scan = scan.filter(combined(conditions, self._condition, And, Or))
        found = []
        for task in scan.plan_files():
            file = task.file
            path = self._place(file.file_path)
            if file.file_format != FileFormat.PARQUET:
                raise self._error(f"has files of {file.file_format.value}: only Parquet is read")
            found.append(
                TableFile(
                    path=path,
                    format="parquet",
                    base=path.rpartition("/")[0],
                    size_bytes=file.file_size_in_bytes,
                    version="",
                    access=self._access if "://" in path else None,
                    values=self._values(file),
                )
            )
        return sorted(found, key=lambda file: file.path)

    def names_in(self, schema: pa.Schema, file: TableFile) -> dict[str, str]:
        """The columns of a file by their IDs, which stay when a column gets another name."""
        by_id = {_id_of(field): field for field in schema}
        mapping = self._table.name_mapping()
        if None in by_id and mapping is None:
            raise self._error(f"has the file {file.path!r}, whose columns have no IDs")
        if None in by_id:
            ids = {name: each.field_id for each in mapping or () for name in each.names}
            by_id = {ids.get(field.name): field for field in schema}
        names = {}
        for field in self._fields:
            there = by_id.get(_id_of(field))
            if there is None:
                continue
            if not _alike(field, there):
                raise self._error(
                    f"renamed a field within column {field.name!r} after file {file.path!r} was "
                    "written: rewrite its files"
                )
            names[field.name] = there.name
        return names

    def _values(self, file: Any) -> dict[str, Any]:
        """The values of columns that a file may lack, since its partition says them."""
        columns = {_id_of(field): field for field in self._fields}
        spec = self._table.metadata.specs()[file.spec_id]
        values: dict[str, Any] = {}
        for place, part in enumerate(spec.fields):
            field = columns.get(part.source_id)
            if field is not None and isinstance(part.transform, IdentityTransform):
                value = file.partition[place]
                # Dates and times are numbers there.
                stored = pa.scalar(value)
                values[field.name] = value
                if value is not None and not isinstance(value, str | bytes | bool):
                    narrow = pa.types.is_date32(field.type)
                    stored = stored.cast(pa.int32()) if narrow else stored
                    values[field.name] = stored.cast(field.type).as_py()
        return values

    def _place(self, location: str) -> str:
        if location.startswith("file:"):
            location = "/" + location.removeprefix("file:").lstrip("/")
        if "://" not in location and self._access is not None:
            # The metadata of a bucket must not make rows of what lies on this machine.
            raise self._error(f"names the file {location!r}, which lies in no bucket")
        return location

    def _condition(self, name: str, operator: str, value: Any) -> BooleanExpression:
        kind = self.schema.field(name).type
        # pyiceberg splits the names of columns at dots. The doubles by which it divides a table it
        # writes down as floats, and would leave out files that have the value.
        if "." in name or (pa.types.is_float64(kind) and name in self._dividing):
            return AlwaysTrue()
        try:
            wanted: Any
            if operator in ("in", "not in"):
                wanted = [each.as_py() for each in equal_values(name, kind, value)]
            else:
                operator, scalar = comparison(name, kind, operator, value)
                if scalar is None:
                    return AlwaysTrue() if operator == ALWAYS else AlwaysFalse()
                wanted = scalar.as_py()
            made = _COMPARE[operator](name, wanted)
            made.bind(self._scan.projection())
        except (ColumnError, pa.ArrowException, TypeError, ValueError):
            return AlwaysTrue()
        expression: BooleanExpression = made
        return expression

    def _error(self, what: str) -> SourceError:
        return SourceError(f"The Iceberg table {self._root.path!r} {what}.")


def read_snapshot(root: TableRoot, access: Access | None, version: int | None) -> IcebergSnapshot:
    """Read the metadata of an Iceberg table.

    `version` is the ID of a snapshot; None: the current one.

    Raises:
        SourceError: It cannot be read, or its files would be read wrong.
    """
    try:
        files = _Files(access)
        location = root.metadata or _newest(root, files)
        metadata = FromInputFile.table_metadata(files.new_input(location))
        table = Table(
            identifier=("table", root.path),
            metadata=metadata,
            metadata_location=location,
            # Not what the metadata names: that would be any class at all.
            io=files,
            catalog=NoopCatalog("none"),
        )
        return IcebergSnapshot(root, access, table, version)
    except SourceError:
        raise
    except Exception as exc:  # pyiceberg's own, and those of stores
        reason = " ".join(str(exc).split()).rstrip(".") or type(exc).__name__
        raise SourceError(f"The Iceberg table {root.path!r} cannot be read: {reason}.") from exc


def _newest(root: TableRoot, files: "_Files") -> str:
    """The current file of metadata, as far as the folder knows: its catalog may know better."""
    folder = f"{root.path}/metadata"
    names = files.names_in(folder)
    if "version-hint.text" in names:
        with files.new_input(f"{folder}/version-hint.text").open() as stream:
            hint = stream.read(-1).decode().strip()
        named = (hint, f"v{hint}.metadata.json", f"{hint}.metadata.json")
        if there := [name for name in named if name in names]:
            return f"{folder}/{there[0]}"
    numbered = [(int(match[1]), name) for name in names if (match := _NUMBERED.match(name))]
    if not numbered:
        raise SourceError(
            f"The Iceberg table {root.path!r} has no numbered file of metadata: name the file that "
            "its catalog says is current."
        )
    newest = sorted(name for number, name in numbered if number == max(numbered)[0])
    if len(newest) > 1:
        raise SourceError(
            f"The Iceberg table {root.path!r} has {len(newest)} files of metadata with the newest "
            f"number, {newest[0]!r} and {newest[1]!r}: name the one that its catalog says is "
            "current."
        )
    return f"{folder}/{newest[0]}"


class _Files(FileIO):
    """Files as `partwise` opens them: with the keys of this process, and no others."""

    def __init__(self, access: Access | None) -> None:
        super().__init__()
        self._access = access

    def names_in(self, folder: str) -> list[str]:
        filesystem, path = self.opened(folder)
        return [each.rpartition("/")[2] for each in filesystem.ls(path, detail=False)]

    def opened(self, location: str) -> tuple[Any, str]:
        """The fsspec file system of a location, and its path there."""
        if location.startswith("file:"):
            location = "/" + location.removeprefix("file:").lstrip("/")
        if "://" in location:
            filesystem = filesystem_of(location, self._access or Access())
            return filesystem, str(filesystem._strip_protocol(location))
        if self._access is not None:
            raise SourceError(f"The metadata of a bucket names {location!r} on this machine.")
        import fsspec

        build: Any = fsspec.filesystem
        return build("file"), location

    def new_input(self, location: str) -> InputFile:
        return _Input(location, *self.opened(location))

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"Sources are not written: {location!r}.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"Sources are not written: {location!r}.")


class _Input(InputFile):
    def __init__(self, location: str, filesystem: Any, path: str) -> None:
        super().__init__(location)
        self._filesystem, self._path = filesystem, path

    def __len__(self) -> int:
        return int(self._filesystem.size(self._path))

    def exists(self) -> bool:
        return bool(self._filesystem.exists(self._path))

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 (the protocol's)
        stream: InputStream = self._filesystem.open(self._path, "rb")
        return stream


def _id_of(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(_FIELD_ID)
    return None if number is None else int(number)


def _alike(wanted: pa.Field, there: pa.Field) -> bool:
    """Whether fields within a column have the names in a file that they have in the table."""
    kinds = wanted.type, there.type
    if all(map(pa.types.is_struct, kinds)):
        fields, others = (list(kind) for kind in kinds)
        names, ids = {f.name: f for f in others}, {_id_of(f): f for f in others}
        return all(
            names.get(f.name) is ids.get(_id_of(f))
            and (f.name not in names or _alike(f, names[f.name]))
            for f in fields
        )
    if not all(map(pa.types.is_nested, kinds)):
        return True
    inner = zip(
        *([kind.field(at) for at in range(kind.num_fields)] for kind in kinds), strict=False
    )
    return all(_alike(one, other) for one, other in inner)


def _small(kind: pa.DataType) -> pa.DataType:
    """The type as files of Parquet have it: batches are too small for 64-bit offsets."""
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_small_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small_field(kind.item_field))
    return kind


def _small_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _small(field.type), field.nullable)
