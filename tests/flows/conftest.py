"""What the tests of flows share."""

from collections.abc import Iterator
from importlib import import_module

import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.driver import plan


@pytest.fixture(scope="session")
def cluster(dask_client) -> RemoteCluster:
    """The session's two Dask workers."""
    return RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=True)


@pytest.fixture(scope="module")
def single_shard() -> Iterator[None]:
    """Runs that name no number of shards have one, in files of many runs.

    One worker then starts one process, which takes a second or two to import all that it needs.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(plan, "default_n_shards", lambda *_: 1)
        yield


@pytest.fixture(autouse=True)
def logs_are_set_up(request: pytest.FixtureRequest) -> None:
    """Import what sets up Prefect's logs before a test: it takes away the handler of caplog."""
    if "caplog" in request.fixturenames:
        import_module("prefect.main")
