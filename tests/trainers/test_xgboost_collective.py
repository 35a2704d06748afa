"""XGBoost's ranks find each other or end in time, whoever else connects to their ports."""

import queue
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from partwise.errors import PeerLostError
from partwise.gangs.driver import run_gang
from partwise.gangs.errors import GangFailedError
from partwise.ranks.context import RankContext
from partwise.trainers.ranks import xgboost_collective
from partwise.trainers.ranks.xgboost_collective import connected
from tests.gangs.gang_maker import make_gang
from tests.gangs.local_ranks import ranks_that_have, run_ranks
from tests.strangers import STRANGERS, strangers_at
from tests.strangers_everywhere import strangers_everywhere

STUCK_S = 1.0


@pytest.fixture(scope="module", autouse=True)
def forked_with_xgboost() -> Iterator[None]:
    """Have all ranks of this file forked from one process that has loaded XGBoost."""
    with ranks_that_have("xgboost.collective", "xgboost.tracker", __name__):
        yield


def sum_of_ranks(context: RankContext) -> float:
    import numpy as np
    from xgboost import collective

    return float(collective.allreduce(np.array([context.rank + 1.0]), collective.Op.SUM)[0])


@contextmanager
def visited_tracker(kind: str) -> Iterator[None]:
    """Have a stranger connected to the tracker before any rank is."""
    from xgboost.tracker import RabitTracker

    start: Any = RabitTracker.start
    with ExitStack() as visits, pytest.MonkeyPatch.context() as patch:

        def start_and_be_visited(tracker: Any) -> None:
            start(tracker)
            port = int(tracker.worker_args()["dmlc_tracker_port"])
            visits.enter_context(strangers_at(("127.0.0.1", port), kind))

        patch.setattr(RabitTracker, "start", start_and_be_visited)
        yield


def meet_strangers(context: RankContext) -> dict[tuple[str, bool], tuple[float, float]]:
    """Return the sum, and how long the ranks took to find each other, for each kind of strangers.

    They come to the tracker before ranks do, or to all ports when ranks are connected.
    """
    xgboost_collective.STUCK_S, xgboost_collective.CONNECT_S = STUCK_S, 30.0
    before = xgboost_collective._listening()
    found = {}
    for kind, come_first in product(STRANGERS, (True, False)):
        context.barrier()
        began = time.monotonic()
        with ExitStack() as visits:
            if come_first:
                visits.enter_context(visited_tracker(kind))
            with connected(context):
                took_s = time.monotonic() - began
                context.barrier()
                if not come_first:
                    # At the tracker, and where ranks hear of errors of others.
                    for port in xgboost_collective._listening() - before:
                        visits.enter_context(strangers_at(("127.0.0.1", port), kind))
                found[kind, come_first] = sum_of_ranks(context), took_s
    return found


@pytest.mark.slow
def test_strangers_are_shown_out() -> None:
    first, second = run_ranks(2, meet_strangers)
    assert {total for found in (first, second) for total, _ in found.values()} == {3.0}
    assert len(first) == len(second) == 2 * len(STRANGERS)
    # It was in the way, as XGBoost itself does not notice that this is none of its ranks.
    assert first["silent", True][1] > STUCK_S


def wait_in_vain(context: RankContext) -> str:
    xgboost_collective.CONNECT_S = 1.0
    if context.rank == 1:
        context.all_gather(b"")
        return ""
    with pytest.raises(PeerLostError) as caught, connected(context):
        pass
    return str(caught.value)


@pytest.mark.slow
def test_ranks_that_are_kept_apart_end_in_time_and_say_why() -> None:
    said, _ = run_ranks(2, wait_in_vain)
    assert said.startswith("Rank 0 was not connected with the others by XGBoost within 1 s.")
    assert "somebody else has connected to the ports that XGBoost opened at 127.0.0.1" in said


def be_answered_by_a_stranger(context: RankContext) -> str:
    from xgboost import collective

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collective, "allreduce", lambda data, op: data * 3)
        with pytest.raises(PeerLostError) as caught, connected(context):
            raise AssertionError("the training began")
    return str(caught.value)


@pytest.mark.slow
def test_who_took_the_place_of_a_rank_is_found_before_the_training() -> None:
    for rank, said in enumerate(run_ranks(2, be_answered_by_a_stranger)):
        assert said.startswith(f"Rank {rank} was not connected with the others by XGBoost.")


def fail_alone(context: RankContext) -> str:
    """Return why there is no connection: one rank fails once the ranks have found each other."""
    from xgboost import collective
    from xgboost.core import XGBoostError

    def fail(*_: object) -> None:
        raise XGBoostError("this rank has failed")

    xgboost_collective.CONNECT_S = 3.0
    with pytest.MonkeyPatch.context() as patch:
        if context.rank == context.params["who"]:
            patch.setattr(collective, "allreduce", fail)
        with pytest.raises(PeerLostError) as caught, connected(context):
            raise AssertionError("the training began")
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_nobody_waits_for_a_rank_that_fails_as_the_ranks_connect(who: int) -> None:
    """Its process goes on, and would keep its connections open."""
    for rank, said in enumerate(run_ranks(2, fail_alone, params={"who": who})):
        assert said.startswith(f"Rank {rank} was not connected with the others by XGBoost")


def wait_for_itself(context: RankContext) -> None:
    """Train on ranks that are never connected, nor told so by XGBoost."""
    from xgboost import collective

    xgboost_collective.STUCK_S, xgboost_collective.CONNECT_S = STUCK_S, 1.0
    collective.CommunicatorContext.__enter__ = lambda _: threading.Event().wait()
    with connected(context):
        raise AssertionError("the training began")


@pytest.mark.slow
def test_ranks_that_xgboost_holds_for_ever_end_and_their_gang_says_why(
    dask_client: Client, tmp_path: Path
) -> None:
    with pytest.raises(GangFailedError) as caught:
        run_gang(dask_client, make_gang(dask_client, tmp_path, wait_for_itself, ranks=2))
    said = str(caught.value)
    assert "Its process ended: exit status 1" in said
    assert re.search(r"Rank \d was not connected with the others by XGBoost within 1 s\.", said)


def meet_strangers_at_a_rank(context: RankContext) -> str:
    """Return the sum, or why there is none, also where XGBoost goes on waiting for its own thread.

    In place of the end of its process, by which the gang would know why, there is the text.
    """
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xgboost_collective, "_end_process", said.put)
        work = threading.Thread(target=lambda: said.put(be_visited(context)), daemon=True)
        work.start()
        return said.get()


def be_visited(context: RankContext) -> str:
    """Return the sum, or why there is none; strangers come to rank 1 before rank 0 does."""
    from xgboost import collective

    xgboost_collective.STUCK_S, xgboost_collective.CONNECT_S = STUCK_S, 5.0
    join: Any = collective.CommunicatorContext.__enter__

    def join_late(communicator: Any) -> Any:
        if context.rank == 0:
            time.sleep(0.5)
        return join(communicator)

    kinds = tuple(context.params["kinds"]) if context.rank == 1 else ()
    with pytest.MonkeyPatch.context() as patch, strangers_everywhere(kinds):
        patch.setattr(collective.CommunicatorContext, "__enter__", join_late)
        try:
            with connected(context):
                return str(sum_of_ranks(context))
        except PeerLostError as error:
            return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent", "talking"])
def test_ranks_one_of_which_took_a_stranger_for_another_end_in_time(kind: str) -> None:
    for said in run_ranks(2, meet_strangers_at_a_rank, params={"kinds": [kind]}):
        assert re.match(r"Rank \d was not connected with the others by XGBoost", said)
