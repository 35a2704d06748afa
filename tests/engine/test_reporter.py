"""What a worker sends the driver while it works."""

from collections import Counter

import pytest

from partwise.engine import reporter as reporter_module
from partwise.engine.assignment import ShardProgress
from partwise.engine.reporter import LOOK_S, PROGRESS_INTERVAL_S, AtWork, Reporter
from partwise.runs.ledger import LedgerRow


class Host:
    """A host whose clock stands still, and which keeps what it is given."""

    folder, name, address = "", "test", "tcp://test"

    def __init__(self) -> None:
        self.sent: list[ShardProgress] = []
        self.later: list[tuple[float, object]] = []

    def log_event(self, topic, message) -> None:
        assert topic == "token"
        self.sent.append(ShardProgress.from_message(message))

    def call_later(self, seconds, function) -> None:
        self.later.append((seconds, function))


class Assignment:
    number = 3

    class execution:
        token = "token"


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(reporter_module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def reporter(clock, host) -> Reporter:
    return Reporter(host, Assignment())


def row(name: str, status: str = "DONE", **error: str) -> LedgerRow:
    return LedgerRow(partition_id=name, shard=3, generation=1, status=status, rows=1, **error)


def test_the_first_outcome_is_reported_at_once(reporter, host) -> None:
    reporter.add(row("a"))
    (progress,) = host.sent
    assert (progress.shard, progress.counts) == (3, {"DONE": 1})


def test_the_next_ones_wait_for_one_report_of_all(reporter, host, clock) -> None:
    for name in "abc":
        reporter.add(row(name))
    assert len(host.sent) == 1
    ((seconds, report),) = host.later
    assert seconds == pytest.approx(PROGRESS_INTERVAL_S)
    # No further outcome is needed for it: the next partition may take an hour.
    report()
    assert [progress.counts for progress in host.sent] == [{"DONE": 1}, {"DONE": 2}]
    clock[0] += PROGRESS_INTERVAL_S
    reporter.add(row("d"))
    assert host.sent[-1].counts == {"DONE": 1}
    assert len({progress.execution for progress in host.sent}) == 1


def test_equal_failures_are_one_group_with_a_sample(reporter, host) -> None:
    error = {"error_type": "E", "error_message": "m" * 1000}
    reporter.add(row("a"))
    for name, fingerprint in (("b", "x"), ("c", "x"), ("d", "y")):
        reporter.add(row(name, "FAILED", error_fingerprint=fingerprint, **error))
    reporter.report()
    groups = host.sent[-1].failures
    assert [(g.fingerprint, g.sample, g.count) for g in groups] == [("x", "b", 2), ("y", "d", 1)]
    assert len(groups[0].message) == 300


def test_what_needs_no_work_is_counted(reporter, host) -> None:
    reporter.keep(Counter(DONE=5), 4)
    reporter.report()
    assert (host.sent[-1].counts, host.sent[-1].kept) == ({"DONE": 5}, 4)


def test_nothing_new_is_not_reported(reporter, host) -> None:
    reporter.report()
    assert not host.sent


def test_a_lost_connection_does_not_stop_the_work(reporter, host, monkeypatch) -> None:
    def fail(topic, message) -> None:
        raise OSError("the scheduler is gone")

    monkeypatch.setattr(host, "log_event", fail)
    reporter.add(row("a"))


def test_what_partitions_left_is_reported_once_for_each_kind(reporter, host, clock) -> None:
    for number in range(3):
        reporter.add_remarks(f"p{number}", [f"it left the thread 'Thread-{number}' running"])
    reporter.add_remarks("q", ["it replaced numpy.mean"])
    reporter.report()
    reporter.add_remarks("r", ["it left the thread 'Thread-9' running"])
    reporter.report()
    (progress,) = host.sent
    assert [(each.text, each.sample) for each in progress.remarks] == [
        ("it left the thread 'Thread-0' running", "p0"),
        ("it replaced numpy.mean", "q"),
    ]


def test_a_partition_that_takes_long_is_told_soon(reporter, host, clock) -> None:
    at_work: list[AtWork] = [None]
    reporter.begin("it waits for its process", lambda: at_work[0])
    with reporter.beating():
        (progress,) = host.sent
        assert (progress.doing, progress.place) == ("it waits for its process", -1)

        def look() -> list[int]:
            clock[0] += LOOK_S
            (looked,) = [function for _, function in host.later if function == reporter._look]
            host.later.clear()
            looked()
            return [progress.place for progress in host.sent]

        assert look() == [-1]
        at_work[0] = ("partition a runs", 0.5, 4)
        assert look() == [-1, 4]
        # Said once.
        assert look() == [-1, 4]
        at_work[0] = ("partition b runs", 0.1, 5)
        assert look() == [-1, 4, 5]
    assert look() == [-1, 4, 5]
    assert not host.later


def test_a_thread_that_hangs_in_the_kernel_is_silent(reporter, host, clock, monkeypatch) -> None:
    """One that only slept there for a moment, each time anew, is heard of."""
    sleep = [""]
    at_work: list[AtWork] = [None]
    monkeypatch.setattr(reporter_module, "_deep_sleep", lambda thread: sleep[0])
    reporter.begin("it reads its rows", lambda: at_work[0])
    with reporter.beating():

        def beat() -> int:
            host.sent.clear()
            reporter._beat()
            return len(host.sent)

        assert beat() == 1
        for sleep[0] in ("7", "8", "9"):
            assert beat() == 1
        assert beat() == 0
        at_work[0] = ("partition a runs", 0.5, 4)
        clock[0] += PROGRESS_INTERVAL_S + 1
        reporter._look()
        assert not host.sent
        sleep[0] = ""
        assert beat() == 1
