"""Cluster classes that do what those of batch systems and clouds may do, and their opposites."""

import threading
from typing import ClassVar

import distributed
from distributed.deploy.cluster import Cluster

NOT_A_CLASS = "a text"


class NoCluster:
    """Looks like one from afar."""

    def __init__(self) -> None:
        raise AssertionError("it was called")


class Small(distributed.LocalCluster):
    """Workers that are threads of this process; it notes that it was closed."""

    closed: ClassVar[list[str]] = []

    def __init__(self, n_workers: int = 1, **options) -> None:
        super().__init__(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            **options,
        )

    def close(self, timeout: float | None = None) -> None:
        self.closed.append(self.name)
        super().close(timeout)


class OnTheNetwork(Small):
    """Says that it listens where others are."""

    @property
    def scheduler_address(self) -> str:
        return "tcp://192.0.2.1:8786"


class NoQueue(Small):
    """Asks for workers that never come."""

    def scale(self, n: int) -> None:
        if not n:
            super().scale(n)

    def adapt(self, **options) -> None:
        pass


class CannotScale(Small):
    def scale(self, n: int) -> None:
        if n:
            raise NotImplementedError("no more machines")
        super().scale(n)


class HangsAtItsEnd(Small):
    """Is closed when it is let."""

    let = threading.Event()

    def close(self, timeout: float | None = None) -> None:
        self.let.wait(60)
        super().close(timeout)


class FailsAtItsEnd(Small):
    """Is closed, and says then that it was not, without a word."""

    def close(self, timeout: float | None = None) -> None:
        super().close(timeout)
        raise TimeoutError


class Late(Small):
    """Starts when it is let; `Cluster` is all that a class has to be made from."""

    let = threading.Event()

    def __init__(self) -> None:
        self.let.wait(60)
        super().__init__()


class NoAccount(Cluster):
    def __init__(self, region: str) -> None:
        raise PermissionError(f"no account in {region}")
