"""Registering rows as a new version of a dataset: parts first, and the manifest as the commit.

Any number may register at once. The manifest's number is taken by creating it; who comes second
looks again at what is the newest, and takes the next number. Nothing that was begun and not
committed is visible, and `collect_dataset_garbage` removes it.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import JsonValue

from partwise.datasets.dataset import Dataset, list_versions, resolve_references
from partwise.datasets.fingerprint import ContentFingerprint, OrderFingerprints
from partwise.datasets.manifest import (
    NOUN,
    PARTS,
    DatasetManifest,
    dataset_path,
    encode_schema,
    versions_of,
)
from partwise.datasets.parts import DatasetWriter
from partwise.datasets.statistics import ColumnStatistics
from partwise.errors import ColumnError, PartwiseError, RunBusyError, SourceError, StoreError
from partwise.runs.contents import READ_THREADS
from partwise.runs.documents import RunOrigin, to_json
from partwise.runs.run import Run
from partwise.sources.opening import open_source
from partwise.store.lease import Lease
from partwise.store.store import Store
from partwise.store.versions import check_name
from partwise.tables.column_names import check_named_once, columns_there
from partwise.tables.dictionaries import without_null_values
from partwise.tables.filters import Filter
from partwise.tables.roles import ROLE_KEY
from partwise.tables.schemas import cast_batch

COMMITS = b"commits"
"""The step of a registration whose parts are written, and which may commit at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What came of registering rows."""

    dataset: Dataset
    is_new: bool
    """False: the rows were there already, and no version was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to become a version."""

    store: Store
    name: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    """Gives all rows, of this schema."""
    excluded: tuple[str, ...]
    label: tuple[str, ...]
    description: str
    source: dict[str, JsonValue]
    source_fingerprint: str | None
    origin: RunOrigin | None = None

    def is_of(self, manifest: DatasetManifest) -> bool:
        """Whether a version has the same columns with the same marks."""
        return (
            manifest.schema.equals(self.schema)
            and set(manifest.excluded) == set(self.excluded)
            and manifest.label == self.label
        )


def register_dataset(
    name: str,
    source: Any,
    *,
    store: Store | str | Path = "artifacts",
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,  # noqa: A002 (the word of every reader of tables)
    exclude: Sequence[str] | str = (),
    label: Sequence[str] | str = (),
    description: str = "",
) -> Dataset:
    """Write rows to a store as a version of a dataset, which does not change any more.

    Rows equal to those of the newest version, with the same marks and orders of categories, make no
    new version.

    Args:
        name: The dataset's name: letters, digits, "-" and "_".
        source: Where the rows come from: anything that flows take as `data`.
        store: The artifact store: its URL, a folder, or a `Store`.
        columns: Columns to keep, None for all.
        filter: Rows to keep, as in flows.
        exclude: Columns that flows read only when they are named in `columns`.
        label: Columns to be predicted: never features by themselves.
        description: A sentence for people.

    Returns:
        The new version, or the newest one where it has the very rows.

    Raises:
        InputError: The name, the source, a column or the filter cannot be used.
        StoreError: The store cannot be written.

    Example:
        >>> sales = register_dataset("sales", "sales/*.parquet", label="sales")  # doctest: +SKIP
        >>> train_models(sales, "store", LightGBMTrainer())  # doctest: +SKIP
    """
    return register(
        name,
        source,
        store=Store.of(store),
        columns=columns,
        filter=filter,
        exclude=(exclude,) if isinstance(exclude, str) else exclude,
        label=(label,) if isinstance(label, str) else label,
        description=description,
    ).dataset


def register(
    name: str,
    source: Any,
    *,
    store: Store,
    columns: Sequence[str] | None,
    filter: Filter | None,  # noqa: A002
    exclude: Sequence[str],
    label: Sequence[str],
    description: str,
) -> Registration:
    """Do as `register_dataset`, and return whether there is a new version."""
    check_name(name, NOUN)
    # A dataset of another store is as good a source as any.
    rows = source if isinstance(source, Dataset) else resolve_references(source, lambda: store)
    opened = open_source(rows, columns=columns, filter=filter)
    _check_marks(opened.schema, exclude, label)
    about = opened.description()
    described: dict[str, JsonValue] = {"type": type(source).__name__}
    if about.recipe is not None:
        described = {key: to_json(value) for key, value in about.recipe.items()}
    draft = Draft(
        store=store,
        name=name,
        schema=plain_schema(opened.schema),
        batches=opened.batches,
        excluded=tuple(exclude),
        label=tuple(label),
        description=description,
        source=described,
        source_fingerprint=about.fingerprint,
    )
    return commit(draft)


def _check_marks(schema: pa.Schema, exclude: Sequence[str], label: Sequence[str]) -> None:
    for what, names in (("exclude", exclude), ("label", label)):
        check_named_once(names, what)
        for column in names:
            if column not in schema.names:
                raise ColumnError(
                    f"{what} names column {column!r}, which the source does not have: "
                    f"{columns_there(schema.names, column, begin='its columns are')}"
                )
    if both := [column for column in label if column in exclude]:
        raise ColumnError(f"Column {both[0]!r} is excluded and label at once: choose one.")
    if set(exclude) >= set(schema.names):
        raise ColumnError("Every column is excluded: leave some that are read by themselves.")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose fields say nothing of roles and files, which are those of a version."""
    fields = []
    for field in schema:
        kept = {
            key: value
            for key, value in (field.metadata or {}).items()
            if key != ROLE_KEY and not key.startswith(b"PARQUET:")
        }
        fields.append(field.with_metadata(kept or None))
    return pa.schema(fields, metadata=schema.metadata)


