"""Which trials a study works on, as those before it left them."""

import pytest

from partwise.outcomes import PartitionStatus
from partwise.runs.trials import Trial, TrialRecord
from partwise.studies.ledger import Known


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
