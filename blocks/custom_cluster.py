"""Clusters of any class of Dask's: of a batch system, of Kubernetes, of a cloud."""

import importlib
import logging
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from partwise.blocks.clusters import LOGO, check_growth, is_loopback
from partwise.blocks.named_fields import BlockType, NamedFields
from partwise.cluster_calls import known_workers, on_thread
from partwise.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

CLOSE_TIMEOUT_S = 60.0
"""To end jobs and pods is a request to somebody else's server for each."""
GIVE_UP_S = 2.0
LOOK_S = 1.0
AGAIN_S = 0.1
_THREAD = "custom cluster"

_CLASS = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)[.:](?P<name>[A-Za-z_]\w*)")


class CustomCluster(NamedFields):
    """A cluster of any class of Dask's, started for one run and closed after it.

    Such as `dask_jobqueue.SLURMCluster`, `dask_kubernetes.operator.KubeCluster` or
    `coiled.Cluster`: the package has to be installed where the flow runs, and the workers need
    partwise and your functions. The class is called with the arguments as they stand. They are kept
    in the clear: leave passwords to the files and variables that the package reads them from.

    Raises:
        InputError: The name is not of the form package.module.Class, or the numbers contradict
            each other.

    Example:
        Start eight jobs of a batch system for the time of a run:
        ```python
        from partwise import CustomCluster

        cluster = CustomCluster(
            cluster_class="dask_jobqueue.SLURMCluster",
            arguments={"cores": 8, "memory": "64GB", "security": True},
            workers=8,
        )
        with cluster.client() as client:
            print(client.submit(sum, [1, 2]).result())
        ```
    """

    block_type: ClassVar = BlockType(
        "Custom Cluster", "custom-cluster", "https://docs.dask.org/en/stable/deploying.html", LOGO
    )

    cluster_class: str = Field(
        description="The class by its full name, such as dask_jobqueue.SLURMCluster."
    )
    arguments: dict[str, Any] = Field(
        default={},
        description="What the class is called with, by name; no secrets, since they are shown.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        description=(
            "Scale to so many workers, and wait for them. 0: as many as the class starts by itself"
            " with these arguments."
        ),
    )
    max_workers: int = Field(
        default=0,
        ge=0,
        description=(
            "Grow up to so many workers while there is work for them, and shrink again to as many"
            " as `workers` says, at least one. 0: their number stays as it is."
        ),
    )
    start_timeout_s: float = Field(
        default=600.0,
        gt=0,
        title="Start time-out (s)",
        description=(
            "How many seconds the scheduler and the workers may take to come. With some of the"
            " workers the run begins after that time."
        ),
    )
    allow_plaintext: bool = Field(
        default=False,
        description="Allow a scheduler without TLS, on a network where everyone may run code.",
    )
    shares_filesystem: bool = Field(
        default=False,
        description="Whether the workers see this machine's files under the same paths.",
    )

    @model_validator(mode="after")
    def _can_be_called(self) -> "CustomCluster":
        if _CLASS.fullmatch(self.cluster_class.strip()) is None:
            raise ValueError(
                f"{self.cluster_class!r} does not name a class: write package.module.Class, such "
                "as dask_jobqueue.SLURMCluster."
            )
        if "asynchronous" in self.arguments:
            raise ValueError(
                "The argument asynchronous cannot be given: the cluster is started and closed "
                "here. Take it out of arguments."
            )
        check_growth(self.workers, self.max_workers)
        return self

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """Start the cluster and connect to it.

        Yields:
            A client of the new cluster. Both are closed when the context ends.

        Raises:
            ImportError: The class is not installed.
            ValueError: What it names is not a cluster.
            ConnectionError: It does not start, no worker comes in time, or it is not encrypted.
        """
        from partwise.blocks.cluster_start import connected, quiet

        kind = self._load_class()
        until = time.monotonic() + self.start_timeout_s
        with quiet(), ExitStack() as stack:
            with _failures_of_dask() as failures:
                cluster = self._start(kind)
                stack.callback(self._close, cluster)
                # Before anything is sent there.
                self._check_encryption(cluster.scheduler_address)
                client = stack.enter_context(connected(self._connect(cluster)))
                self._await_workers(client, until, failures)
            yield client

    def _load_class(self) -> "type[Cluster]":
        from distributed.deploy.cluster import Cluster

        name = self.cluster_class.strip()
        parts = _CLASS.fullmatch(name)
        assert parts is not None  # noqa: S101 (validated)
        try:
            with _keeping_handlers():
                found = getattr(importlib.import_module(parts["module"]), parts["name"], None)
        except ImportError as exc:
            raise ImportError(
                f"The cluster class {name} cannot be imported ({exc}): install its package here, "
                "with `pip install`, or correct the name."
            ) from exc
        if not (isinstance(found, type) and issubclass(found, Cluster)):
            what = "is not there" if found is None else "is not a class of Dask clusters"
            raise ValueError(
                f"The cluster class {name} {what}: give one that is made from "
                "distributed.deploy.Cluster, such as dask_jobqueue.SLURMCluster."
            )
        return found

    def _start(self, kind: "type[Cluster]") -> "Cluster":
        import dask

        from partwise.blocks.cluster_start import DASK_SETTINGS

        def start() -> "Cluster":
            with dask.config.set(DASK_SETTINGS):
                cluster = kind(**self.arguments)
                try:
                    self._scale(cluster)
                # What it has begun, such as jobs of a batch system, would go on.
                except BaseException:
                    cluster.close()
                    raise
                return cluster

        started = on_thread(_THREAD, start)
        try:
            return started.result(self.start_timeout_s)
        except Exception as exc:
            if not started.done():
                _close_when_it_comes(started)
                raise ConnectionError(
                    f"The {self.cluster_class} did not start within {self.start_timeout_s:g} s: "
                    "see what it waits for, and whether what it has begun goes on; or raise "
                    "start_timeout_s."
                ) from exc
            names = ", ".join(self.arguments) or "no arguments"
            raise ConnectionError(
                f"The {self.cluster_class} could not be started ({type(exc).__name__}: {exc}); it "
                f"was given {names}."
            ) from exc
        except BaseException:
            _close_when_it_comes(started)
            raise

    def _scale(self, cluster: "Cluster") -> None:
        if self.max_workers:
            cluster.adapt(minimum=max(self.workers, 1), maximum=self.max_workers)
        elif self.workers:
            cluster.scale(self.workers)

    def _check_encryption(self, address: str) -> None:
        parts = urlsplit(address)
        in_plaintext = parts.scheme in ("tcp", "ws", "ucx", "ucxx")
        is_safe = not in_plaintext or is_loopback(parts.hostname or "")
        if not (is_safe or self.allow_plaintext):
            raise ConnectionError(
                f"The {self.cluster_class} listens at {address}, in plaintext: anyone on the way "
                "could run code on the workers. Give it arguments for TLS (of dask_jobqueue: "
                "security=true), or set allow_plaintext on a network that you trust."
            )

    def _connect(self, cluster: "Cluster") -> "Client":
        from partwise.blocks.cluster_start import new_client

        try:
            return new_client(cluster)
        except OSError as exc:
            raise ConnectionError(
                f"The scheduler of the {self.cluster_class} does not answer at "
                f"{cluster.scheduler_address} ({exc}): check that this machine may reach it."
            ) from exc

    def _await_workers(self, client: "Client", until: float, failures: list[BaseException]) -> None:
        wanted, there = max(self.workers, 1), 0
        while True:
            # Dask's own `wait_for_workers` has no limit for a scheduler that does not answer.
            with suppress(ClusterError):
                found = known_workers(client, LOOK_S).values()
                there = sum(each["status"] == "running" for each in found)
            if there >= wanted:
                return
            if failures and not there:
                raise ConnectionError(
                    f"No worker of the {self.cluster_class} could be started "
                    f"({type(failures[0]).__name__}: {failures[0]})."
                ) from failures[0]
            if time.monotonic() > until:
                break
            time.sleep(AGAIN_S)
        if not there:
            remedy = "set workers, or " if not (self.workers or self.max_workers) else ""
            raise ConnectionError(
                f"No worker of the {self.cluster_class} came within {self.start_timeout_s:g} s: "
                f"{remedy}see in its queue and in the workers' logs what they wait for; or raise "
                "start_timeout_s."
            )
        logging.getLogger(__name__).warning(
            "%d of %d workers of the %s came within %g s: the run begins with them.",
            *(there, wanted, self.cluster_class, self.start_timeout_s),
        )

    def _close(self, cluster: "Cluster") -> None:
        import distributed

        closing = on_thread(_THREAD, cluster.close)
        try:
            closing.result(CLOSE_TIMEOUT_S)
        except Exception as exc:
            silent = f"no answer within {CLOSE_TIMEOUT_S:g} s"
            said = f"{type(exc).__name__}: {exc}".removesuffix(": ")
            reason = said if closing.done() else silent
            logging.getLogger(__name__).warning(
                "The %s could not be closed (%s): see whether its workers go on.",
                *(self.cluster_class, reason),
            )
            if closing.done():
                # A worker that failed as it started may hinder it, and the scheduler listens on.
                scheduler = getattr(cluster, "scheduler", None)
                if isinstance(scheduler, distributed.Scheduler):
                    with suppress(Exception):
                        cluster.sync(scheduler.close, callback_timeout=GIVE_UP_S)
                cluster.status = distributed.Status.closed


@contextmanager
def _failures_of_dask() -> Iterator[list[BaseException]]:
    """Gather what tasks of Dask's loop fail with, such as a job that is not taken.

    Nobody waits for these tasks, so that a traceback in a log is all that is seen of it.
    """
    seen: list[BaseException] = []

    def note(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            seen.append(error)
        return error is None

    logger = logging.getLogger("tornado.application")
    logger.addFilter(note)
    try:
        yield seen
    finally:
        logger.removeFilter(note)


@contextmanager
def _keeping_handlers() -> Iterator[None]:
    """Import with the handlers of signals as they are.

    dask_jobqueue 0.9 sets one of its own for SIGINT as it is imported, by which Ctrl-C would end
    the process at once, and not the run.
    """
    if threading.current_thread() is not threading.main_thread():
        # No other thread may set one; such an import fails there by itself.
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            # None: one that was not set from Python, and cannot be set back from here.
            if handler is not None:
                signal.signal(number, handler)


def _close_when_it_comes(started: "Future[Cluster]") -> None:
    def close(future: "Future[Cluster]") -> None:
        if future.exception() is None:
            future.result().close()

    started.add_done_callback(close)
    wait([started], GIVE_UP_S)