def commit(draft: Draft) -> Registration:
    """Write the parts of a draft, then its manifest under the next free number."""
    store, name = draft.store, draft.name
    if known := _registered(draft, None, list_versions(store, name)):
        return Registration(dataset=known, is_new=False)
    store.check_writable()
    token = secrets.token_hex(8)
    folder = dataset_path(name, PARTS, token)
    with contextlib.ExitStack() as stack:
        # Whoever tidies up sees that this folder is at work. It has no place in the version.
        lease = stack.enter_context(Lease.acquire(store, folder))
        try:
            manifest = _write_parts(draft, token)
        except BaseException:
            _remove(lease, store, folder)
            raise
        # What fails from here on may have been committed all the same: nothing is taken back.
        registration = _create_manifest(draft, manifest, lease, folder)
        lease.release()
        with contextlib.suppress(StoreError):
            store.delete_folder(folder if not registration.is_new else f"{folder}/lease")
        return registration


def _remove(lease: Lease, store: Store, folder: str) -> None:
    """Take back what no manifest refers to; what stays is garbage that others collect."""
    with contextlib.suppress(PartwiseError):
        lease.release()
        store.delete_folder(folder)


def _write_parts(draft: Draft, token: str) -> DatasetManifest:
    """Stream the rows into parts; return the manifest as it would be for version 1."""
    writer = DatasetWriter(draft.store, draft.name, token, draft.schema)
    fingerprint, orders = ContentFingerprint(draft.schema), OrderFingerprints(draft.schema)
    statistics = [ColumnStatistics(field) for field in draft.schema]
    rows = 0
    for source_batch in draft.batches():
        batch = cast_batch(source_batch, draft.schema, {}, "the source")
        if not batch.num_rows:
            continue
        arrays = [
            without_null_values(array) if pa.types.is_dictionary(array.type) else array
            for array in batch.columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=draft.schema)
        fingerprint.add(batch)
        orders.add(batch)
        for column, array in zip(statistics, batch.columns, strict=True):
            column.add(array)
        writer.add(batch)
        rows += batch.num_rows
    if not rows:
        raise SourceError("The source has no rows: there is nothing to register.")
    return DatasetManifest(
        name=draft.name,
        version=1,
        description=draft.description,
        rows=rows,
        columns=tuple(column.document() for column in statistics),
        excluded=draft.excluded,
        label=draft.label,
        parts=writer.finish(),
        fingerprint=fingerprint.hexdigest(),
        arrow_schema=encode_schema(draft.schema, orders.hexdigests()),
        source=draft.source,
        source_fingerprint=draft.source_fingerprint,
        origin=draft.origin,
        created_at=datetime.now(UTC),
        partwise_version=metadata.version("partwise"),
        writer=token,
    )


