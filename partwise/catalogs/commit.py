"""Making a version of a catalog: holds of the runs first, then the table, then the version.

A version is made from another one, its base, and has the next number. Of several who do so at once
one creates it, and the others hear who that was; so does one that was stopped for long in between.
Nothing that was begun and not committed is visible: `partwise.catalogs.garbage` removes tables, and
a collection of the run its holds.
"""

import contextlib
import secrets
import time
from datetime import UTC, datetime
from importlib import metadata

import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import (
    NOUN,
    TABLES,
    DrawnRun,
    Origin,
    TableDocument,
    VersionDocument,
    catalog_path,
    hold_name,
    reference_of,
    versions_of,
)
from partwise.catalogs.rows import (
    ROWS_PER_GROUP,
    bundles_by_run,
    completed,
    is_same,
    key_columns_of,
)
from partwise.errors import CatalogConflictError, CatalogNotFoundError, InputError, StoreError
from partwise.formatting import shortened
from partwise.runs.documents import BUNDLES, sha256_of
from partwise.runs.holds import Hold, create_hold, needed_files, take_hold
from partwise.runs.own_checksums import write_sealed
from partwise.store.store import Store
from partwise.store.versions import check_name
from partwise.tables.keys.partition_keys import check_key_classes

WITHIN_S = 3600.0
"""Of a commit, from its first hold on: a hold without a version counts for a day."""


def commit_version(
    store: Store, name: str, *, base: Catalog | None, champions: pa.Table, origin: Origin
) -> Catalog:
    """Make the next version of a catalog.

    It is made from `base`, the newest. `champions` are all of its rows, as `rows.COLUMNS` has them;
    null in `since_version` and `promoted_at` stands for this version and now.

    Returns:
        The version; the base where nothing changes; the version that is there already where the
        very same was done to the base before.

    Raises:
        InputError: The name is not safe, or the rows are none of a catalog.
        KeyClassError: The keys are of other columns or classes than the catalog's.
        CatalogConflictError: Somebody else has made that version.
        RunBusyError: A process works on a run that is newly drawn on.
        RunNotFoundError: Such a run is gone.
        IntegrityError: Files of such a run are gone.
    """
    check_name(name, NOUN)
    if base is not None and (base.name, base.store.url) != (name, store.url):
        raise InputError(f"{base.reference} in {base.store.url} is not a version of {name!r} here.")
    number = 1 if base is None else base.version + 1
    table = completed(champions, number, datetime.now(UTC))
    if base is not None:
        check_key_classes(base.key_columns, key_columns_of(table), f"the catalog {name!r}")
        if is_same(table, base.table):
            return base
    if (known := _made(store, name, number, origin)) is not None:
        return known
    token = secrets.token_hex(8)
    left: list[str] = [catalog_path(name, TABLES, f"{token}.parquet")]
    began = _clocks()
    try:
        document = VersionDocument(
            name=name,
            version=number,
            base=number - 1,
            keys=key_columns_of(table),
            runs=_hold_runs(store, name, number, token, table, base, left),
            table=_write_table(store, left[0], table),
            origin=origin,
            created_at=datetime.now(UTC),
            partwise_version=metadata.version("partwise"),
            token=token,
        )
        if any(now - then >= WITHIN_S for then, now in zip(began, _clocks(), strict=True)):
            raise CatalogConflictError(
                f"Version {number} of the catalog {name!r} was not made: this process stood still "
                "for so long that what it needs may have been tidied up. Do it again."
            )
    except BaseException:
        _take_back(store, left)
        raise
    versions = versions_of(store, name)
    path = versions.path(number)
    try:
        # What fails here may have been committed all the same: nothing is taken back.
        store.create(path, document.to_bytes(path, store))
    except FileExistsError:
        _take_back(store, left)
        known = _made(store, name, number, origin)
        if known is None:
            raise StoreError(
                f"{path} in {store.url} was there, and was deleted just now."
            ) from None
        return known
    versions.remember(number)
    return Catalog(store, document, table)


def _made(store: Store, name: str, number: int, origin: Origin) -> Catalog | None:
    """Return the version of this number where it was made by this very action; None: it is free.

    Raises:
        CatalogConflictError: It was made by another one.
    """
    if not store.exists(versions_of(store, name).path(number)):
        return None
    try:
        there = Catalog.open(reference_of(name, number), store)
    except CatalogNotFoundError as error:
        raise CatalogConflictError(
            f"Version {number} of the catalog {name!r} was made and removed since version "
            f"{number - 1}, and nothing was changed: begin again from the newest."
        ) from error
    if there.document.origin.is_same(origin):
        return there
    raise CatalogConflictError(
        f"Version {number} of the catalog {name!r} was made meanwhile by "
        f"{shortened(there.document.told)}, and nothing was changed: begin again from the newest."
    )


def _hold_runs(
    store: Store,
    name: str,
    number: int,
    token: str,
    table: pa.Table,
    base: Catalog | None,
    left: list[str],
) -> tuple[DrawnRun, ...]:
    """Hold what the rows refer to in each run; add the paths of the holds to `left`."""
    before = {} if base is None else bundles_by_run(base.table)
    ledgers = {} if base is None else {run.run_id: run.ledgers for run in base.runs}
    drawn = []
    for run_id, bundles in sorted(bundles_by_run(table).items()):
        hold = Hold(
            run_id=run_id,
            name=hold_name(name, number, token),
            holder=reference_of(name, number),
            document=versions_of(store, name).path(number),
            token=token,
            files=needed_files([*bundles, *ledgers.get(run_id, ())]),
            created_at=datetime.now(UTC),
        )
        left.append(hold.path)
        if bundles <= before.get(run_id, set()):
            # The base holds them, as long as it is the newest version; else this one is not made.
            create_hold(store, hold)
        else:
            hold = take_hold(store, hold)
        described = [each for each in hold.files if not each.startswith(f"{BUNDLES}/")]
        drawn.append(DrawnRun(run_id=run_id, ledgers=tuple(described)))
    return tuple(drawn)


def _write_table(store: Store, path: str, table: pa.Table) -> TableDocument:
    # Its place in the catalog is bound by the version, which is signed.
    content = write_sealed(table, rows_per_group=ROWS_PER_GROUP)
    store.create(path, content)
    return TableDocument(
        path="/".join(path.split("/")[-2:]),
        rows=table.num_rows,
        size_bytes=len(content),
        sha256=sha256_of(content),
    )


def _clocks() -> tuple[float, float]:
    # The one stands still while the machine sleeps, and the other may be set back.
    return time.monotonic(), time.time()


def _take_back(store: Store, paths: list[str]) -> None:
    """Delete what was made for a version that is not made; what stays is garbage of others."""
    for path in paths:
        with contextlib.suppress(StoreError):
            store.delete(path)
