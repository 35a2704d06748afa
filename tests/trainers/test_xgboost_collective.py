"""XGBoost's ranks find each other, whoever else connects to their ports."""

import time
from typing import Any

import pytest

from partwise.connector.rank_context import RankContext
from partwise.trainers import xgboost_collective
from partwise.trainers.xgboost_collective import connected
from tests.gangs.local_ranks import run_ranks
from tests.strangers import strangers_at

STUCK_S = 1.0


def sum_of_ranks(context: RankContext) -> float:
    import numpy as np
    from xgboost import collective

    with connected(context):
        return float(collective.allreduce(np.array([context.rank + 1.0]), collective.Op.SUM)[0])


def meet_a_stranger(context: RankContext) -> tuple[float, float]:
    xgboost_collective.STUCK_S = STUCK_S
    if context.rank > 0:
        return sum_of_ranks(context), 0.0
    from xgboost.tracker import RabitTracker

    start: Any = RabitTracker.start
    kind = context.hyperparameters["kind"]
    with pytest.MonkeyPatch.context() as patch:
        visits = []

        def start_and_be_visited(tracker: Any) -> None:
            start(tracker)
            port = int(tracker.worker_args()["dmlc_tracker_port"])
            visit = strangers_at(("127.0.0.1", port), kind)
            visit.__enter__()
            visits.append(visit)

        patch.setattr(RabitTracker, "start", start_and_be_visited)
        began = time.monotonic()
        try:
            return sum_of_ranks(context), time.monotonic() - began
        finally:
            visits[0].__exit__(None, None, None)


@pytest.mark.parametrize("kind", ["silent", "talking"])
def test_a_stranger_at_the_tracker_is_shown_out(kind):
    (first, seconds), (second, _) = run_ranks(2, meet_a_stranger, hyperparameters={"kind": kind})
    assert first == second == 3.0
    # It was in the way, where XGBoost itself does not notice that this is none of its ranks.
    assert (seconds > STUCK_S) == (kind == "silent")
