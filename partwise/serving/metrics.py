"""What a server counts, for Prometheus: in a registry of its own, of one process or of several."""

import os

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from partwise.serving.questions import Answer

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which several processes count; prometheus_client reads it on import."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_OTHERS = "other keys"


class Metrics:
    """The counters of an app.

    Args:
        keys: Rows are counted by the key of their model for so many keys at most, those that come
            first; all others count as one. 0: not at all.
    """

    def __init__(self, keys: int = 0) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "partwise_requests", "Requests.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "partwise_request_seconds",
            "Time of a request.",
            ("route",),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._rows = Counter(
            "partwise_rows",
            "Rows answered, by the level of their model.",
            ("level",),
            registry=registry,
        )
        self._cold = Counter(
            "partwise_cold_loads", "Models loaded for a request.", registry=registry
        )
        self._queue = Gauge(
            "partwise_waiting_requests",
            "Requests that wait for a thread, or have one.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._served = Gauge(
            "partwise_served_version",
            "The version that is served.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._refused = Gauge(
            "partwise_newer_version_refused",
            "1 while a newer version than the served one was refused.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._keys = keys
        self._known: set[str] = set()
        self._rows_of_keys = (
            Counter("partwise_key_rows", "Rows by key of a model.", ("key",), registry=registry)
            if keys
            else None
        )
        # To find a counter by its labels takes longer than to count.
        self._by_level: dict[int | None, Counter] = {}
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        counters = self._by_route.get((route, status))
        if counters is None:
            found = self._requests.labels(route, str(status)), self._seconds.labels(route)
            counters = self._by_route[route, status] = found
        counters[0].inc()
        counters[1].observe(seconds)

    def count_rows(self, answer: Answer) -> None:
        """Count the rows of an answer, by level, and the loads that it needed."""
        if answer.cold:
            self._cold.inc(answer.cold)
        none, *rows_of = np.bincount(answer.used + 1, minlength=len(answer.models) + 1).tolist()
        for model, n_rows in zip(answer.models, rows_of, strict=True):
            self._of_level(model.level).inc(n_rows)
            if self._rows_of_keys is not None:
                self._rows_of_keys.labels(self._label_of(model.key)).inc(n_rows)
        if none:
            self._of_level(None).inc(none)

    def _of_level(self, level: int | None) -> Counter:
        """Return the counter of a level; None: of rows that none answered."""
        found = self._by_level.get(level)
        if found is None:
            label = "none" if level is None else str(level)
            found = self._by_level[level] = self._rows.labels(label)
        return found

    def _label_of(self, key: str) -> str:
        if key not in self._known:
            if len(self._known) >= self._keys:
                return _OTHERS
            self._known.add(key)
        return key

    def set_waiting(self, n_requests: int) -> None:
        """Tell how many requests wait for a thread, or have one."""
        self._queue.set(n_requests)

    def set_served(self, version: int, *, is_refused: bool) -> None:
        """Tell which version is served, and whether a newer one was refused."""
        self._served.set(version)
        self._refused.set(is_refused)

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it, of all processes where there are several."""
        registry = self._registry
        if FOLDER_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
