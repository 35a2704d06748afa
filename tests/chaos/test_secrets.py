"""Made-up secrets in all that is kept or shown of a failure."""

import time
from pathlib import Path

import pytest

from tests.chaos.conftest import Experiment
from tests.secret_canaries import try_canaries

pytestmark = pytest.mark.slow

SECRETS = 200


def test_no_secret_is_kept(experiment: Experiment, tmp_path: Path) -> None:
    chance = experiment.chance
    tried, leaked, secrets = 0, [], 0
    deadline = time.monotonic() + experiment.seconds
    while tried == 0 or time.monotonic() < deadline:
        ways, found = try_canaries(chance.randrange(1 << 30), SECRETS, tmp_path)
        tried, secrets = tried + ways, secrets + SECRETS
        leaked += found
    experiment.tell(
        "G20",
        tried=tried,
        lost=len(leaked),
        what=f"places that {secrets:,} secrets were sent to"
        + "".join(f"; {each}" for each in leaked[:3]),
    )
