"""When a worker counts as silent: a clock that stands still while nobody could be heard."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from partwise.engine.driver import cluster_watch
from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.engine.scaling import own_version
from partwise.errors import ClusterError
from tests.own_cluster import wait_for

HEARD_S = 0.01


class Client:
    """A client whose scheduler says what a test wants, and notes which workers are let go."""

    def __init__(self) -> None:
        self.status = "running"
        self.scheduler_comm = object()
        self.seen = {"a": 0.0, "b": 0.0}
        self.folders: dict[str, str] = {}
        self.id = "Scheduler-1"
        self.stopped: set[str] = set()
        self.restarted: list[str] = []
        self.hangs = False
        self.slow_s = 0.0
        self.failing_restarts = 0
        self.scheduler = SimpleNamespace(identity="identity", restart_workers="restart")

    def sync(self, what, callback_timeout, **arguments):
        if self.hangs:
            time.sleep(HEARD_S)
            raise TimeoutError
        time.sleep(self.slow_s)
        if what == "restart" and self.failing_restarts:
            self.failing_restarts -= 1
            raise OSError
        if what == "restart":
            self.restarted += arguments["workers"]
            for address in arguments["workers"]:
                self.seen.pop(address)
            return {}
        for address in self.seen.keys() - self.stopped:
            self.seen[address] += 1
        workers = {
            each: {"last_seen": seen, "local_directory": self.folders.get(each, "")}
            for each, seen in self.seen.items()
        }
        return {"id": self.id, "workers": workers}


@pytest.fixture
def client(monkeypatch) -> Client:
    monkeypatch.setattr(cluster_watch, "LOOK_S", HEARD_S)
    monkeypatch.setattr(cluster_watch, "_LARGEST_STEP_S", 4 * HEARD_S)
    return Client()


def test_a_silent_worker_is_let_go_once_and_others_are_not(client, caplog) -> None:
    with ClusterWatch(client, "run", silence_s=0.1) as watch:
        client.stopped.add("a")
        wait_for(lambda: client.restarted, "it is let go", timeout_s=10)
        time.sleep(0.2)
        assert client.restarted == ["a"]
        assert list(watch.workers()) == ["b"]
    assert "Run run: nothing is heard of the worker a for 0." in caplog.text


def test_nobody_is_silent_while_this_process_or_the_scheduler_stood_still(client) -> None:
    with ClusterWatch(client, "run", silence_s=0.1) as watch:
        wait_for(lambda: watch.clock() > 0, "it looks")
        client.hangs = True
        time.sleep(0.4)
        before = watch.clock()
        client.hangs = False
        wait_for(lambda: watch.clock() > before, "it looks again")
        assert watch.clock() - before < 0.4
        watch.look()
    assert not client.restarted


def test_an_answer_that_takes_long_makes_nobody_silent(client) -> None:
    """As where this process, or the scheduler, was stopped meanwhile."""
    with ClusterWatch(client, "run", silence_s=0.2) as watch:
        client.stopped.add("a")
        client.slow_s = 0.3
        before, slow = watch.clock(), client.seen["b"]
        wait_for(lambda: client.seen["b"] > slow + 1, "it looks")
        client.slow_s = 0.0
        assert watch.clock() - before < 0.2
        assert not client.restarted


def test_a_scheduler_s_clock_that_goes_back_makes_nobody_silent(client) -> None:
    with ClusterWatch(client, "run", silence_s=0.1) as watch:
        wait_for(lambda: watch.clock() > 0, "it looks")
        client.seen = dict.fromkeys(client.seen, -3600.0)
        before = watch.clock()
        wait_for(lambda: watch.clock() > before + 0.2, "it looks for longer")
        assert not client.restarted


def test_a_worker_that_could_not_be_let_go_is_let_go_later(client) -> None:
    client.failing_restarts = 1
    with ClusterWatch(client, "run", silence_s=0.1):
        client.stopped.add("a")
        wait_for(lambda: client.restarted == ["a"], "it is let go", timeout_s=10)
    assert not client.failing_restarts


def test_a_worker_that_has_just_come_is_not_lost_before_the_next_look(client, monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.5)
    with ClusterWatch(client, "run") as watch:
        client.seen["c"] = 1.0
        since = time.monotonic()
        assert not watch.workers().get("c")
        assert not watch.has_lost("c", since)
        wait_for(lambda: watch.workers().keys() == {"a", "b", "c"}, "it is seen")
        del client.seen["c"]
        wait_for(lambda: watch.has_lost("c", since), "it is missed")
        assert not watch.has_lost("a", since)


def test_a_worker_is_lost_though_another_has_its_address(client) -> None:
    """As a nanny begins one again, of which the port is set."""
    client.folders = {"a": "worker-1", "b": "worker-2"}
    with ClusterWatch(client, "run") as watch:
        since = time.monotonic()
        client.folders["a"] = "worker-3"
        wait_for(lambda: watch.has_lost("a", since), "it is missed")
        assert watch.is_another("a", since)
        assert not watch.has_lost("b", since)
        # Who uses the new one now has not lost it.
        since = time.monotonic()
        time.sleep(5 * HEARD_S)
        assert not watch.has_lost("a", since)
        assert not watch.is_another("a", since)


def test_a_scheduler_that_does_not_answer_is_given_up(client, monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "SCHEDULER_S", 0.1)
    with ClusterWatch(client, "run") as watch:
        watch.look()
        client.hangs = True
        with pytest.raises(ClusterError, match="has not answered"):
            look_until(watch)


def test_a_scheduler_that_was_started_again_is_given_what_it_lacks(client, caplog) -> None:
    given: list[str] = []
    with ClusterWatch(client, "run") as watch:
        watch.give_keys = lambda: given.append(client.id)
        client.scheduler_comm = object()
        watch.look()
        assert not given, "the same one has all"
        client.id, client.scheduler_comm = "Scheduler-2", object()
        looking = [threading.Thread(target=watch.look) for _ in range(8)]
        for each in looking:
            each.start()
        for each in looking:
            each.join()
    assert given == ["Scheduler-2"]
    assert "Run run: the Dask scheduler was started again: what was lost with it" in caplog.text


def test_a_scheduler_that_ends_is_waited_for_longer_than_one_that_was_silent(client, monkeypatch):
    monkeypatch.setattr(cluster_watch, "RECONNECT_S", 0.3)
    monkeypatch.setattr(cluster_watch, "RESTART_S", 2.0)
    monkeypatch.setattr(cluster_watch, "SCHEDULER_S", 0.2)
    with ClusterWatch(client, "run") as watch:
        watch.look()
        client.status, client.hangs = "connecting", True
        time.sleep(0.6)
        # Though it has given no answer for as long as a silent one is waited for; nor after it.
        watch.look()
        client.status, client.hangs, client.scheduler_comm = "running", False, object()
        watch.look()
        client.status, client.hangs = "connecting", True
        time.sleep(2.2)
        with pytest.raises(ClusterError, match=r"is lost \(connecting\)"):
            watch.look()


def test_a_worker_that_comes_with_another_version_is_refused(client, monkeypatch) -> None:
    answers = {"c": "0.0.7", "d": own_version(), "e": OSError("it is gone again")}
    asked: list[str] = []

    def ask(_, function, workers):
        asked.extend(workers)
        return {each: answers[each] for each in workers}

    monkeypatch.setattr(cluster_watch, "ask_workers", ask)
    with ClusterWatch(client, "run") as watch:
        client.seen |= {"d": 0.0, "e": 0.0}
        wait_for(lambda: asked == ["d", "e"], "they are asked")
        watch.look()
        client.seen["c"] = 0.0
        with pytest.raises(ClusterError, match=r"worker c has partwise 0\.0\.7, and this process"):
            look_until(watch)
    # Each once, and those that were there before by who counts them.
    assert asked == ["d", "e", "c"]


def test_a_cluster_without_workers_is_given_up(client, monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "NO_WORKERS_S", 0.1)
    with ClusterWatch(client, "run") as watch:
        client.seen.clear()
        with pytest.raises(ClusterError, match=r"no worker .* resume the run 'run'"):
            look_until(watch)


def test_a_connection_that_is_lost_is_told_at_once(client) -> None:
    with ClusterWatch(client, "run") as watch:
        client.status = "closed"
        with pytest.raises(ClusterError, match=r"is lost \(closed\); resume the run 'run'"):
            watch.look()


def test_a_connection_that_is_closed_after_a_silence_may_come_back(client, monkeypatch) -> None:
    """As where a network is cut for 20 s, and closes what is left of it at the end."""
    monkeypatch.setattr(cluster_watch, "RECONNECT_S", 0.3)
    with ClusterWatch(client, "run") as watch:
        client.hangs = True
        for _ in range(5):
            time.sleep(0.1)
            watch.look()
        client.status = "connecting"
        watch.look()
        with pytest.raises(ClusterError, match=r"is lost \(connecting\)"):
            look_until(watch)


def test_a_closed_connection_is_waited_for_though_many_workers_are_seldom_looked_at(
    client, monkeypatch
) -> None:
    """Of 3,000 workers, the last look may be as long ago as a lost connection is waited for."""
    monkeypatch.setattr(cluster_watch, "LOOK_S", 60.0)
    monkeypatch.setattr(cluster_watch, "RECONNECT_S", 0.3)
    monkeypatch.setattr(cluster_watch, "RESTART_S", 0.3)
    with ClusterWatch(client, "run") as watch:
        time.sleep(0.4)
        watch.look()
        client.status = "connecting"
        watch.look()
        time.sleep(0.4)
        with pytest.raises(ClusterError, match=r"is lost \(connecting\)"):
            watch.look()


def test_a_scheduler_with_many_workers_is_asked_more_than_once(client, monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "SCHEDULER_S", 3.0)
    client.seen = dict.fromkeys(map(str, range(10_000)), 0.0)
    with ClusterWatch(client, "run"):
        asked = client.seen["0"]
        wait_for(lambda: client.seen["0"] > asked + 1, "it is asked", timeout_s=10)


def look_until(watch: ClusterWatch) -> None:
    with contextlib.suppress(AssertionError):
        wait_for(watch.look, "it gives up", timeout_s=10)
