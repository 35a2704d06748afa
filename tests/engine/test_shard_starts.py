"""On which workers the driver has a shard begun again."""

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, get_worker

from partwise.cluster_calls import await_reconnection
from partwise.engine.assignment import ShardProgress, ShardReceipt
from partwise.engine.driver import shards
from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.engine.options import ExecutionOptions
from partwise.engine.reporter import BEAT_S
from partwise.engine.worker import shard_run, tasks
from partwise.errors import StoreError
from tests.own_cluster import wait_for
from tests.tcp_proxy import tcp_proxy

SHARDS = 4
TRIED: dict[int, list[str]] = {number: [] for number in range(SHARDS)}


def run(assignment: Any) -> ShardReceipt:
    """Fail on two workers, as if they were cut off from the store."""
    worker, number = get_worker(), assignment.number
    TRIED[number].append(worker.address)
    execution = str(len(TRIED[number]))
    news = ShardProgress(shard=number, execution=execution, worker=worker.address)
    worker.log_event("token", news.to_message())
    if len(set(TRIED[number])) < 3:
        raise StoreError("The store is out of this worker's reach.")
    counts = {"DONE": 1}
    return ShardReceipt(shard=number, partitions=1, counts=counts, kept=0, seconds=0, complete=True)


def test_a_shard_is_begun_again_where_it_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "run_shard", run)
    options = ExecutionOptions(max_shard_starts=3)
    execution: Any = SimpleNamespace(token="token", options=options)
    assignments: list[Any] = [
        SimpleNamespace(number=number, execution=execution, shard=SimpleNamespace(size_bytes=1))
        for number in TRIED
    ]
    here: dict[str, Any] = {"n_workers": 3, "threads_per_worker": 1, "processes": False}
    with (
        Client(dashboard_address=":0", **here) as client,
        ClusterWatch(client, "run") as watch,
        shards.Driver(client, execution, assignments, SHARDS, watch) as driver,
    ):
        receipts = driver.run_shards(driver.order, logging.getLogger(__name__))
    assert len(receipts) == SHARDS, TRIED
    assert driver.lost == {}


def test_progress_is_heard_of_though_the_wish_for_it_was_lost(monkeypatch, dask_client) -> None:
    """As it is where it is sent just before a connection is closed."""

    def report(assignment: Any) -> ShardReceipt:
        counts = {"DONE": 1}
        news = ShardProgress(shard=assignment.number, execution="e", counts=counts)
        get_worker().log_event("lost-wish", news.to_message())
        return ShardReceipt(
            shard=assignment.number, partitions=1, counts=counts, kept=0, seconds=0, complete=True
        )

    monkeypatch.setattr(shards, "run_shard", report)
    execution: Any = SimpleNamespace(token="lost-wish", options=ExecutionOptions())
    shard: Any = SimpleNamespace(number=0, shard=SimpleNamespace(size_bytes=1))
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        Client(proxy.address, set_as_default=False) as client,
        ClusterWatch(client, "run") as watch,
    ):
        driver = shards.Driver(client, execution, [shard], 1, watch)
        proxy.loses = True
        with driver:
            # Dask sends what there is each 10 ms.
            time.sleep(0.2)
            proxy.close()
            wait_for(lambda: client.status != "running", "it is not cut off")
            proxy.listen()
            await_reconnection(client)
            assert driver.run_shards([0], logging.getLogger(__name__))
    assert driver.progress.finished == 1


class Watch:
    """A watch with the clock of a test, which notes whose work others are to take over."""

    def __init__(self) -> None:
        self.now = 0.0
        self.let_go_of: list[str] = []
        self.replaced: set[str] = set()

    def clock(self) -> float:
        return self.now

    def let_go(self, address: str, silent_s: float) -> None:
        self.let_go_of.append(address)

    def is_another(self, address: str, since: float) -> bool:
        return address in self.replaced


