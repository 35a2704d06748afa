"""What one partition may use, and whose memory that is a share of."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from distributed import system
from hypothesis import example, given
from hypothesis import strategies as st

from partwise.engine.limits import Limits, memory_limit, smallest_memory_limit
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import Slot
from partwise.errors import InputError

LIMITS = Limits(timeout_s=None, memory_bytes=None, slots_per_host=4)
TOTAL = 100 << 30


class TwoWorkers:
    """A client whose workers stand on machines of other sizes than this one."""

    def __init__(self, monkeypatch, *totals: int) -> None:
        self.totals = totals
        self._patch = monkeypatch

    def run(self, function: Callable[..., Any], *args: Any, **_: Any) -> dict[str, Any]:
        answers = {}
        for total in self.totals:
            with self._patch.context() as patch:
                patch.setattr(system, "memory_limit", lambda total=total: total)
                answers[f"tcp://worker-{total}"] = function(*args)
        return answers


def test_the_default_is_a_share_of_this_machine(monkeypatch) -> None:
    monkeypatch.setattr(system, "memory_limit", lambda: TOTAL)
    assert memory_limit(LIMITS) == TOTAL * 0.8 / 4
    assert memory_limit(replace(LIMITS, memory_bytes=5)) == 5


def test_the_limit_of_a_container_counts_as_its_machine(monkeypatch) -> None:
    def read(path: str) -> io.StringIO:
        if path != "/sys/fs/cgroup/memory.max":
            raise FileNotFoundError(path)
        return io.StringIO(f"{40 << 20}\n")

    monkeypatch.setattr(system, "open", read, raising=False)
    assert memory_limit(LIMITS) == (40 << 20) * 0.8 / 4


def test_the_driver_goes_by_the_workers_memory_not_its_own(monkeypatch) -> None:
    monkeypatch.setattr(system, "memory_limit", lambda: TOTAL)
    client = TwoWorkers(monkeypatch, 10 << 30, 5 << 30)
    assert smallest_memory_limit(client, LIMITS) == 1 << 30


def test_a_limit_of_the_caller_holds_everywhere(monkeypatch) -> None:
    client = TwoWorkers(monkeypatch, 10 << 30)
    assert smallest_memory_limit(client, replace(LIMITS, memory_bytes=7)) == 7


def test_without_workers_no_partition_is_too_large(monkeypatch) -> None:
    assert smallest_memory_limit(TwoWorkers(monkeypatch), LIMITS) > 1 << 60


def test_options_name_the_limits() -> None:
    options = ExecutionOptions(timeout_s=2.5, memory_bytes=9)
    slots = [Slot(worker="w", host="h", threads=1)] * 3
    assert options.limits_on(slots) == Limits(timeout_s=2.5, memory_bytes=9, slots_per_host=3)


def test_gpus_are_whole_ones_or_a_part_of_one() -> None:
    found = [ExecutionOptions(gpus=gpus).gpus for gpus in (0, 1, 2.0, 0.25)]
    assert found == [0, 1, 2, 0.25]
    assert [type(gpus) for gpus in found] == [int, int, int, float]
    for wrong in (1.5, -1, float("nan")):
        with pytest.raises(InputError):
            ExecutionOptions(gpus=wrong)


@given(
    st.integers(0, 1_000), st.integers(1, 2_000_000) | st.integers(1, 2_000).map((1_000).__mul__)
)
@example(290, 100)
def test_a_fraction_of_failures_allows_as_many_as_it_is_written(thousandths, partitions) -> None:
    options = ExecutionOptions(max_failed_fraction=float(f"{thousandths / 1000:.3f}"))
    assert options.failure_budget(partitions) == thousandths * partitions // 1000


def test_a_third_of_three_may_fail() -> None:
    options = ExecutionOptions(max_failed_fraction=1 / 3)
    assert [options.failure_budget(partitions) for partitions in (2, 3, 300)] == [0, 1, 100]
