"""Two drivers of one run: one is stopped before an operation on the store, the other takes over.

`points` stops the first driver before each operation of its work in turn. While it stands still,
the second one takes the run over and does all of its own work; then the first one goes on as if
nothing had happened. No time passes: the second works inside the operation of the first, which is
taken for one that has been silent for long, on another machine.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from partwise.errors import PartwiseError, RunBusyError, RunExistsError
from partwise.store import lease as lease_module
from partwise.store.store import Store


@dataclass
class Clockwork:
    """Counts the operations of a driver, and does something before one of them."""

    stop_at: int | None = None
    """Before which operation, from 1."""
    meanwhile: Callable[[], object] | None = None
    count: int = 0
    stopped_at: str = ""
    _lock: Any = field(default_factory=threading.RLock)

    def tick(self, verb: str, path: str) -> None:
        # The heartbeat has a thread and a time of its own, and harms nobody.
        if path.endswith(".heartbeat") or threading.current_thread().name == "lease-heartbeat":
            return
        with self._lock:
            self.count += 1
            if self.count == self.stop_at and self.meanwhile is not None:
                self.stopped_at = f"{verb} {path}"
                self.meanwhile()


@dataclass(frozen=True, kw_only=True)
class WatchedStore(Store):
    """A store that tells before each operation."""

    clockwork: Clockwork = field(compare=False, hash=False)


def _watched(verb: str) -> Callable[..., Any]:
    method = getattr(Store, verb)

    def call(self: WatchedStore, path: str, *more: Any) -> Any:
        self.clockwork.tick(verb, path)
        return method(self, path, *more)

    return call


OPERATIONS = ("read", "read_range", "write", "create", "exists", "size", "modified")
OPERATIONS += ("list_folder", "list", "delete", "delete_folder", "move")
for verb in OPERATIONS:
    if hasattr(Store, verb):
        setattr(WatchedStore, verb, _watched(verb))


@contextmanager
def silent_owners() -> Iterator[None]:
    """Have each owner of a run be taken for silent, so that whoever asks takes over at once."""
    kept = lease_module._wait_until_free
    lease_module._wait_until_free = lambda *arguments, **more: None
    try:
        yield
    finally:
        lease_module._wait_until_free = kept


@dataclass
class Tally:
    """What came of stopping a driver at many points."""

    tried: int = 0
    refused: int = 0
    """The first driver ended with a sentence: another one had taken over."""
    lost: list[str] = field(default_factory=list)
    """Points after which the second driver's work was not whole, and why."""


def copies(
    new_store: Callable[[], Store], before: Callable[[Store], object]
) -> Callable[[], Store]:
    """Return what gives a store for each point: what is there before is made once, and copied."""
    contents: dict[str, bytes] = {}

    def copy() -> Store:
        store = new_store()
        if contents:
            for path, content in contents.items():
                store.write(path, content)
        else:
            before(store)
            contents.update({path: store.read(path) for path in store.list("")})
        return store

    return copy


def points(
    prepare: Callable[[], Store],
    first: Callable[[Store], object],
    second: Callable[[Store], object],
    check: Callable[[Store], object],
    *,
    every: int = 1,
) -> Tally:
    """Stop the first driver before each operation, let the second finish, let the first go on.

    Args:
        prepare: Gives a store for each point, with what is there before.
        first: The driver that is stopped; it may be refused, as RunBusyError or RunExistsError.
        second: The driver that takes over.
        check: Raises where what the second made is not whole.
        every: Of the points only each n-th, the very first and the last few always.
    """
    tally, total = Tally(), _operations(prepare(), first)
    for number in range(1, total + 1):
        if number % every and 1 < number < total - 3:
            continue
        store = prepare()
        clockwork = Clockwork(number, lambda store=store: second(store))
        watched = WatchedStore(**_values(store), clockwork=clockwork)
        tally.tried += 1
        with silent_owners():
            try:
                try:
                    first(watched)
                except (RunBusyError, RunExistsError):
                    tally.refused += 1
                check(store)
            except (PartwiseError, AssertionError, OSError) as error:
                where = f"{number}: before {clockwork.stopped_at}"
                tally.lost.append(f"{where}: {type(error).__name__}: {error}"[:500])
    return tally


def _operations(store: Store, first: Callable[[Store], object]) -> int:
    clockwork = Clockwork()
    with silent_owners():
        first(WatchedStore(**_values(store), clockwork=clockwork))
    return clockwork.count


def _values(store: Store) -> dict[str, Any]:
    names = ("url", "endpoint_url", "region", "profile")
    return {name: getattr(store, name) for name in names}
