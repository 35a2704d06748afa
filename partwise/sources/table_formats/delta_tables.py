"""Delta tables: which Parquet files the log says are theirs, read by `deltalake`."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from partwise.errors import ColumnError, SourceError
from partwise.sources.files.remote_files import Access, filesystem_of
from partwise.sources.table_formats.log_table import TableFile
from partwise.tables.comparisons import ALWAYS, comparison
from partwise.tables.filters import Conditions, combined

_LOG = "_delta_log"
_READ_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of tables that leave their files as they look: without the others nothing is read."""
_REMEDIES = {
    "deletionVectors": "rewrite its files without the deleted rows (REORG TABLE ... APPLY (PURGE))",
    "columnMapping": "copy it to a table without column mapping",
}
_CUT_TEXT = 32
"""Writers keep so many characters of the bounds of text, and some do not round them up."""
_CUT_TIMES_US = 1000
"""Bounds of times are cut to milliseconds."""
_PARTITION = "partition."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLog:
    """A Delta table at one version: a `LogTable`."""

    root: str
    access: Access | None
    schema: pa.Schema
    version: int
    id: str
    actions: pa.Table
    """A row for each file, as `DeltaTable.get_add_actions` gives them, flat."""

    @property
    def rows(self) -> int | None:
        """How many rows it has, by the statistics of all files."""
        counts = self.actions.column("num_records")
        return None if counts.null_count else int(pc.sum(counts, min_count=0).as_py())

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return int(pc.sum(self.actions.column("size_bytes"), min_count=0).as_py())

    def identity(self) -> Sequence[str]:
        """The version, and a hash of the files: versions of a copy count on by themselves."""
        listed = self.actions.select(["path", "size_bytes", "modification_time"])
        digest = hashlib.sha256(json.dumps(listed.to_pydict()).encode()).hexdigest()
        return [self.id, str(self.version), digest]

    def files(self, conditions: Conditions | None) -> list[TableFile]:
        """The files, in the order of their paths."""
        actions = self.actions.filter(pa.array(self._may_pass(conditions)))
        partitions = {
            name.removeprefix(_PARTITION): actions.column(name).to_pylist()
            for name in actions.column_names
            if name.startswith(_PARTITION)
        }
        sizes = actions.column("size_bytes").to_pylist()
        return [
            TableFile(
                path=(shown := self._place(path)),
                format="parquet",
                base=shown.rpartition("/")[0],
                size_bytes=sizes[row],
                version="",
                access=self.access,
                values={name: values[row] for name, values in partitions.items()},
            )
            for row, path in enumerate(actions.column("path").to_pylist())
        ]

    def names_in(self, schema: pa.Schema, file: TableFile) -> dict[str, str]:
        """The columns of the file, without those of its partition, whose values the log has."""
        return {name: name for name in schema.names if name not in file.values}

    def _place(self, path: str) -> str:
        path = unquote(path)
        if "://" not in path:
            return path if path.startswith("/") and self.access is None else f"{self.root}/{path}"
        # A clone names the files of another table.
        if path.startswith("file://") and self.access is None:
            return path.removeprefix("file://")
        raise SourceError(
            f"The Delta table {self.root!r} names the file {path!r} of another place, as a shallow "
            "clone does: make a deep clone."
        )

    def _may_pass(self, conditions: Conditions | None) -> np.ndarray:
        """Bools of shape (files,): whether a row of each file may pass a filter."""
        if conditions is None:
            return np.ones(self.actions.num_rows, bool)
        found: np.ndarray = combined(conditions, self._may_hold, np.logical_and, np.logical_or)
        return found

    def _may_hold(self, name: str, operator: str, value: Any) -> np.ndarray:
        kind = self.schema.field(name).type
        whole = np.ones(self.actions.num_rows, bool)
        bounds = self._bounds(name, kind)
        if bounds is None or operator in ("!=", "not in"):
            return whole
        least, most = bounds
        found = np.zeros_like(whole)
        for each in value if operator == "in" else [value]:
            try:
                sign, wanted = comparison(name, kind, "=" if operator == "in" else operator, each)
            except ColumnError:
                return whole
            if wanted is None:
                found |= sign == ALWAYS
                continue
            checks: list[pa.ChunkedArray] = []
            if sign in ("=", "<", "<="):
                compare: Callable[..., Any] = pc.less if sign == "<" else pc.less_equal
                checks.append(compare(least, wanted))
            if sign in ("=", ">", ">="):
                compare = pc.greater if sign == ">" else pc.greater_equal
                checks.append(compare(most, wanted))
            # Where a bound is unknown, a row may pass; of a null partition none does.
            passed = [np.asarray(check.fill_null(True)) for check in checks]
            found |= np.logical_and.reduce(passed)
        if _PARTITION + name in self.actions.column_names:
            found &= np.asarray(least.is_valid())
        return found

    def _bounds(self, name: str, kind: pa.DataType) -> tuple[Any, Any] | None:
        """The least and the most that each file may hold; None: the log does not say it."""
        names = self.actions.column_names
        if _PARTITION + name in names:
            values = self.actions.column(_PARTITION + name).cast(kind)
            return values, values
        if f"min.{name}" not in names or f"max.{name}" not in names:
            return None
        least, most = (self.actions.column(f"{bound}.{name}") for bound in ("min", "max"))
        types = pa.types
        if types.is_integer(kind) or types.is_date(kind):
            return least.cast(kind), most.cast(kind)
        if types.is_string(kind):
            is_whole = pc.less(pc.utf8_length(most), _CUT_TEXT)
            return least, pc.if_else(is_whole, most, pa.scalar(None, most.type))
        if types.is_timestamp(kind):
            numbers = most.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
            later = pc.add(numbers, _CUT_TIMES_US).cast(pa.timestamp("us", kind.tz))
            return least.cast(kind), later.cast(kind)
        if types.is_floating(kind):
            nan = pa.scalar(None, most.type)
            return least, pc.if_else(pc.is_nan(most), nan, most)
        return None


