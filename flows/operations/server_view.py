"""What a Prefect server knows of runs: how they ended, and which flow runs are due.

Of a run it asks for the event of its end, which says what came of the run: no store is read. An end
never changes, so that each look asks only for those since the last.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter
from prefect.events.schemas.events import ReceivedEvent

from partwise.flows.orchestration.announcement import DEPLOYMENT_LABEL, RUN_COMPLETED, WITHOUT_RUN
from partwise.flows.orchestration.server_client import every
from partwise.outcomes import RunStatus

NO_DEPLOYMENT = "none"
"""In place of a deployment's name: a person or a program called the flow."""
KEPT = timedelta(days=7)
"""For so long Prefect keeps events."""
RECENT = timedelta(days=1)
OVERLAP = timedelta(minutes=10)
"""An event may come so long after what it tells of."""
EVENTS_AT_ONCE = 50
MOST_EVENTS = 5_000
"""Of the first look; the newest come first."""
_FLOW_RUN = "prefect.flow-run."
_STATUSES = {*RunStatus, *WITHOUT_RUN}
_HAVE_NO_END = (
    *(StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING),
    *(StateType.PAUSED, StateType.CANCELLING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run, or of a flow run that came to none."""

    deployment: str
    status: str
    """Of the run; of a flow run Prefect's Failed, Crashed or TimedOut."""
    at: datetime
    has_run: bool
    store: str
    counts: Mapping[str, int]
    """Partitions by status."""
    seconds: float | None

    @classmethod
    def of(cls, event: ReceivedEvent) -> Self:
        """Read an event; one that a program made up, or an older release, may lack anything."""
        has_run = event.event == RUN_COMPLETED
        label = event.resource.root.get
        payload: Mapping[str, Any] = event.payload if has_run else {}
        counts, seconds = payload.get("counts"), payload.get("seconds")
        return cls(
            deployment=(label(DEPLOYMENT_LABEL) if has_run else _related(event)) or NO_DEPLOYMENT,
            status=label("partwise.status", "") if has_run else event.event[len(_FLOW_RUN) :],
            at=event.occurred,
            has_run=has_run,
            store=str(payload.get("store", "")),
            counts={k: v for k, v in counts.items() if isinstance(v, int)}
            if isinstance(counts, dict)
            else {},
            seconds=seconds if isinstance(seconds, int | float) else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """What a server knew at one look."""

    last: tuple[RunEnd, ...]
    """The last end of each deployment with each status."""
    recent: Mapping[tuple[str, ...], int]
    """How many ended within a day, by deployment and status."""
    flow_runs: Mapping[tuple[str, ...], int]
    """How many are due and have not ended, by deployment and state."""
    lags: Mapping[str, float]
    """By deployment: for how many seconds the flow run is due that waits longest; 0: none waits."""


class ServerWatch:
    """Asks a Prefect server again and again."""

    def __init__(self, client: SyncPrefectClient) -> None:
        self._client = client
        self._looked = datetime.now(UTC) - KEPT
        self._names: dict[UUID | None, str] = {}
        self._last: dict[tuple[str, str], RunEnd] = {}
        self._recent: dict[UUID, RunEnd] = {}

    def look(self) -> ServerView:
        """Ask the server.

        Raises:
            httpx.HTTPError: It does not answer.
            PrefectHTTPStatusError: It refuses to.
        """
        now = datetime.now(UTC)
        self._add_ends(now)
        flow_runs, lags = self._due(now)
        self._recent = {
            event_id: end for event_id, end in self._recent.items() if end.at > now - RECENT
        }
        recent: Counter[tuple[str, ...]] = Counter(
            (end.deployment, end.status) for end in self._recent.values()
        )
        return ServerView(
            last=tuple(self._last.values()), recent=recent, flow_runs=flow_runs, lags=lags
        )

    def _add_ends(self, now: datetime) -> None:
        for event in _events(self._client, self._looked - OVERLAP):
            end = RunEnd.of(event)
            if end.status not in _STATUSES:
                continue
            self._recent[event.id] = end
            before = self._last.setdefault((end.deployment, end.status), end)
            if end.at > before.at:
                self._last[end.deployment, end.status] = end
        self._looked = now

    def _due(self, now: datetime) -> tuple[Mapping[tuple[str, ...], int], Mapping[str, float]]:
        """Return how many flow runs are due and have not ended, and for how long they wait."""
        chosen = FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_HAVE_NO_END))),
            expected_start_time=FlowRunFilterExpectedStartTime.model_validate({"before_": now}),
        )
        oldest_first = FlowRunSort.EXPECTED_START_TIME_ASC
        runs = list(every(self._client.read_flow_runs, flow_run_filter=chosen, sort=oldest_first))
        if not self._names or any(run.deployment_id not in self._names for run in runs):
            self._names = _deployments(self._client)
        counts: Counter[tuple[str, ...]] = Counter()
        lags = dict.fromkeys(self._names.values(), 0.0)
        for run in runs:
            # One that is deleted has no name, and is not asked for again.
            name = self._names.setdefault(run.deployment_id, NO_DEPLOYMENT)
            counts[name, run.state_name or ""] += 1
            if run.start_time is None and run.expected_start_time is not None:
                lags[name] = max(lags[name], (now - run.expected_start_time).total_seconds())
        return counts, lags


def _events(client: SyncPrefectClient, since: datetime) -> Iterator[ReceivedEvent]:
    names = [RUN_COMPLETED, *(f"{_FLOW_RUN}{name}" for name in WITHOUT_RUN)]
    # Until tomorrow: the clock of who emitted it may be ahead.
    until = datetime.now(UTC) + timedelta(days=1)
    occurred = EventOccurredFilter.model_validate({"since": since, "until": until})
    chosen = EventFilter(occurred=occurred, event=EventNameFilter(name=names))
    page = client.read_events(chosen, limit=EVENTS_AT_ONCE)
    for _ in range(MOST_EVENTS // EVENTS_AT_ONCE):
        yield from page.events
        more = page.get_next_page_sync(client)
        if more is None:
            return
        page = more


def _deployments(client: SyncPrefectClient) -> dict[UUID | None, str]:
    """Return their names. They come with the schemas of their forms, which takes half a second."""
    flows = {flow.id: flow.name for flow in every(client.read_flows)}
    names: dict[UUID | None, str] = {None: NO_DEPLOYMENT}
    for one in every(client.read_deployments):
        names[one.id] = f"{flows.get(one.flow_id)}/{one.name}"
    return names


def _related(event: ReceivedEvent) -> str:
    """Return "<flow>/<deployment>" of a flow run's event, or ""."""
    names = {one.role: one.root.get("prefect.resource.name", "") for one in event.related}
    return f"{names.get('flow', '')}/{names['deployment']}" if "deployment" in names else ""
