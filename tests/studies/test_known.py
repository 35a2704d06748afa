"""Which trials a study works on, as those before it left them."""

from datetime import UTC, datetime

import pytest

from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.claim import Claim, Intent
from partwise.runs.trials import Trial, TrialRecord
from partwise.store.store import Store
from partwise.studies.driver import StudyEnd
from partwise.studies.ledger import Known, complete_study, known_trials
from tests.one_study import IDENTITY, check_study, drive_study


def trials(*numbers: int) -> tuple[Trial, ...]:
    record = TrialRecord(settings={}, metric="loss", maximized=False)
    return tuple(
        Trial(number=number, status=PartitionStatus.DONE, record=record, seconds=1.0, reason="")
        for number in numbers
    )


@pytest.mark.parametrize(
    ("kept", "again", "wanted", "numbers"),
    [
        ((), (), 3, [0, 1, 2]),
        ((0, 2), (5,), 6, [0, 1, 2, 3, 4, 5]),
        # As many new ones as are left, by the first numbers that are free.
        ((0, 2), (5,), 4, [0, 1, 2, 5]),
        # All that have failed run again, whether or not as many are wanted.
        ((0, 1, 2), (3,), 2, [0, 1, 2, 3]),
    ],
)
def test_kept_ones_failed_ones_and_the_first_free_numbers(kept, again, wanted, numbers) -> None:
    known = Known(kept=trials(*kept), again=trials(*again))
    assert known.numbers(wanted) == numbers


def test_a_study_that_was_stopped_before_its_first_trial_ends_too(tmp_path) -> None:
    store, stop = Store.parse(tmp_path), Stop(RunStatus.FAILURE, "it could not go on")
    intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
    with Claim(store, IDENTITY, "resume") as claim:
        assert known_trials(claim, intent) == Known()
        claim.begin(n_shards=1, intent=intent, partitions=3)
        run = complete_study(claim, StudyEnd(), stop, started_at=datetime.now(UTC), stages={})
    assert (run.status, run.counts) == (RunStatus.FAILURE, {"CANCELLED": 1})
    check_study(drive_study(store, 3), 3)
