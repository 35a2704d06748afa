"""Calls to a cluster end in time, with a worker or the scheduler stopped."""

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from distributed.broker import Broker
from distributed.comm import CommClosedError

from partwise.cluster_calls import (
    Ends,
    _forget,
    answer_of,
    ask_workers,
    await_reconnection,
    in_time,
    is_cut_off,
    known_workers,
    rejoin,
    result_of,
)
from partwise.errors import ClusterError
from partwise.gangs.node import gang_topic
from partwise.runs.documents import execution_token
from tests.own_cluster import own_cluster, wait_for
from tests.tcp_proxy import tcp_proxy


def test_a_call_that_never_ends_is_left_to_itself() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        in_time(0.05, threading.Event().wait)


def test_a_call_that_ends_gives_what_it_returns_or_raises() -> None:
    assert in_time(5, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        in_time(5, divmod, 7, 0)


def test_ends_are_handed_out_once_each_and_nothing_is_left_of_a_wait(dask_client) -> None:
    def wait_for_word(word: str) -> str:
        event = distributed.Event(word)
        assert event.wait(timeout=60)
        if word == "bad":
            raise ValueError(word)
        return word

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    ends: Ends[str] = Ends()
    # Two run, the others wait for their turn.
    words = ["bad", "good", "late", *(f"never {number}" for number in range(20))]
    futures = {word: dask_client.submit(wait_for_word, word, pure=False) for word in words}
    for future in futures.values():
        ends.follow(future)
    assert ends.next(0.05) == []
    before = dask_client.sync(tasks)
    for _ in range(10):
        assert ends.next(0.01) == []
    # Of each call `distributed.wait` would have left 23.
    assert dask_client.sync(tasks) < before + 20

    distributed.Event("bad").set()
    (failed,) = ends.next(60)
    assert failed is futures["bad"]
    with pytest.raises(ValueError, match="bad"):
        failed.result()
    distributed.Event("good").set()
    (good,) = ends.next(60)
    assert good.result() == "good"
    dask_client.cancel([futures[word] for word in words[3:]])
    cancelled = ends.next(60)
    while len(cancelled) < 20:
        cancelled += ends.next(60)
    assert set(cancelled) == {futures[word] for word in words[3:]}
    assert {future.status for future in cancelled} == {"cancelled"}
    distributed.Event("late").set()
    assert ends.next(60) == [futures["late"]]
    assert ends.next(0.01) == []


@pytest.mark.slow
def test_stopped_processes_keep_no_answer_back(tmp_path) -> None:
    with (
        own_cluster(tmp_path, workers=2, nanny=False) as cluster,
        distributed.Client(cluster.address, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        whole = ask_workers(client, os.getpid)
        assert len(whole) == 2
        stopped = cluster.workers()[0]
        stopped.suspend()
        answers = ask_workers(client, os.getpid, limit_s=1.0)
        assert set(answers.values()) == set(whole.values()) - {stopped.pid}
        stopped.resume()
        wait_for(lambda: len(ask_workers(client, os.getpid)) == 2, "it answers again")
        cluster.stop_scheduler()
        with pytest.raises(ClusterError, match="scheduler has not answered for 1 s"):
            known_workers(client, limit_s=1.0)
        with pytest.raises(ClusterError, match="scheduler has not answered for 1 s"):
            ask_workers(client, os.getpid, limit_s=1.0)
        os.kill(cluster.scheduler.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_scheduler_that_refuses_connections_for_seconds_is_found_again(
    dask_client, monkeypatch
) -> None:
    # Dask's pauses, which double, are as long as they can be: it tries after 2.55 and 5.11 s.
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        distributed.Client(proxy.address, set_as_default=False) as client,
    ):
        proxy.close()
        threading.Timer(3.0, proxy.listen).start()
        wait_for(lambda: client.status != "running", "it is not cut off")
        await_reconnection(client)
        assert client.status == "running"


def test_a_question_is_asked_again_when_the_connection_is_closed_on_its_way(
    dask_client, tmp_path
) -> None:
    def wait_for_word() -> int:
        (tmp_path / f"asked-{os.getpid()}").touch()
        while not (tmp_path / "word").exists():
            time.sleep(0.01)
        return os.getpid()

    workers = dask_client.run(os.getpid)
    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        distributed.Client(proxy.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        asking = executor.submit(ask_workers, client, wait_for_word)
        wait_for(lambda: len(list(tmp_path.iterdir())) == len(workers), "they are not asked")
        proxy.restart()
        (tmp_path / "word").touch()
        assert asking.result() == workers


def test_a_task_whose_result_is_on_its_way_when_the_connection_is_closed_is_cut_off(
    dask_client, tmp_path
) -> None:
    class Slow:
        def __reduce__(self) -> Any:
            (tmp_path / "sent").touch()
            while not (tmp_path / "word").exists():
                time.sleep(0.01)
            return int, ()

    with (
        tcp_proxy(dask_client.scheduler.address) as proxy,
        distributed.Client(proxy.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        future = client.submit(Slow, pure=False)
        distributed.wait(future)
        getting = executor.submit(result_of, future)
        wait_for((tmp_path / "sent").exists, "it is not sent")
        proxy.restart()
        (tmp_path / "word").touch()
        with pytest.raises(CancelledError, match="scheduler-connection-lost") as caught:
            getting.result()
        assert is_cut_off(caught.value)


def test_what_a_task_has_raised_is_no_lost_connection(dask_client) -> None:
    def fail() -> None:
        raise ConnectionResetError("of its own")

    future = dask_client.submit(fail, pure=False)
    with pytest.raises(ConnectionResetError, match="of its own"):
        result_of(future)


def test_what_is_asked_in_vain_twice_is_said_in_a_sentence() -> None:
    def ask() -> None:
        tries.append("ask")
        raise CommClosedError("in <TCP>")

    tries: list[str] = []
    client: Any = SimpleNamespace(status="running")
    with pytest.raises(ClusterError, match=r"was closed twice \(in <TCP>\): begin again when"):
        answer_of(client, ask)
    assert len(tries) == 2


def test_nobody_waits_for_a_scheduler_to_which_nothing_is_said_any_more() -> None:
    client: Any = SimpleNamespace(status="connecting")
    rejoin(client, lambda: None, lambda: True)


def test_a_scheduler_is_waited_for_until_a_look_gives_it_up() -> None:
    client: Any = SimpleNamespace(status="connecting")
    looks = iter((0, 0))
    with pytest.raises(StopIteration):
        rejoin(client, lambda: next(looks))
    looks = iter((0, 0))
    client.status = "running"
    rejoin(client, lambda: next(looks))
    assert len(list(looks)) == 1, "who is back is looked at, too"


def test_a_scheduler_forgets_the_topics_of_drivers_that_were_killed() -> None:
    scheduler: Any = SimpleNamespace(clients={"Client-here": None})
    broker = scheduler._broker = Broker(10, scheduler)
    now = time.time()

    def follow(client: str, token: str, heard_at: float) -> str:
        for topic in (token, gang_topic(token, 2)):
            broker.subscribe(topic, client)
            broker._topics[topic].publish((heard_at, {}))
        return token

    ended = follow("Client-here", execution_token(1, "00000000"), now)
    follow("Client-killed", execution_token(2, "12ab34cd"), now - 3600)
    kept = {
        # Of a driver that has lost its connection just now, of one at work, and of somebody else.
        follow("Client-cut-off", execution_token(3, "12ab34cd"), now),
        follow("Client-here", execution_token(4, "12ab34cd"), now - 3600),
        follow("Client-killed", "golden", now - 3600),
    }
    _forget(ended, scheduler)
    assert {name for name in broker._topics if "gang" not in name} == kept
    of_gangs = {gang_topic(token, 2) for token in (ended, *kept)}
    assert {name for name in broker._topics if "gang" in name} == of_gangs
