"""What tests of Snowflake's names share."""

import pytest

from partwise.blocks import RemoteCluster


@pytest.fixture
def shared_cluster(dask_client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs that name no cluster use that of the session: to start one takes a second."""
    cluster = RemoteCluster(address=dask_client.scheduler.address)
    monkeypatch.setattr("partwise.flows.running.connections.LocalCluster", lambda: cluster)
