"""What `.ci/run` may run a second time: tests that failed by themselves.

A process that outlives the tests, an error of what they share and a worker that died are booked on
whichever test was at hand, which passes when it is run by itself: they are never forgiven.
"""

import os
from pathlib import Path

import pytest

# Taken out of the environment, lest a test that runs pytest should write there.
PATH = os.environ.pop("PARTWISE_TEST_SECOND_TRY", None)
"""The file for their test IDs, one a line. It is there after a session of which nothing else was
wrong."""

_failed: list[str] = []
_other: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        # Of a process that died, xdist says "???".
        (_failed if report.when == "call" else _other).append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if PATH is None:
        return
    Path(PATH).unlink(missing_ok=True)
    if exitstatus == pytest.ExitCode.TESTS_FAILED and not _other:
        Path(PATH).write_text("".join(f"{test_id}\n" for test_id in _failed))
