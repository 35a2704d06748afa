"""What `/metrics` of `partwise up` says, for Prometheus: of runs, of what is due, and of disks."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from partwise.outcomes import HAVE_NO_END, PartitionStatus
from partwise.redaction import without_secrets

if TYPE_CHECKING:
    from partwise.flows.operations.server_view import RunEnd, ServerView

T = TypeVar("T")
PART_S = 4.0
"""A scrape waits so long for Prefect's server, and as long for the disks; Prometheus for 10 s."""
FRESH_S = 5.0
"""Who asks again within this time gets the same answer."""
MOST_STORES = 20

METRICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "partwise_runs": (
        ("deployment", "status"),
        "Runs that ended in the last 24 hours, and flow runs that ended without one.",
    ),
    "partwise_run_end_timestamp_seconds": (
        ("deployment", "status"),
        "When the last run ended with this status, since 1970.",
    ),
    "partwise_run_seconds": (("deployment",), "How long the last run took."),
    "partwise_partitions": (("deployment", "status"), "Partitions of the last run."),
    "partwise_flow_runs": (("deployment", "state"), "Flow runs that are due and have not ended."),
    "partwise_schedule_lag_seconds": (
        ("deployment",),
        "For how long a flow run that nobody has begun is due.",
    ),
    "partwise_disk_free_bytes": (("folder",), "Room on the disk of a folder."),
    "partwise_disk_size_bytes": (("folder",), "Size of the disk of a folder."),
    "partwise_prefect_database_bytes": ((), "Size of Prefect's database in .partwise."),
    "partwise_scrape_errors": (("part",), "1 while this part is missing: see reports.log."),
}
"""Labels of each, and what it is."""
_OUTCOMES = [status.value for status in PartitionStatus if status not in HAVE_NO_END]
_Values = Mapping[tuple[str, ...], float]


class Metrics:
    """What a scrape is answered: of a project's `.partwise`, and by `look` of Prefect's server."""

    def __init__(self, folder: Path, look: "Callable[[], ServerView]") -> None:
        self._folder = folder.resolve()
        self._stores: list[str] = []
        self._prefect = _Part("prefect", look)
        self._disk = _Part("disk", self._look_at_disks)
        self._one_at_a_time = threading.Lock()
        self._fresh_until_s = 0.0
        self._text = b""

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it; what is not known in time is left out."""
        with self._one_at_a_time:
            if time.monotonic() > self._fresh_until_s:
                view = self._prefect.read()
                if view is not None:
                    self._stores = _stores(view.last)
                disks = self._disk.read()
                values = {} if view is None else _of_runs(view)
                values |= {} if disks is None else disks
                missing = {"prefect": view is None, "disk": disks is None}
                values["partwise_scrape_errors"] = {(k,): v for k, v in missing.items()}
                registry = CollectorRegistry()
                registry.register(_Families(values))
                self._text = generate_latest(registry)
                self._fresh_until_s = time.monotonic() + FRESH_S
            return self._text

    def _look_at_disks(self) -> dict[str, _Values]:
        free: dict[tuple[str, ...], float] = {}
        sizes: dict[tuple[str, ...], float] = {}
        for folder in (str(self._folder), *self._stores):
            # A store may be gone whose runs are still known, or be closed to us.
            with suppress(OSError):
                found = shutil.disk_usage(folder)
                free[folder,], sizes[folder,] = found.free, found.total
        files = [path.stat().st_size for path in self._folder.glob("prefect.db*")]
        return {
            "partwise_disk_free_bytes": free,
            "partwise_disk_size_bytes": sizes,
            # It may be elsewhere.
            "partwise_prefect_database_bytes": {(): sum(files)} if files else {},
        }


class _Part(Generic[T]):
    """A look that may hang: it is waited for a while only, and not begun anew before it has ended.

    One that came too late is what the next scrape gets.
    """

    def __init__(self, name: str, look: Callable[[], T]) -> None:
        self._name = name
        self._look = look
        self._thread = ThreadPoolExecutor(1)
        self._begun: Future[T] | None = None

    def read(self) -> T | None:
        """Return what was seen; None: it is not known."""
        begun = self._begun = self._begun or self._thread.submit(self._look)
        if not wait([begun], PART_S).done:
            return None
        self._begun = None
        if (error := begun.exception()) is not None:
            why = without_secrets(f"{type(error).__name__}: {error}")
            sys.stderr.write(f"/metrics lacks {self._name}: {why}\n")
            return None
        return begun.result(timeout=0)


@dataclass(frozen=True, eq=False)
class _Families:
    """Values by metric, as the registry of a scrape collects them; that asks for a hash."""

    values: Mapping[str, _Values]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, values in self.values.items():
            labels, text = METRICS[name]
            family = GaugeMetricFamily(name, text, labels=labels)
            for key, value in values.items():
                family.add_metric(key, value)
            yield family


def _of_runs(view: "ServerView") -> dict[str, _Values]:
    newest: dict[str, RunEnd] = {}
    for end in view.last:
        if end.has_run and (end.deployment not in newest or newest[end.deployment].at < end.at):
            newest[end.deployment] = end
    ends = {(end.deployment, end.status): end for end in view.last}
    return {
        # Those of yesterday are none today: 0, and not gone.
        "partwise_runs": {key: view.recent.get(key, 0) for key in ends},
        "partwise_run_end_timestamp_seconds": {
            key: end.at.timestamp() for key, end in ends.items()
        },
        "partwise_run_seconds": {
            (name,): end.seconds for name, end in newest.items() if end.seconds is not None
        },
        "partwise_partitions": {
            (name, status): end.counts.get(status, 0)
            for name, end in newest.items()
            for status in _OUTCOMES
        },
        "partwise_flow_runs": view.flow_runs,
        "partwise_schedule_lag_seconds": {(name,): lag for name, lag in view.lags.items()},
    }


def _stores(ends: "Iterable[RunEnd]") -> list[str]:
    """Return the folders that runs were kept in, the newest first."""
    newest = sorted(ends, key=lambda end: end.at, reverse=True)
    folders = dict.fromkeys(end.store for end in newest if end.store.startswith("/"))
    return list(folders)[:MOST_STORES]
