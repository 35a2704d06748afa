"""Lines of a flow run that works elsewhere: each is logged here, and once."""

import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.client.schemas.objects import State, StateType

from partwise.flows.orchestration import flow_run_lines
from partwise.flows.orchestration.flow_run_lines import LATE, FlowRunLines

START = datetime(2026, 11, 23, tzinfo=UTC)


class Server:
    """Lines as Prefect's server gives them: by time, in pages, from a time on."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def write(self, at_s: float, message: str, **more: Any) -> None:
        line = {"name": "prefect.flow_runs", "level": logging.INFO, **more}
        timestamp = START + timedelta(seconds=at_s)
        self.lines.append(SimpleNamespace(id=uuid4(), timestamp=timestamp, message=message, **line))

    def read_logs(self, chosen: Any, limit: int, offset: int) -> list[Any]:
        after = chosen.timestamp.after_
        found = [
            line
            for line in sorted(self.lines, key=lambda line: line.timestamp)
            if line.level >= chosen.level.ge_ and (after is None or line.timestamp >= after)
        ]
        return found[offset : offset + limit]


class Log:
    """What was logged here."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: Any) -> None:
        self.lines.append(text % values)

    warning = info


def lines_of(server: Server, log: Any, **more: Any) -> FlowRunLines:
    return FlowRunLines(server, uuid4(), log, "one", **more)  # type: ignore[arg-type]


RUNNING: State[Any] = State(type=StateType.RUNNING)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, int(LATE.total_seconds()))), max_size=60),
    st.integers(1, 7),
)
def test_each_line_is_logged_once_however_late_it_comes(
    written: list[tuple[int, int]], page: int
) -> None:
    """Breaks with a page that is cut off, a line that comes late, or two of one moment."""
    server, log = Server(), Log()
    lines = lines_of(server, log)
    before = flow_run_lines.PAGE
    flow_run_lines.PAGE = page
    try:
        for second in range(70):
            for number, (at, late) in enumerate(written):
                if at + late == second:
                    server.write(at, f"line {number}")
            lines.update(RUNNING, str)
    finally:
        flow_run_lines.PAGE = before
    assert sorted(log.lines) == sorted(f"line {number}" for number in range(len(written)))


def test_lines_of_prefect_itself_are_left_out_and_what_is_wrong_is_not() -> None:
    server, log = Server(), Log()
    server.write(0, "Beginning flow run 'one' for flow 'map'")
    server.write(1, "Created task run", name="prefect.task_runs")
    server.write(2, "image not found", name="prefect.flow_runs.worker", level=logging.ERROR)
    server.write(3, "Run one: 3 partitions.")
    server.write(4, "Finished in state Completed()")
    lines = lines_of(server, log)
    lines.update(RUNNING, str)
    lines.close()
    assert log.lines == ["image not found", "Run one: 3 partitions."]


def test_what_it_waits_for_is_told_after_pauses_that_double() -> None:
    now = 0.0
    log = Log()
    lines = lines_of(Server(), log, clock=lambda: now)
    told = []
    for second in range(200):
        now = float(second)
        lines.update(State(type=StateType.SCHEDULED, name="Late"), lambda: "no worker is there")
        if len(log.lines) > len(told):
            told.append(second)
    assert told == [10, 30, 70, 150]
    assert log.lines[0] == "Run one: not begun after 10 s (Late): no worker is there."
    lines.update(RUNNING, str)
    assert len(log.lines) == 4
