"""Keys on their way to workers: by a worker plugin, so never in a task or on disk."""

from collections.abc import Mapping

from distributed import Worker, WorkerPlugin

from partwise.sources.files.remote_files import set_source_credentials
from partwise.store.store import set_credentials


class StoreCredentials(WorkerPlugin):
    """Gives every worker, also one that comes later, the keys of a store."""

    idempotent = True

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.name = f"partwise-store-{url}"
        self._url = url
        self._options = dict(options)

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 (Dask's protocol)
        """Keep the keys in the worker's process."""
        set_credentials(self._url, self._options)

    def __repr__(self) -> str:
        return f"StoreCredentials({self._url!r})"


class SourceCredentials(WorkerPlugin):
    """Gives every worker, also one that comes later, the keys of a bucket with rows."""

    idempotent = True

    def __init__(self, bucket: str, options: Mapping[str, str]) -> None:
        self.name = f"partwise-source-{bucket}"
        self._bucket = bucket
        self._options = dict(options)

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 (Dask's protocol)
        """Keep the keys in the worker's process."""
        set_source_credentials(self._bucket, self._options)

    def __repr__(self) -> str:
        return f"SourceCredentials({self._bucket!r})"
