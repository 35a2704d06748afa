"""Which run of a store is the newest: by what was worked on, not by when one last looked."""

from datetime import UTC, datetime

import pytest

from partwise.outcomes import CANCELLED
from partwise.runs.completion import settle_unchanged
from partwise.runs.earlier_runs import earlier_runs, last_work, newest_runs
from partwise.store.store import Store
from tests.run_maker import RunMaker

PARTITIONS = [("a", "DONE", 1.0), ("b", "DONE", 1.0)]


def resumed(maker: RunMaker, how: str) -> None:
    """A resume that has nothing to do, or for which all is kept."""
    claim = maker.begin()
    if how == "settled":
        settle_unchanged(claim, datetime.now(UTC))
        maker.leave()
    else:
        maker.commit(carried=claim.existing.ledger)
        maker.end(len(PARTITIONS))


@pytest.fixture
def nights(tmp_path) -> dict[str, RunMaker]:
    store = Store.parse(tmp_path / "store")
    makers = {name: RunMaker(store, name) for name in ("night-1", "night-2", "night-3")}
    for maker in makers.values():
        maker.begin()
        maker.commit(*PARTITIONS)
        maker.end(len(PARTITIONS))
    return makers


def newest(makers: dict[str, RunMaker]) -> list[str]:
    store = makers["night-1"].store
    return [run.run_id for run in newest_runs(store, lambda run: True, lambda run_id: True)]


@pytest.mark.parametrize("how", ["settled", "all kept"])
def test_a_resume_with_nothing_to_do_does_not_make_an_old_run_the_newest(nights, how) -> None:
    worked = last_work(nights["night-1"].open())
    for _ in range(2):
        resumed(nights["night-1"], how)
    resumed(nights["night-2"], how)
    assert newest(nights) == ["night-3", "night-2", "night-1"]
    assert last_work(nights["night-1"].open()) == worked

    def before(night: str) -> list[str]:
        return [run.run_id for run in earlier_runs(nights[night].open(), 30)]

    assert before("night-3") == ["night-2", "night-1"]
    assert before("night-2") == ["night-1"]
    # One that runs something does.
    nights["night-1"].begin()
    nights["night-1"].commit(("a", "DONE", 2.0), ("b", "DONE", 1.0))
    nights["night-1"].end(len(PARTITIONS))
    assert newest(nights) == ["night-1", "night-3", "night-2"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_resume_that_completes_what_another_one_did_is_work(nights, ends) -> None:
    maker = nights["night-1"]
    maker.begin()
    maker.commit(("a", "DONE", 2.0), ("b", "DONE", 2.0))
    if ends:
        maker.commit(("c", "CANCELLED", 1.0))
        maker.end(3, CANCELLED)
    else:
        maker.die()
    rows = maker.open().newest.ledger.slice(0, 2)
    maker.begin()
    maker.commit(carried=rows)
    run = maker.end(len(PARTITIONS))
    assert run.executed == 0
    assert last_work(run).generation == 3
    assert newest(nights) == ["night-1", "night-3", "night-2"]
    resumed(maker, "settled")
    assert last_work(maker.open()).generation == 3
