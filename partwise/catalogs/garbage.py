"""Old versions of catalogs, and tables of commits that died."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import (
    NOUN,
    TABLES,
    VersionDocument,
    catalog_path,
    hold_name,
    versions_of,
)
from partwise.errors import CatalogNotFoundError, InputError
from partwise.runs.documents import run_path
from partwise.runs.holds import HELD, UNUSED_FOR
from partwise.store.store import Store, is_path
from partwise.store.versions import check_name


def collect_catalog_garbage(
    store: Store, name: str, *, keep: int, older_than: timedelta, dry_run: bool
) -> list[tuple[str, int]]:
    """Remove versions of a catalog but the newest, and what commits left behind that died.

    What a removed version alone drew on, the next collection of its runs deletes. Its document
    stays and tells who made it; its number is never given again. The newest `keep` stay in any
    case; of the others those go that were made longer ago than `older_than`. Returned is what was
    deleted, or in a dry run would be: paths, relative to the store, and sizes in bytes.
    """
    check_name(name, NOUN)
    if keep < 1:
        raise InputError(f"keep is {keep}; the newest version stays, so it must be 1 or more.")
    versions = versions_of(store, name)
    there = versions.there()
    files = filter(is_path, store.list_folder(catalog_path(name, TABLES)))
    tables = {f"{TABLES}/{file}" for file in files}
    if not there and not tables:
        raise CatalogNotFoundError(versions.why_not_found(None))
    now = datetime.now(UTC)
    # A damaged document is an error: nobody knows what it refers to.
    documents = {number: Catalog.open(f"{name}@{number}", store).document for number in there}
    going = [each for number, each in documents.items() if number not in there[-keep:]]
    going = [each for each in going if now - each.created_at > older_than]
    used = {each.table.path for each in documents.values()}
    # Those that were removed, and whose collection did not come to its end.
    for number in versions.removed():
        path = versions.path(number)
        document = VersionDocument.from_bytes(versions.read(number)[1], path)
        used.add(document.table.path)
        if document.table.path in tables:
            going.append(document)
    found = []
    for document in going:
        if not dry_run:
            versions.remove(document.version)
        # The table last: by it a collection that begins anew finds what one left that died.
        for path in (*_holds(document), catalog_path(name, document.table.path)):
            found += _deleted(store, path, dry_run)
    for table in sorted(tables - used):
        path = catalog_path(name, table)
        if _is_old(store, path, now):
            found += _deleted(store, path, dry_run)
    return found


def _holds(document: VersionDocument) -> Iterator[str]:
    hold = hold_name(document.name, document.version, document.token)
    for run in document.runs:
        yield run_path(run.run_id, HELD, f"{hold}.json")


def _deleted(store: Store, path: str, dry_run: bool) -> list[tuple[str, int]]:
    try:
        size_bytes = store.size(path)
    except FileNotFoundError:
        return []
    if not dry_run:
        store.delete(path)
    return [(path, size_bytes)]


def _is_old(store: Store, path: str, now: datetime) -> bool:
    """Whether the commit that wrote a table cannot come to its end any more."""
    try:
        return now - store.modified(path) > UNUSED_FOR
    except FileNotFoundError:
        return False
