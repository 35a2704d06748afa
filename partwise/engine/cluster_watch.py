"""Whether a cluster is still there, for drivers that wait for its workers."""

import time

from distributed import Client

from partwise.errors import ClusterError

NO_WORKERS_S = 120.0
"""Without a worker for so long, a run gives up."""


class ClusterWatch:
    """Looks at a cluster now and then.

    Args:
        client: Connected to it.
        run_id: The run at work, for messages.
    """

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._last_worker = time.monotonic()

    def look(self) -> None:
        """Give up on a cluster that went away.

        Raises:
            ClusterError: It is gone, or has had no worker for two minutes.
        """
        if self._client.status != "running":
            raise ClusterError(
                f"The connection to the Dask scheduler is {self._client.status}; resume the run "
                f"{self._run_id!r} when the cluster is back."
            )
        now = time.monotonic()
        if self._client.scheduler_info().get("workers"):
            self._last_worker = now
        elif now - self._last_worker > NO_WORKERS_S:
            raise ClusterError(
                f"The Dask cluster has had no worker for {NO_WORKERS_S:.0f} s; resume the run "
                f"{self._run_id!r} when it has."
            )
