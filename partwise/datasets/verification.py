"""Looking at all of a dataset: whether each manifest and part is there, and as it was written."""

import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.datasets.dataset import Dataset, list_versions
from partwise.datasets.manifest import dataset_path, manifest_file
from partwise.datasets.rows import StoredPart
from partwise.errors import IntegrityError, NewerFormatError, RunFormatError, SignatureError
from partwise.store.store import Store

_THREADS = 4
"""Parts looked at at once: each is in memory, and has up to 128 MB."""


@dataclass(slots=True, kw_only=True)
class DatasetVerification:
    """What was looked at of a dataset, and a sentence for each damage."""

    name: str
    files: int = 0
    size_bytes: int = 0
    damages: list[str] = field(default_factory=list)


def verify_dataset(name: str, store: Store, version: int | None = None) -> DatasetVerification:
    """Read manifests and parts of a dataset, and compare them with every checksum that there is."""
    found = DatasetVerification(name=name)
    versions = list_versions(store, name)
    if version is not None or not versions:
        # One that is not there is refused by name.
        versions = [Dataset.open(name, version, store).version]
    elif missing := sorted(set(range(1, versions[-1] + 1)) - set(versions)):
        found.damages += [_gone(name, number) for number in missing]
    if version is None:
        try:
            # The newest that is there may be older than the newest that was seen.
            Dataset.open(name, None, store)
        except SignatureError as error:
            found.damages.append(" ".join(str(error).split()))
        except (RunFormatError, IntegrityError):
            pass  # Said below, of the version itself.
    for number in versions:
        found.files += 1
        try:
            parts = Dataset.open(name, number, store).open_rows().parts
        except NewerFormatError:
            raise
        except (RunFormatError, SignatureError, IntegrityError) as error:
            found.damages.append(" ".join(str(error).split()))
            continue
        with ThreadPoolExecutor(_THREADS) as threads:
            for size_bytes, wrong in threads.map(_look_at, parts):
                found.files += 1
                found.size_bytes += size_bytes
                found.damages += wrong
    return found


def _gone(name: str, number: int) -> str:
    path = dataset_path(name, manifest_file(number))
    return f"{path} is gone, and later versions are there; restore it from a backup."


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
        wrong = part.error(f"has {rows:,} rows, and its manifest says {expected.rows:,}")
        return len(content), [str(wrong)]
    return len(content), []
