"""Keys on their way to workers: by a worker plugin, so never in a task or on disk."""

from collections.abc import Mapping

from distributed import Worker, WorkerPlugin

from partwise.store.credentials import set_credentials
from partwise.store.signing import set_signing_keys
from partwise.store.store import Store


class Credentials(WorkerPlugin):
    """Gives every worker, also one that comes later, the keys of a store or bucket.

    Registering it again replaces the keys of this URL: a cluster may live longer than its keys.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.name = f"partwise-credentials-{url}"
        self._url = url
        self._options = dict(options)

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 (Dask's protocol)
        """Keep the keys in the worker's process."""
        set_credentials(self._url, self._options)

    def __repr__(self) -> str:
        return f"Credentials({self._url!r})"


class SigningKeys(WorkerPlugin):
    """Gives every worker, also one that comes later, the keys that sign what a store holds.

    Registering it again replaces them. Whether a run is signed at all, its tasks say: keys of an
    earlier run on the same cluster are neither used by one without nor asked of what it reads
    (`keys_of_blocks`).
    """

    def __init__(self, store: Store, keys: str) -> None:
        self.name = f"partwise-signing-keys-{store.endpoint_url or ''}-{store.url}"
        self._store = store
        self._keys = keys

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 (Dask's protocol)
        """Keep the keys in the worker's process."""
        set_signing_keys(self._store, self._keys)

    def __repr__(self) -> str:
        return f"SigningKeys({self._store.url!r})"
