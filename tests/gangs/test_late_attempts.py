"""A rank that was given up goes on while the next attempt of its gang works, in one generation."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partwise.gangs.ledger import commit_ranks
from partwise.gangs.resume_point import begin_attempt
from partwise.runs.claim import Claim
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.one_gang import IDENTITY, RANKS, RUN_ID, begin_gang, check_gang, train
from tests.one_model import rank_end
from tests.two_drivers import points

if TYPE_CHECKING:
    from partwise.gangs.spec import GangSpec


class Gang:
    """One generation at work: its driver, and the second attempt."""

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self.claim = stack.enter_context(Claim(store, IDENTITY, "resume"))
        self.spec = begin_gang(self.claim)
        self.begun: GangSpec | None = None
        self.run: Run | None = None

    def begin_again(self) -> None:
        self.begun = begin_attempt(self.spec, 2)

    def end(self) -> None:
        assert self.begun is not None
        ends = [train(self.begun, 2), rank_end(1)]
        self.run = commit_ranks(self.claim, ends, RANKS)


@contextmanager
def gangs_in(folder: Path) -> Iterator[tuple[dict[str, Gang], Callable[[], Store]]]:
    gangs: dict[str, Gang] = {}
    numbers = itertools.count()
    with ExitStack() as stack:

        def prepare() -> Store:
            store = Store.parse(folder / str(next(numbers)))
            gangs[store.url] = Gang(store, stack)
            return store

        yield gangs, prepare


@pytest.mark.parametrize("when", ["while it stands still", "when it has gone on"])
def test_a_rank_that_was_given_up_takes_nothing_from_the_next_attempt(tmp_path, when) -> None:
    is_later = when == "when it has gone on"
    with gangs_in(tmp_path) as (gangs, prepare):

        def first(store: Store) -> None:
            spec = gangs[store.url].spec
            train(begin_attempt(replace(spec, store=store), 1), 1)

        def second(store: Store) -> None:
            gangs[store.url].begin_again()
            if not is_later:
                gangs[store.url].end()

        def check(store: Store) -> None:
            gang = gangs[store.url]
            if is_later:
                gang.end()
            run = Run.open(RUN_ID, store)
            assert gang.run is not None
            assert run.ledger.equals(gang.run.ledger)
            assert run.ledger["attempts"].to_pylist() == [2, 1]
            check_gang(run)
            gang.claim.__exit__()
            collect_garbage(store, RUN_ID, dry_run=False, grace_hours=0)
            check_gang(Run.open(RUN_ID, store))

        tally = points(prepare, first, second, check, every=2)
    assert tally.lost == []
    assert tally.refused > 0
