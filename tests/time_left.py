"""Start no more tests once the time that there is for them is over.

The machines that CI gets differ by three times. On the slowest the whole run was once ended in its
ninetieth minute, by a tool that then knew nothing of the tests that had passed. What is left out is
counted and named by its file at the end of the run.
"""

import os
import time
from collections import Counter

import pytest

NAME = "PARTWISE_TEST_UNTIL"
UNTIL = float(os.environ.get(NAME, "inf"))
"""In seconds since 1970; no end where nobody names one."""
REASON = "No time is left for it"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # The first process has it for these. A test that runs pytest has time.
        os.environ.pop(NAME, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > UNTIL:
        pytest.skip(REASON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.getreports("skipped")
    left_out = [report for report in reports if REASON in report.longrepr[2]]
    if not left_out:
        return
    terminalreporter.section("not run, for want of time")
    for file, count in Counter(report.location[0] for report in left_out).most_common():
        terminalreporter.line(f"{count} tests of {file}")