def read_delta_log(root: str, access: Access | None, version: int | None) -> DeltaLog:
    """Read the log of a Delta table.

    `version` None: the newest.

    Raises:
        SourceError: It cannot be read, or uses a feature with which its files would be read wrong.
    """
    try:
        opened = _linked(root) if access is None else _fetched(root, access, version)
        with opened as folder:
            table = DeltaTable(folder, version=version)
            _check_features(root, table)
            schema = pa.schema(table.schema().to_arrow())
            _check_divisions(root, schema, table.metadata().partition_columns)
            return DeltaLog(
                root=root,
                access=access,
                schema=schema,
                version=table.version(),
                id=str(table.metadata().id),
                # Rows come in this order, in which a resume compares those of a partition.
                actions=pa.table(table.get_add_actions(flatten=True)).sort_by("path"),
            )
    except SourceError:
        raise
    except Exception as exc:  # deltalake's own, and those of stores
        at = "" if version is None else f" at version {version}"
        reason = " ".join(str(exc).split()).rstrip(".") or type(exc).__name__
        raise SourceError(f"The Delta table {root!r} cannot be read{at}: {reason}.") from exc


def _check_features(root: str, table: DeltaTable) -> None:
    protocol = table.protocol()
    used = set(protocol.reader_features or ())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        used.add("columnMapping")
    else:
        # Older readers announce it by a number that says no more.
        used.discard("columnMapping")
    if "deletionVectors" in used:
        deletions = pa.RecordBatchReader.from_stream(table.deletion_vectors())
        if not any(batch.num_rows for batch in deletions):
            used.discard("deletionVectors")
    if unknown := sorted(used - _READ_FEATURES):
        remedy = _REMEDIES.get(unknown[0], "copy it to a table or to Parquet files without it")
        raise SourceError(
            f"The Delta table {root!r} uses {', '.join(unknown)}, with which its files cannot be "
            f"read as they are: {remedy}, or read it with another library and give the Arrow "
            "stream."
        )


def _check_divisions(root: str, schema: pa.Schema, names: Sequence[str]) -> None:
    for name in names:
        if pa.types.is_binary(schema.field(name).type):
            raise SourceError(
                f"The Delta table {root!r} is divided by its column {name!r} of bytes, which "
                "writers put into the log in several ways: divide it by another column, or read it "
                "with another library and give the Arrow stream."
            )


@contextmanager
def _linked(root: str) -> Iterator[str]:
    """Link the log into a folder of a plain name: deltalake takes %20 in a path for a space."""
    with TemporaryDirectory(prefix="partwise-") as folder:
        os.symlink(os.path.join(root, _LOG), os.path.join(folder, _LOG))
        yield folder


@contextmanager
def _fetched(root: str, access: Access, version: int | None) -> Iterator[str]:
    """Copy the log of a bucket into a folder here, where deltalake needs no keys of the bucket."""
    filesystem = filesystem_of(root, access)
    log = f"{filesystem._strip_protocol(root)}/{_LOG}"
    # First: what is listed afterwards has this checkpoint, or a later one.
    first = 0 if version is not None else _checkpoint(filesystem, log)
    names = [path.rpartition("/")[2] for path in filesystem.ls(log, detail=False)]
    wanted = [f"{log}/{name}" for name in names if name[:20].isdigit() and int(name[:20]) >= first]
    if "_last_checkpoint" in names:
        wanted.append(f"{log}/_last_checkpoint")
    if "_sidecars" in names:
        wanted += filesystem.find(f"{log}/_sidecars")
    with TemporaryDirectory(prefix="partwise-") as folder:
        copies = [os.path.join(folder, _LOG, path[len(log) + 1 :]) for path in wanted]
        for copy in {os.path.dirname(copy) for copy in copies}:
            os.makedirs(copy, exist_ok=True)
        filesystem.get(wanted, copies)
        yield folder


def _checkpoint(filesystem: Any, log: str) -> int:
    """The version at which the log can be begun; 0: at its beginning."""
    try:
        said: Mapping[str, Any] = json.loads(filesystem.cat_file(f"{log}/_last_checkpoint"))
    except FileNotFoundError:
        return 0
    return int(said["version"])
