"""What one sees here of a flow run that works elsewhere: its own lines, and what it waits for."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    LogFilter,
    LogFilterFlowRunId,
    LogFilterLevel,
    LogFilterTimestamp,
)
from prefect.client.schemas.objects import Log, State, StateType

from partwise.engine.driver.cluster_watch import Logger

FIRST_LINE_S = 10.0
LONGEST_PAUSE_S = 320.0
LATE = timedelta(seconds=5)
"""Processes send their lines every two seconds, so that older ones may come after newer ones."""
LAST_LINES_S = 3.0
"""For so long the last lines are waited for, which come after the end itself."""
PAGE = 200
_LOGGER = "prefect.flow_runs"
_OF_ENGINE = ("Beginning flow run", "Finished in state", "View at ")
"""How Prefect's own lines begin, which tell of the flow run and not of the run."""


class FlowRunLines:
    """Logs here what a flow run logs elsewhere, and while it has not begun, what it waits for."""

    def __init__(
        self,
        client: SyncPrefectClient,
        flow_run_id: UUID,
        logger: Logger,
        run_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._flow_run_id = flow_run_id
        self._logger = logger
        self._run_id = run_id
        self._clock = clock
        self._began = clock()
        self._pause_s = FIRST_LINE_S
        self._next = self._began + FIRST_LINE_S
        self._since: Any = None
        self._seen: dict[UUID, datetime] = {}
        """What was logged since then, so that nothing is twice."""
        self._last_seen = False

    def update(self, state: State[Any] | None, waits_for: Callable[[], str]) -> None:
        """Write the lines that are new, and from time to time why it has not begun."""
        self._relay()
        has_begun = state is None or state.type not in (StateType.SCHEDULED, StateType.PENDING)
        if has_begun or (now := self._clock()) < self._next:
            return
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._next = now + self._pause_s
        self._logger.info(
            "Run %s: not begun after %.0f s (%s): %s.",
            self._run_id,
            now - self._began,
            state.name if state is not None else "",
            waits_for(),
        )

    def close(self) -> None:
        """Write the last lines; the very last one of a flow that ended in order is Prefect's."""
        deadline = self._clock() + LAST_LINES_S
        while not self._last_seen and self._clock() < deadline:
            with suppress(httpx.HTTPError):
                self._relay()
            time.sleep(0.2)

    def _relay(self) -> None:
        offset = 0
        while page := self._client.read_logs(self._filter(), limit=PAGE, offset=offset):
            for line in page:
                if line.id not in self._seen:
                    self._seen[line.id] = line.timestamp
                    self._write(line)
            if len(page) < PAGE:
                break
            offset += PAGE
        if self._seen:
            self._since = max(self._seen.values()) - LATE
            self._seen = {each: at for each, at in self._seen.items() if at >= self._since}

    def _filter(self) -> LogFilter:
        return LogFilter(
            level=LogFilterLevel(ge_=logging.INFO),
            flow_run_id=LogFilterFlowRunId(any_=[self._flow_run_id]),
            timestamp=LogFilterTimestamp(after_=self._since),
        )

    def _write(self, line: Log) -> None:
        of_flow = line.name == _LOGGER
        if of_flow and line.message.startswith(_OF_ENGINE):
            self._last_seen |= line.message.startswith("Finished in state")
        elif of_flow or line.level >= logging.WARNING:
            # Of workers and task runs only what is wrong, such as an image that cannot be pulled.
            write = self._logger.warning if line.level >= logging.WARNING else self._logger.info
            write("%s", line.message)
