"""What the tests of flows share."""

import pytest

from partwise.blocks import RemoteCluster


@pytest.fixture(scope="session")
def cluster(prefect_server: str, dask_client) -> RemoteCluster:
    """The session's two Dask workers, and a Prefect server to tell of the runs."""
    return RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=True)
