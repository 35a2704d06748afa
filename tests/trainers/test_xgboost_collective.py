"""XGBoost's ranks find each other or end in time, whoever else connects to their ports."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import pytest

from partwise.errors import PeerLostError
from partwise.ranks.context import RankContext
from partwise.trainers.ranks import xgboost_collective
from partwise.trainers.ranks.xgboost_collective import connected
from tests.gangs.local_ranks import run_ranks
from tests.strangers import STRANGERS, strangers_at
from tests.strangers_everywhere import strangers_everywhere

STUCK_S = 1.0


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


def meet_strangers_at_a_rank(context: RankContext) -> str:
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