def test_a_shard_whose_heartbeats_end_is_taken_over_though_its_worker_is_heard_of() -> None:
    """As where its thread hangs in the kernel."""
    options = ExecutionOptions(silence_s=10.0)
    execution: Any = SimpleNamespace(token="token", options=options)
    assignments: list[Any] = [
        SimpleNamespace(number=number, shard=SimpleNamespace(size_bytes=1)) for number in (0, 1)
    ]
    watch: Any = Watch()
    failed: Any = SimpleNamespace(result=lambda timeout: 1 / 0)
    driver = shards.Driver(Any, execution, assignments, 2, watch)

    def hear_of(number: int) -> None:
        news = ShardProgress(shard=number, execution="e", worker=f"tcp://{number}")
        driver._on_event((0, news.to_message()))

    hear_of(0)
    hear_of(1)
    watch.now = 10.0
    hear_of(0)
    driver._look_for_silence((0, 1))
    assert watch.let_go_of == []
    watch.now = 10.0 + BEAT_S + 1
    driver._look_for_silence((0, 1))
    driver._look_for_silence((0, 1))
    assert watch.let_go_of == ["tcp://1"]
    # A worker that died and was begun again at its address has nothing to do with it.
    hear_of(1)
    watch.now *= 2
    hear_of(0)
    watch.replaced = {"tcp://1"}
    driver._look_for_silence((0, 1))
    assert watch.let_go_of == ["tcp://1"]
    # Of one that waits to be begun again nothing is heard: its worker has others to do.
    hear_of(0)
    driver._receive(failed, 0, logging.getLogger(__name__))
    watch.now *= 3
    driver._look_for_silence((0, 1))
    assert watch.let_go_of == ["tcp://1"]


def test_a_task_that_begins_as_the_last_one_tidies_up_keeps_its_files(monkeypatch) -> None:
    order: list[str] = []
    threads: list[threading.Thread] = []

    def begin() -> None:
        with tasks.task_of("token", end):
            order.append("the next one has begun")

    def end(*_: Any) -> None:
        threads.append(threading.Thread(target=begin))
        threads[0].start()
        threads[0].join(0.2)
        order.append("the files are gone")

    is_gone = [lambda: False, lambda: True]
    monkeypatch.setattr(tasks, "this_worker", lambda: None)
    monkeypatch.setattr(tasks, "watch_own_task", is_gone.pop)
    with tasks.task_of("token", end):
        pass
    threads[0].join()
    assert order == ["the files are gone", "the next one has begun"]


def test_an_execution_that_has_had_no_task_here_for_minutes_is_forgotten(monkeypatch) -> None:
    """As where its driver was killed while this worker had nothing to do."""
    ended: list[str] = []

    def end(token: str, worker: Any) -> None:
        ended.append(token)

    monkeypatch.setattr(tasks, "this_worker", lambda: None)
    monkeypatch.setattr(tasks, "watch_own_task", lambda: lambda: False)
    monkeypatch.setattr(tasks, "IDLE_S", 0.2)
    with tasks.task_of("busy", end), tasks.task_of("idle", end):
        pass
    # One that is asked for work again is not idle, nor is one at work, however long that takes.
    with tasks.task_of("busy", end):
        wait_for(lambda: ended, "it is never forgotten", timeout_s=10)
        time.sleep(0.3)
        assert ended == ["idle"]
    wait_for(lambda: ended == ["idle", "busy"], "it is not forgotten later", timeout_s=10)
    assert not tasks._at_work


def test_a_worker_keeps_no_ledger_of_a_run_that_an_execution_has_read(
    monkeypatch, tmp_path, local_store
) -> None:
    """A worker that stays would hold those of the last eight."""
    monkeypatch.setattr(shard_run.Run, "open", lambda *_, **__: object())
    worker: Any = SimpleNamespace(local_directory=str(tmp_path))
    shard_run.open_run(local_store, "trained", None, "token")
    assert shard_run.open_run.cache_info().currsize
    tasks.end_execution("token", worker)
    assert not shard_run.open_run.cache_info().currsize
