from collections.abc import Iterator

import pytest

from partwise.exports.proof.judge import close_judges


@pytest.fixture(scope="session", autouse=True)
def judges_end_with_the_tests() -> Iterator[None]:
    yield
    close_judges()
