"""Looking at all of a catalog: versions, tables, holds, and every model that a version names."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import NOUN, hold_name, reference_of, versions_of
from partwise.catalogs.rows import artifacts_of
from partwise.runs.bundle import StoredArtifact, artifact_from_row
from partwise.runs.documents import run_path
from partwise.runs.holds import HELD, read_holds
from partwise.runs.verification import wrong_artifacts
from partwise.store.store import Store
from partwise.store.versions import VersionsVerification, parse_reference

_THREADS = 4
"""Bundles looked at at once: each is in memory, and may have 256 MB."""


def verify_catalog(reference: str, store: Store) -> VersionsVerification:
    """Read all of a catalog, or of one version of it, and compare it with every checksum."""
    name, version = parse_reference(reference, NOUN)
    found = VersionsVerification(name=name)
    versions = versions_of(store, name)
    numbers = versions.there()
    if version is not None or not numbers:
        # One that is not there is refused by name.
        numbers = [Catalog.open(reference, store).version]
    else:
        for number in versions.missing():
            found.damages.append(f"{versions.path(number)} is gone; restore it from a backup.")
        with found.noted():
            # The newest that is there may be older than the newest that was seen.
            versions.read(None)
    tables = [
        table for number in numbers if (table := _look_at(name, number, store, found)) is not None
    ]
    by_bundle: dict[str, list[tuple[str, StoredArtifact]]] = defaultdict(list)
    # What many versions name is looked at once.
    for row in artifacts_of(tables).to_pylist():
        run_id, owner = row.pop("run_id"), row.pop("owner")
        artifact = artifact_from_row(row)
        by_bundle[run_path(run_id, artifact.bundle)].append((owner, artifact))

    def check(path: str) -> tuple[int, list[str]]:
        try:
            content = store.read(path)
        except FileNotFoundError:
            return 0, [f"{path} is gone; restore it from a backup."]
        wrong = wrong_artifacts(content, by_bundle[path])
        return len(content), [f"{path}: {what}; restore it from a backup." for what in wrong]

    with ThreadPoolExecutor(_THREADS) as threads:
        for size_bytes, wrong in threads.map(check, sorted(by_bundle)):
            found.files += 1
            found.size_bytes += size_bytes
            found.damages += wrong
    return found


def _look_at(name: str, number: int, store: Store, found: VersionsVerification) -> pa.Table | None:
    """Look at a version, its table and its holds, and return the table if it is whole."""
    table = None
    with found.noted():
        catalog = Catalog.open(reference_of(name, number), store)
        found.files += 1
        hold = hold_name(name, number, catalog.document.token)
        for run in catalog.runs:
            with found.noted():
                if hold not in {each.name for each in read_holds(store, run.run_id).counting}:
                    found.damages.append(
                        f"{run_path(run.run_id, HELD, hold)}.json is gone, by which the run keeps "
                        f"what {catalog.reference} draws on; restore it from a backup, or make "
                        "another version, which has holds of its own."
                    )
        table = catalog.table
        found.files += 1
        found.size_bytes += catalog.document.table.size_bytes
    return table
