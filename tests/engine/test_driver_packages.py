"""Environments that the machines of a cluster are asked to build."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from distributed.comm import CommClosedError

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


@pytest.mark.parametrize("told", [True, False], ids=["told", "seen"])
def test_a_worker_that_goes_away_meanwhile_is_not_waited_for(
    dask_client, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """As where a cluster scales down: it counts as idle, since it builds beside its tasks."""

    async def run(function: Any, resolved: Any, workers: list[str], **_: Any) -> dict[str, Any]:
        if workers == ["well"]:
            return {"well": None}
        await asyncio.sleep(0 if told else 3600)
        return {"gone": CommClosedError("in <TCP (closed) Scheduler Broadcast>")}

    found = [SimpleNamespace(host=name, address=name) for name in ("well", "gone")]
    monkeypatch.setattr(packages, "cluster_workers", lambda _: found)
    client: Any = SimpleNamespace(run=run, loop=dask_client.loop, status="running")
    watch: Any = SimpleNamespace(
        look=lambda: None,
        workers=dict,
        has_lost=lambda address, since: address == "gone" and not told,
    )
    resolved = ResolvedEnvironment(name="ours", python="3.13", platform="linux")
    packages.build_on_workers(client, resolved, watch)
