"""Parts of datasets to which no manifest refers: registrations that died."""

from partwise.datasets.dataset import Dataset, list_versions
from partwise.datasets.manifest import NOUN, PARTS, dataset_path
from partwise.datasets.registration import COMMITS
from partwise.errors import DatasetNotFoundError, RunBusyError
from partwise.store.lease import Lease, is_gone
from partwise.store.store import Store
from partwise.store.versions import check_name


def collect_dataset_garbage(store: Store, name: str, *, dry_run: bool) -> list[tuple[str, int]]:
    """Delete the parts of registrations that died before they were committed.

    Registrations at work are left alone. A damaged manifest is an error: nobody knows what it
    refers to. Returned are paths, relative to the store, and sizes in bytes.
    """
    check_name(name, NOUN)
    parts = dataset_path(name, PARTS)
    tokens = store.list_folder(parts)
    if not tokens and not list_versions(store, name):
        raise DatasetNotFoundError(f"There is no dataset {name!r} in {store.url}.")
    files: list[tuple[str, int]] = []
    used = _used_tokens(store, name)
    for token in tokens:
        if token in used:
            continue
        folder = f"{parts}/{token}"
        try:
            lease = Lease.acquire(store, folder)
        except RunBusyError:
            continue
        with lease:
            # Closed before the manifests are looked at: whoever had not announced to commit by now
            # never will. Who had, may still be about to, unless its process is known to be gone.
            announced = {step for _, step in lease.earlier_steps()}
            is_committing = COMMITS in announced and not is_gone(store, folder)
            # It may have been committed, and its lease given back, a moment ago.
            if is_committing or token in _used_tokens(store, name):
                continue
            paths = [path for path in store.list(f"{folder}/") if f"{folder}/lease/" not in path]
            files += [(path, store.size(path)) for path in paths]
        if not dry_run:
            store.delete_folder(folder)
    return files


def _used_tokens(store: Store, name: str) -> set[str]:
    """The folders of parts to which manifests refer."""
    return {
        part.path.split("/")[1]
        for version in list_versions(store, name)
        for part in Dataset.open(name, version, store).manifest.parts
    }
