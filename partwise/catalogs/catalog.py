"""The handle of a version of a catalog: which model each key has, and what may be done to that."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.catalogs import rows
from partwise.catalogs.documents import (
    CATALOG_SCHEME,
    NOUN,
    DrawnRun,
    Origin,
    VersionDocument,
    catalog_path,
    reference_of,
    versions_of,
)
from partwise.errors import (
    CatalogNotFoundError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    RunFormatError,
)
from partwise.formatting import MOST_TO_COMPARE, counted, did_you_mean
from partwise.models.serdes import ModelSerde, resolve_serde, serde_by_name
from partwise.runs.bundle import StoredArtifact, artifact_from_row, decode, read_model
from partwise.runs.contents import READ_THREADS
from partwise.runs.documents import run_path, sha256_of
from partwise.runs.key_texts import key_texts, named_partition
from partwise.runs.ledger import check_size
from partwise.runs.run import ONLY
from partwise.runs.stored_models import MODEL_FILES, MODELS, ModelSet, key_hashes
from partwise.store.store import Store
from partwise.store.versions import parse_reference
from partwise.tables.keys.one_table import one_table
from partwise.tables.keys.partition_keys import Key, KeyColumn

if TYPE_CHECKING:
    from partwise.serving.predictor import Predictor
    from partwise.serving.served import PredictorOptions

Format = Literal["native", "onnx"]


class Catalog:
    """A version of a catalog: for each key the model that is used, its champion.

    What it says does not change any more; `refresh` opens the newest one. What changes a catalog
    (`rollback`, `pin`, `unpin`, `retire`) makes the next version, and only of the newest.

    Example:
        >>> catalog = Catalog.open("sales", "/data/models")  # doctest: +SKIP
        >>> catalog.version, catalog.row("store-7")["run_id"]  # doctest: +SKIP
        (7, 'nightly-2026-11-25')
        >>> catalog.model("store-7").predict(rows)  # doctest: +SKIP
    """

    def __init__(
        self, store: Store, document: VersionDocument, table: pa.Table | None = None
    ) -> None:
        self.store = store
        self.document = document
        if table is not None:
            self.table = table

    @classmethod
    def open(cls, reference: str, store: Store | str | Path = "artifacts") -> "Catalog":
        """Open a version of a catalog.

        Args:
            reference: Its name, for the newest version, or NAME@VERSION; also as catalog://NAME.
            store: The artifact store: its URL, a folder, or a `Store`.

        Raises:
            InputError: The reference is not of this form.
            CatalogNotFoundError: The store has no such catalog, or not this version of it.
            RunFormatError: The document is damaged, or of a newer format.
            SignatureError: Keys are configured, and none of them signed it, or it is older than
                what was read before.
            StoreError: The store cannot be read.
        """
        name, wanted = parse_reference(reference, NOUN)
        versions = versions_of(Store.of(store), name)
        try:
            number, content = versions.read(wanted)
        except FileNotFoundError:
            raise CatalogNotFoundError(versions.why_not_found(wanted)) from None
        if wanted is not None and versions.is_removed(wanted):
            raise CatalogNotFoundError(versions.why_not_found(wanted))
        path = versions.path(number)
        document = VersionDocument.from_bytes(content, path)
        if (document.name, document.version) != (name, number):
            raise RunFormatError(
                f"{path} is that of {document.reference}; the folder was renamed or copied, and a "
                "catalog has one name."
            )
        versions.remember(number)
        return cls(versions.store, document)

    @property
    def name(self) -> str:
        """The catalog's name."""
        return self.document.name

    @property
    def version(self) -> int:
        """The number of this version, from 1."""
        return self.document.version

    @property
    def reference(self) -> str:
        """What names this version: `catalog://NAME@VERSION`."""
        return self.document.reference

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """The key columns, and the classes of their values."""
        return self.document.keys

    @property
    def runs(self) -> tuple[DrawnRun, ...]:
        """The runs with models that this version names."""
        return self.document.runs

    def refresh(self) -> "Catalog":
        """Return a handle of the newest version."""
        return Catalog.open(self.name, self.store)

    def __repr__(self) -> str:
        keys = counted(self.document.table.rows, "key")
        return f"Catalog({self.reference!r}, {keys}, {self.store.url!r})"

    @cached_property
    def _content(self) -> bytes:
        document = self.document.table
        path = catalog_path(self.name, document.path)
        try:
            content = self.store.read(path)
        except FileNotFoundError as error:
            versions = versions_of(self.store, self.name)
            if versions.is_removed(self.version):
                raise CatalogNotFoundError(versions.why_not_found(self.version)) from error
            raise self._damaged(path, "is gone") from error
        if sha256_of(content) != document.sha256:
            raise self._damaged(path, "was changed after the version was made")
        return content

    def _damaged(self, path: str, what: str) -> IntegrityError:
        return IntegrityError(
            f"{path}, the table of {self.reference}, {what}: restore it from a backup, or roll "
            "back to another version."
        )

    @cached_property
    def table(self) -> pa.Table:
        """One row a key: `key.<name>` columns, then those of `rows.COLUMNS`, by partition_id.

        Raises:
            CatalogNotFoundError: The version was removed since it was opened.
            IntegrityError: The table is gone, or was changed.
        """
        # Threads of Arrow that hold bytes of Python's abort a process that ends.
        table = self._file.read(use_threads=False)
        return self._checked(table)

    def _checked(self, table: pa.Table) -> pa.Table:
        where = catalog_path(self.name, self.document.table.path)
        table = rows.as_today(table.replace_schema_metadata(None))
        rows.check_rows(table, self.key_columns, where)
        return table

    @cached_property
    def _file(self) -> pq.ParquetFile:
        content, path = self._content, catalog_path(self.name, self.document.table.path)
        # Without keys the document may be anybody's, and name a table of anything.
        check_size(content, path)
        try:
            return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise RunFormatError(f"{path} is not a readable Parquet file: {error}") from error

    def partition_id(self, key: Key = ONLY) -> str:
        """Return the path-safe name of a key, which may be a text: see `Run.partition_id`.

        Raises:
            KeyClassError: The key's values are of another class than the catalog's keys.
            InputError: No key was given, and the catalog has key columns.
        """
        if not self.key_columns:
            return rows.OF_ALL
        if key is ONLY:
            raise InputError(f"{self.reference} has a model for each key: name the key.")
        return named_partition(key, self.key_columns)

    def row(self, key: Key = ONLY) -> dict[str, Any]:
        """Return the row of a key: its champion, since when, and on what grounds.

        Without the whole table, which takes a tenth of a second of 100,000 keys.

        Args:
            key: Of the class of the catalog's keys, a text that stands for it, or its partition_id.

        Raises:
            PartitionNotFoundError: The catalog does not have the key.
            KeyClassError: It is of another class.
        """
        found: dict[str, Any] = self._find(key).to_pylist()[0]
        return {**found, "metrics": dict(found["metrics"] or ())}

    def _find(self, key: Key) -> pa.Table:
        """Return the row of a key as a table."""
        names, wrong = [], None
        try:
            names.append(self.partition_id(key))
        except KeyClassError as error:
            wrong = error
        if isinstance(key, str):
            names.append(key)
        for name in names:
            if (found := self._of_partition(name)).num_rows:
                return found
        if wrong is not None:
            raise wrong
        hint = did_you_mean(str(key), key_texts(self.table, MOST_TO_COMPARE))
        raise PartitionNotFoundError(f"{self.reference} does not have the key {key!r}.{hint}")

    def _of_partition(self, name: str) -> pa.Table:
        if "table" in self.__dict__:
            return self.table.filter(pc.equal(self.table["partition_id"], name))
        # Sorted, so that one group of rows can have it; keys are no nested columns.
        place, about = len(self.key_columns), self._file.metadata
        found = []
        for number in range(about.num_row_groups):
            bounds = about.row_group(number).column(place).statistics
            if bounds is None or not bounds.has_min_max or bounds.min <= name <= bounds.max:
                found.append(number)
        group = self._checked(self._file.read_row_groups(found, use_threads=False))
        return group.filter(pc.equal(group["partition_id"], name))

    def model(
        self,
        key: Key = ONLY,
        serde: ModelSerde | str | None = None,
        format: Format = "native",  # noqa: A002
    ) -> Any:
        """Return the champion of a key.

        Args:
            key: As `row` takes it.
            serde: As `Run.model` takes it.
            format: "native", or "onnx" for its export.

        Raises:
            PartitionNotFoundError: The catalog does not have the key.
            InputError: There is no such format.
            ModelNotFoundError: The key is retired, or has no export.
            SerdeError: The model needs a serde that was not given.
            IntegrityError: Its bytes are gone, or differ from their checksum.
        """
        if format not in get_args(Format):
            raise InputError(f"format is {format!r}: give one of {', '.join(get_args(Format))}.")
        row = self.row(key)
        files = row[format]
        if files is None:
            why = "is retired" if row["retired"] else f"has no model in the format {format!r}"
            raise ModelNotFoundError(f"The key {key!r} of {self.reference} {why}.")
        run_id = files.get("run_id", row["run_id"])
        model, weights = (files[name] and artifact_from_row(files[name]) for name in _READ)
        reader = serde_by_name(model.serde, resolve_serde(serde))
        beside = {} if weights is None else {weights.filename: self._read(run_id, weights)}
        return read_model(reader, self._read(run_id, model), model.filename, beside)

    def categories(self, key: Key = ONLY) -> pa.Table | None:
        """Return the categories and classes that a key's model was trained with; None: none.

        Takes and raises what `model` does.
        """
        row = self.row(key)
        file = row["native"] and row["native"]["categories"]
        if not file:
            return None
        content = self._read(row["run_id"], artifact_from_row(file))
        return pa.ipc.open_stream(content).read_all()

    def _read(self, run_id: str, artifact: StoredArtifact) -> bytes:
        path = run_path(run_id, artifact.bundle)
        try:
            stored = self.store.read_range(path, artifact.offset, artifact.stored_bytes)
        except FileNotFoundError as error:
            raise IntegrityError(
                f"{path} is gone, and {self.reference} draws on it: restore it from a backup, or "
                "promote another model."
            ) from error
        return decode(stored, artifact, f"the run {run_id!r}, in {self.reference}")

    def model_set(self, format: Format = "native") -> ModelSet:  # noqa: A002
        """Return the models of all keys in a format, as inference and comparisons take them."""
        files = self.table[format]
        table = self.table.filter(pc.is_valid(files))
        files = table[format]
        hashes: Any = pa.nulls(table.num_rows, pa.uint64())
        if self.key_columns:
            hashes = key_hashes(table, self.key_columns)
        run = table if format == "native" else pa.Table.from_struct_array(files)
        models = {
            "hash": hashes,
            "run_id": run["run_id"],
            "generation": run["generation"],
            "owner": table["owner"],
            **{name: pc.struct_field(files, name) for name in MODEL_FILES},
        }
        models = pa.table(models, schema=MODELS)
        return ModelSet(name=self.reference, key_columns=self.key_columns, models=models)

    def predictor(
        self, options: "PredictorOptions | None" = None, *, newest: bool = False
    ) -> "Predictor":
        """Return the champions ready to predict for any key, for use inside your own service.

        Args:
            options: How models are held.
            newest: Begin with the newest version, and let `refresh` take up those that follow.

        Raises:
            ModelNotFoundError: No key has a model of the options' format.
        """
        from partwise.serving.predictor import Predictor
        from partwise.serving.served import PredictorOptions

        reference = f"{CATALOG_SCHEME}{self.name}" if newest else self.reference
        return Predictor.open(reference, self.store, options or PredictorOptions())

    def history(self, key: Key = ONLY) -> pa.Table:
        """Return the rows that a key has had, a row for each version that changed it, oldest first.

        Columns: version, made_at, who, action, then those of `table`. Versions that were removed
        are left out.

        Raises:
            PartitionNotFoundError: No version has the key.
        """

        def row(number: int) -> pa.Table | None:
            try:
                catalog = Catalog.open(reference_of(self.name, number), self.store)
                found = catalog._find(key)
            except (CatalogNotFoundError, PartitionNotFoundError):
                return None
            origin = catalog.document.origin
            values = (number, catalog.document.created_at, origin.who, origin.action)
            for name, value in reversed(list(zip(_MADE, values, strict=True))):
                found = found.add_column(0, name, pa.array([value], _MADE[name]))
            return found

        with ThreadPoolExecutor(READ_THREADS) as threads:
            found = list(threads.map(row, versions_of(self.store, self.name).there()))
        there = [each for each in found if each is not None]
        if not there:
            self._find(key)
        table = one_table(there)
        shown = zip(
            rows.identities(table).to_pylist(),
            *(table[name].to_pylist() for name in ("since_version", "pinned")),
            strict=True,
        )
        states = [None, *shown]
        changed = [now != was for was, now in pairwise(states)]
        return table.filter(pa.array(changed))

    def diff(self, other: "Catalog") -> pa.Table:
        """Return what another version has otherwise, a row for each key that differs.

        Columns: keys, partition_id, change ("added", "removed", "changed", "retired", "pinned" or
        "unpinned"), run_id_before, generation_before, run_id, generation, margin, reason.
        """
        return rows.differences(self.table, other.table)

    def rollback(self, to: int) -> "Catalog":
        """Make a version with the rows of an earlier one; pinned keys stay as they are.

        The files of its models are looked at, and held, first.

        Raises:
            CatalogNotFoundError: That version is not there.
            CatalogConflictError: This is not the newest version.
            IntegrityError: Files of it are gone.
        """
        old = Catalog.open(reference_of(self.name, to), self.store)
        table = rows.rolled_back(self.table, old.table)
        return self._change(table, Origin(action="rollback", rule={"to": to}))

    def pin(self, keys: Iterable[Key]) -> "Catalog":
        """Make a version in which these keys keep their champions until they are unpinned."""
        return self._marked("pin", keys)

    def unpin(self, keys: Iterable[Key]) -> "Catalog":
        """Make a version in which these keys may get other champions again."""
        return self._marked("unpin", keys)

    def retire(self, keys: Iterable[Key]) -> "Catalog":
        """Make a version in which these keys have no champion; `history` still has them."""
        return self._marked("retire", keys)

    def _marked(self, action: str, keys: Iterable[Key]) -> "Catalog":
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise InputError(f"{action} takes several keys: for one write {action}([{keys!r}]).")
        self.table  # noqa: B018 (many keys are found faster in it)
        names = sorted({self._find(key)["partition_id"][0].as_py() for key in keys})
        if not names:
            raise InputError(f"Name the keys to {action}: none was given.")
        table = rows.retired(self.table, names)
        if action != "retire":
            table = rows.pinned(self.table, names, is_pinned=action == "pin")
        # All of them would make a document of megabytes.
        some, digest = names[:_SHOWN], sha256_of(repr(names).encode())
        rule: dict[str, Any] = {"keys": some, "count": len(names), "sha256": digest}
        return self._change(table, Origin(action=action, rule=rule))

    def _change(self, table: pa.Table, origin: Origin) -> "Catalog":
        from partwise.catalogs.commit import commit_version

        return commit_version(self.store, self.name, base=self, champions=table, origin=origin)


_READ = ("model", "weights")
_SHOWN = 20
_MADE = {
    "version": pa.int32(),
    "made_at": pa.timestamp("us", tz="UTC"),
    "who": pa.string(),
    "action": pa.string(),
}