def _create_manifest(
    draft: Draft, manifest: DatasetManifest, lease: Lease, folder: str
) -> Registration:
    """Take the next number, unless somebody has registered the same rows meanwhile."""
    store, name = draft.store, draft.name
    # From here on nobody deletes these parts, or somebody may have and this is refused: a
    # collection that takes the folder over closes the steps of its owner before it deletes.
    try:
        lease.announce(COMMITS)
    except RunBusyError as error:
        raise StoreError(_removed(draft)) from error
    while True:
        # Looked at before each try: what was committed until now shows, and what comes later takes
        # the number.
        versions = list_versions(store, name)
        if known := _registered(draft, manifest, versions):
            return Registration(dataset=known, is_new=False)
        if (origin := draft.origin) is not None:
            _refuse_older(store, origin)
        version = manifest.model_copy(update={"version": max(versions, default=0) + 1})
        there = set(store.list(f"{folder}/"))
        if any(dataset_path(name, part.path) not in there for part in manifest.parts):
            raise StoreError(_removed(draft))
        with contextlib.suppress(FileExistsError):
            numbers = versions_of(store, name)
            path = numbers.path(version.version)
            store.create(path, version.to_bytes(path, store))
            numbers.remember(version.version)
            return Registration(dataset=Dataset(store, version), is_new=True)


def _refuse_older(store: Store, origin: RunOrigin) -> None:
    """See that the run has not gone on: else an older outcome would become the newest version.

    Raises:
        RunBusyError: It has, and this process was out of reach for too long.
    """
    # Versions were listed before: one that the newer generation registers meanwhile has the number
    # that is tried next, and all is looked at again.
    run = Run.open(origin.run_id, store)
    end = run.shown or run.summary
    newest = origin.generation if end is None else end.generation
    if newest > origin.generation:
        raise RunBusyError(
            f"Generation {newest} of the run {origin.run_id!r} has ended since generation "
            f"{origin.generation}, whose rows were to be registered; register those of the newest."
        )


def _removed(draft: Draft) -> str:
    return (
        f"Parts of the dataset {draft.name!r} in {draft.store.url} were removed before it was "
        "registered, because this process sent no heartbeat for too long; register it again."
    )


def _registered(
    draft: Draft, manifest: DatasetManifest | None, versions: list[int]
) -> Dataset | None:
    """Return the version that a draft would only repeat; None: there is none.

    `manifest` is None as long as the rows are not read; `versions` are ascending.
    """
    if not versions:
        return None
    if (origin := draft.origin) is not None:
        # Each outcome of a run has a version of its own, also one with equal rows: else a run that
        # is published again would look like one that never was.
        with ThreadPoolExecutor(READ_THREADS) as threads:
            others = threads.map(lambda n: Dataset.open(draft.name, n, draft.store), versions)
            return next((one for one in others if _is_of_outcome(one, origin)), None)
    newest = Dataset.open(draft.name, versions[-1], draft.store)
    if not draft.is_of(newest.manifest):
        return None
    # Of the content where it is known; before, of what the source says of itself.
    if manifest is not None:
        is_same = manifest.fingerprint == newest.fingerprint
        return newest if is_same and manifest.orders == newest.manifest.orders else None
    kinds = {field.name: field.type for field in draft.schema}
    ordered = {n for n, kind in kinds.items() if pa.types.is_dictionary(kind) and kind.ordered}
    # An earlier release wrote no orders down, and joined those of several files wrongly.
    is_known = draft.source_fingerprint is not None and ordered <= {*newest.manifest.orders}
    same = draft.source_fingerprint == newest.manifest.source_fingerprint
    return newest if same and is_known else None


def _is_of_outcome(dataset: Dataset, wanted: RunOrigin) -> bool:
    """Whether a version is of this run and ledger; a resume that found all done makes no other."""
    origin = dataset.manifest.origin
    if origin is None:
        return False
    return (origin.run_id, origin.ledger_sha256) == (wanted.run_id, wanted.ledger_sha256)
