"""What tests of exports share."""

import pytest

from partwise.exports.proof.judge import close_judges


@pytest.fixture(scope="module", autouse=True)
def no_judge_outlives_a_module():
    yield
    close_judges()
