"""Calls to a cluster end in time, with a worker or the scheduler stopped."""

import os
import signal
import threading

import distributed
import pytest

from partwise.cluster_calls import ask_workers, in_time, known_workers
from partwise.errors import ClusterError
from tests.own_cluster import own_cluster, wait_for


def test_a_call_that_never_ends_is_left_to_itself() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        in_time(0.05, threading.Event().wait)


def test_a_call_that_ends_gives_what_it_returns_or_raises() -> None:
    assert in_time(5, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        in_time(5, divmod, 7, 0)


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
