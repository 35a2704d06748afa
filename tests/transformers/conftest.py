"""What tests of exports share."""

import pytest

from partwise.tasks.validation.judging import close_judges


@pytest.fixture(scope="module", autouse=True)
def no_judge_outlives_a_module():
    yield
    close_judges()
