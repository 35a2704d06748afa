"""Environments that the machines of a cluster are asked to build."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from distributed import Client

from partwise.engine.driver import packages
from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.environments.resolved_environment import ResolvedEnvironment
from tests.own_cluster import wait_for
from tests.tcp_proxy import tcp_proxy


def test_one_is_built_though_the_connection_is_closed_meanwhile(
    dask_client, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build(resolved: ResolvedEnvironment) -> None:
        (tmp_path / "begun").touch()
        while not (tmp_path / "go").exists():
            await asyncio.sleep(0.02)

    address = next(iter(dask_client.scheduler_info()["workers"]))
    found = [SimpleNamespace(host="here", address=address)]
    monkeypatch.setattr(packages, "cluster_workers", lambda _: found)
    monkeypatch.setattr(packages, "build_and_try", build)
    resolved = ResolvedEnvironment(name="ours", python="3.13", platform="linux")
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        Client(proxy.address, set_as_default=False) as client,
        ClusterWatch(client, "run") as watch,
        ThreadPoolExecutor(1) as executor,
    ):
        building = executor.submit(packages.build_on_workers, client, resolved, watch)
        wait_for((tmp_path / "begun").exists, "nothing is built")
        proxy.restart(0.2)
        (tmp_path / "go").touch()
        building.result()
