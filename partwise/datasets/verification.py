"""Looking at all of a dataset: whether each manifest and part is there, and as it was written."""

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.datasets.dataset import Dataset
from partwise.datasets.manifest import versions_of
from partwise.datasets.rows import StoredPart
from partwise.formatting import counted
from partwise.store.store import Store
from partwise.store.versions import VersionsVerification

_THREADS = 4
"""Parts looked at at once: each is in memory, and has up to 128 MB."""


def verify_dataset(name: str, store: Store, version: int | None = None) -> VersionsVerification:
    """Read manifests and parts of a dataset, and compare them with every checksum that there is."""
    found = VersionsVerification(name=name)
    versions = versions_of(store, name)
    numbers = versions.there()
    if version is not None or not numbers:
        # One that is not there is refused by name.
        numbers = [Dataset.open(name, version, store).version]
    else:
        for number in versions.missing():
            what = "is gone, and later versions are there; restore it from a backup."
            found.damages.append(f"{versions.path(number)} {what}")
        with found.noted():
            # The newest that is there may be older than the newest that was seen.
            versions.read(None)
    for number in numbers:
        found.files += 1
        with found.noted(), ThreadPoolExecutor(_THREADS) as threads:
            parts = Dataset.open(name, number, store).open_rows().parts
            for size_bytes, wrong in threads.map(_look_at, parts):
                found.files += 1
                found.size_bytes += size_bytes
                found.damages += wrong
    return found


def _look_at(part: StoredPart) -> tuple[int, list[str]]:
    try:
        content = part.store.read(part.path)
    except FileNotFoundError:
        return 0, [str(part.error("is gone"))]
    expected = part.document
    if hashlib.sha256(content).hexdigest() != expected.sha256:
        return len(content), [str(part.error("was changed after it was registered"))]
    try:
        rows = pq.ParquetFile(io.BytesIO(content)).metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        return len(content), [str(part.error(f"cannot be read ({error})"))]
    if rows != expected.rows:
        wrong = part.error(f"has {counted(rows, 'row')}, and its manifest says {expected.rows:,}")
        return len(content), [str(wrong)]
    return len(content), []
