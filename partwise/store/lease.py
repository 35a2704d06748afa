"""Who works on a run now: one process at a time, and the next one when that has died.

    <run>/lease/0001.json        the claim, created only if absent: the owner
    <run>/lease/0001.heartbeat   a counter that the owner's process keeps moving, and what it says
                                 of its work
    <run>/lease/0001.released    the owner is done
    <run>/lease/0001.run         what a run not begun is to be: see `partwise.runs.documents`
    <run>/lease/0001.wanted      somebody waits for an owner that gives way
    <run>/lease/0001.cancel      somebody wants the owner to end its work
    <run>/lease/0001.step-0001   what the owner is about to delete or move; or that it may not any
                                 more, by whoever took over

To take over is to create the next number, which only one process can. Nothing is decided by
comparing clocks: on the owner's own machine its process is looked up, from elsewhere the counter is
watched.

An owner that was given up may live all the same, and go on in the middle of anything. What it
creates has names of its own and harms nobody. What it deletes or moves it has to announce first, as
a step that is created only if absent. Whoever takes over creates the next step of each earlier
owner in its place: so either it finds the announcement, and carries it out before it looks which
files are there, or the owner finds that it may not.
"""

import contextlib
import itertools
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from pydantic import JsonValue, ValidationError

from partwise.errors import RunBusyError, RunFormatError, StoreError
from partwise.mistakes import refused_format
from partwise.store.lease_owner import LeaseOwner, held_here
from partwise.store.store import Store
from partwise.store.strict_json import parse_json

HEARTBEAT_S = 3.0
"""Time between two moves of the counter, a tenth of the silence that means death."""
TELL_S = 2.0
"""That, where the owner says how its work stands."""
SILENCE_S = 30.0
"""After which an owner on another machine counts as dead."""
GIVE_WAY_S = 30.0
"""How long an owner that gives way is waited for."""

LOOK_S = 1.0
"""Between two looks of who waits for the end: on S3 each is three requests."""

_POLL_S = 0.5
_CLAIM = re.compile(r"(\d{4,})\.json")
_CLOSED = b"closed by "


class Lease:
    """The right of this process to work on a run, kept until it is released or the process dies.

    Example:
        >>> with Lease.acquire(store, "runs/nightly") as lease:
        ...     work()
        ...     lease.check()
        ...     finish()
    """

    def __init__(
        self,
        store: Store,
        run_path: str,
        number: int,
        owner: LeaseOwner,
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        self.owner = owner
        self._on_cancel = on_cancel
        self._store = store
        self._run_path = run_path
        self._number = number
        self._steps = 0
        self._word: Callable[[], JsonValue] | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._held = contextlib.ExitStack()
        self._held.enter_context(store.held())
        self._thread = threading.Thread(target=self._beat, name="lease-heartbeat", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(
        cls,
        store: Store,
        run_path: str,
        *,
        wait_s: float = SILENCE_S,
        gives_way: bool = False,
        asks: bool = True,
        on_cancel: Callable[[], None] | None = None,
    ) -> "Lease":
        """Become the one process that works on a run.

        An owner that lives on this machine is seen at once, and so is one that died on it. One on
        another machine is seen to live by its counter within a few seconds, and given up when that
        has not moved for `wait_s`. With `gives_way`, this owner looks at `is_wanted` now and then,
        and releases the run when it is: it is waited for, others are not. `asks`: whether an owner
        is wanted to. RunBusyError where the owner lives. `on_cancel` is called, once and on the
        thread that moves the counter, when somebody has asked for the end of the work.
        """
        owner = LeaseOwner.of_this_process(gives_way=gives_way)
        while True:
            number = _newest(store, run_path)
            # Only the newest claim counts: whoever made it had found those before it free or dead.
            if number:
                _wait_until_free(store, run_path, number, wait_s, asks=asks)
            # Before it is there: another thread of this process may look at it at once.
            held_here.add(owner.writer_id)
            try:
                store.create(_object(run_path, number + 1, "json"), _encoded(owner))
                return cls(store, run_path, number + 1, owner, on_cancel)
            except FileExistsError:
                held_here.discard(owner.writer_id)  # another process was faster; look who
            except BaseException:
                held_here.discard(owner.writer_id)
                raise

    def check(self) -> None:
        """Make sure that the run is still ours, before a step that ends it. Costs two requests.

        A process that was stopped for long, or cut off from the store, may have been given up.

        Raises:
            RunBusyError: If another process took the run over; this one must stop.
            StoreError: If the claim is not there any more: the store is not the one it was.
        """
        # A taker has to create the number after ours, so one look is enough. Nothing is locked
        # between it and the caller's next write: what is created has names of this generation, and
        # what is deleted or moved is announced by `announce`.
        if self._store.exists(_object(self._run_path, self._number + 1, "json")):
            raise self._taken_over()
        if not self._is_there():
            raise StoreError(
                f"{self._store.url} does not hold any more what this process wrote for "
                f"{self._run_path}: it was deleted, or the store was moved away, unmounted or made "
                f"again in the middle of the work. Put it back and resume, or begin again."
            )

    def tell(self, word: Callable[[], JsonValue]) -> None:
        """Say beside the counter, from now on and a little more often, what `word` returns then.

        It is for readers, `read_word`. It is called on a thread of the lease, and nothing that it
        or the store raises comes back.
        """
        self._word = word
        self._wake.set()

    @property
    def number(self) -> int:
        """Of the claim: all files of the lease begin with it."""
        return self._number

    @property
    def next_step(self) -> str:
        """Where the next announcement will lie, for whoever signs it."""
        return _step(self._run_path, self._number, self._steps + 1)

    def announce(self, step: bytes) -> None:
        """Write down what is about to be deleted or moved; without this nothing may be.

        Whoever takes the run over carries it out before anything else, so that a process that is
        stopped right behind this line deletes nothing later that others have found and kept. `step`
        is for `earlier_steps` of the next owner.

        Raises:
            RunBusyError: If another process took the run over; this one must stop.
        """
        try:
            self._store.create(self.next_step, step)
        except FileExistsError:
            raise self._taken_over() from None
        self._steps += 1

    def earlier_steps(self) -> Iterator[tuple[str, bytes]]:
        """Give the steps that earlier owners announced and may not have ended, the oldest first.

        Each is its path in the store, and what `announce` was given.

        They can announce no more. To be called by each new owner before it looks at what is there,
        and gone through to the end: what was given has to be carried out before the next is.
        """
        folder = f"{self._run_path}/lease"
        names = set(self._store.list_folder(folder))
        claims = sorted(int(found[1]) for found in map(_CLAIM.fullmatch, names) if found)
        for number in claims:
            if number >= self._number or f"{number:04d}.released" in names:
                continue
            for place in itertools.count(1):
                path = _step(self._run_path, number, place)
                try:
                    self._store.create(path, _CLOSED + self.owner.writer_id.encode())
                    break
                except FileExistsError:
                    content = self._store.read(path)
                if content.startswith(_CLOSED):
                    break
                yield path, content
            # Nothing is left of it to do, so no later owner has to look again.
            with contextlib.suppress(FileExistsError):
                self._store.create(
                    _object(self._run_path, number, "released"), self.owner.writer_id.encode()
                )

    def _taken_over(self) -> RunBusyError:
        number = self._number + 1
        try:
            taker = str(_read_owner(self._store, self._run_path, number))
        except FileNotFoundError:
            taker = "another process"
        return RunBusyError(
            f"Run {_run_id(self._run_path)} was taken over by {taker}, because this process "
            f"sent no heartbeat for too long; it stops here, what it has committed is kept."
        )

    def _is_there(self) -> bool:
        """Whether our claim is in the store, and is ours."""
        try:
            content = self._store.read(_object(self._run_path, self._number, "json"))
        except FileNotFoundError:
            return False
        return content == _encoded(self.owner)

    def is_wanted(self) -> bool:
        """Tell whether somebody waits for this owner to give way. Costs one request."""
        return self._store.exists(_object(self._run_path, self._number, "wanted"))

    def release(self, *, withdraw: bool = False) -> None:
        """Give the run free for the next process. To do so again does nothing.

        `withdraw`: nothing of the run was begun, and nothing is left of the claim. Its number may
        be given once more: a process that is stopped in the midst of this, and goes on much later,
        can delete the claim of another one, which finds that out by `check`.
        """
        # A forked child leaves the same `with` block, and must not give away what is its parent's.
        if self._stop.is_set() or os.getpid() != self.owner.pid:
            return
        self._stop.set()
        self._wake.set()
        # Let a beat that is under way end first.
        self._thread.join(timeout=5)
        try:
            with self._held:
                if withdraw:
                    self._take_back()
                else:
                    self._give_back()
        except StoreError:
            # Others on this machine see that this process lives, and would wait for its end.
            threading.Thread(
                target=self._give_back_later, name="lease-heartbeat", daemon=True
            ).start()
            raise
        finally:
            held_here.discard(self.owner.writer_id)

    def _give_back(self) -> None:
        # A run that was deleted is not to have a folder again.
        if self._is_there():
            with contextlib.suppress(FileExistsError):
                self._store.create(
                    _object(self._run_path, self._number, "released"), self.owner.writer_id.encode()
                )

    def _take_back(self) -> None:
        if self._is_there():
            claim = _object(self._run_path, self._number, "json")
            # The claim last: without it, the others would be nobody's.
            for path in set(self._store.list(claim.removesuffix("json"))) - {claim}:
                self._store.delete(path)
            self._store.delete(claim)

    def _give_back_later(self) -> None:
        while True:
            time.sleep(HEARTBEAT_S)
            with contextlib.suppress(StoreError):
                self._give_back()
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except StoreError:
            # An error that led here matters more than this one.
            if exc_type is None:
                raise

    def _beat(self) -> None:
        for counter in itertools.count():
            # A store that fails now may answer the next time; check() tells what came of it. In one
            # without our claim there is nothing to keep alive, and a write would make it again.
            with contextlib.suppress(StoreError):
                if not self._is_there():
                    return
                self._store.write(
                    _object(self._run_path, self._number, "heartbeat"),
                    json.dumps({"counter": counter, **self._told()}).encode(),
                )
                self._look_for_cancel()
            self._wake.wait(HEARTBEAT_S if self._word is None else TELL_S)
            # First, so that the wake of a release that comes now is not lost.
            self._wake.clear()
            if self._stop.is_set():
                return

    def _told(self) -> dict[str, JsonValue]:
        # Whatever is wrong with what is said: without a heartbeat the run would be given up.
        with contextlib.suppress(Exception):
            if self._word is not None:
                return {"word": self._word()}
        return {}

    def _look_for_cancel(self) -> None:
        call = self._on_cancel
        if call and self._store.exists(_object(self._run_path, self._number, "cancel")):
            self._on_cancel = None
            call()


def request_cancel(store: Store, run_path: str) -> bool:
    """Ask the process that works on a run to end its work; tell whether one may be at work.

    It finds the wish when it next moves its counter.
    """
    number = held_claim(store, run_path)
    if not number:
        return False
    store.write(_object(run_path, number, "cancel"), b"cancel\n")
    return True


class OwnerWatch:
    """Looks, time after time, whether somebody works on a run."""

    def __init__(self, store: Store, run_path: str) -> None:
        self._store, self._run_path = store, run_path
        self._last: tuple[int, bytes] | None = None
        self._moved_at = time.monotonic()

    def is_at_work(self) -> bool:
        """Whether an owner has the run, and has not been silent for so long."""
        number = _newest(self._store, self._run_path)
        if not number or self._store.exists(_object(self._run_path, number, "released")):
            return False
        state = _read_owner(self._store, self._run_path, number).state()
        if state != "out of sight":
            return state == "alive"
        seen = number, _heartbeat(self._store, self._run_path, number)
        if seen != self._last:
            self._last, self._moved_at = seen, time.monotonic()
        return time.monotonic() - self._moved_at < SILENCE_S

    def looks(self, timeout_s: float | None = None) -> Iterator[None]:
        """Come back every second while somebody works on the run, at most for so long."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while self.is_at_work() and (left_s := deadline - time.monotonic()) > 0:
            yield
            time.sleep(min(left_s, LOOK_S))


def _wait_until_free(
    store: Store, run_path: str, number: int, wait_s: float, *, asks: bool
) -> None:
    """Return when the owner of a claim is done or dead; RunBusyError when it is seen to live.

    `asks`: whether an owner that gives way is asked to.
    """
    if store.exists(_object(run_path, number, "released")):
        return
    try:
        owner = _read_owner(store, run_path, number)
    except FileNotFoundError:
        return  # taken back
    state = owner.state()
    if state == "gone":
        return
    if owner.gives_way and asks:
        # Not taken over at once: it may be about to delete what we would find and keep.
        store.write(_object(run_path, number, "wanted"), b"wanted\n")
        deadline = time.monotonic() + GIVE_WAY_S
        while time.monotonic() < deadline:
            # It may also end, or be killed, while it is waited for.
            if owner.state() == "gone" or store.exists(_object(run_path, number, "released")):
                return
            time.sleep(_POLL_S)
    # From another machine only change counts, never how old a heartbeat is: clocks differ.
    before = _heartbeat(store, run_path, number)
    moved = state == "alive"
    deadline = time.monotonic() + wait_s
    while not moved and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if store.exists(_object(run_path, number, "released")):
            return
        moved = _heartbeat(store, run_path, number) != before
    if moved:
        advice = "wait for it, or stop that process"
        if owner.pid == os.getpid() and state == "alive":
            advice = "that is this very process, which must end its other work on the run first"
        raise RunBusyError(f"Run {_run_id(run_path)} is worked on by {owner}; {advice}.")


def check_nobody_works(store: Store, run_path: str) -> None:
    """See that a run is free or its owner dead (else RunBusyError), as `Lease.acquire` does.

    Nothing is taken.
    """
    if number := _newest(store, run_path):
        _wait_until_free(store, run_path, number, SILENCE_S, asks=False)


def held_claim(store: Store, run_path: str) -> int:
    """Return the number of the claim by which a process works on a run; 0: none does.

    One whose owner died on another machine counts until somebody takes over: who only reads does
    not wait to see whether its counter moves.
    """
    names = store.list_folder(f"{run_path}/lease")
    number = _newest_of(names)
    if not number or f"{number:04d}.released" in names:
        return 0
    try:
        return 0 if is_gone(store, run_path, number) else number
    except FileNotFoundError:
        return 0  # the run's folder was deleted just now


def read_word(store: Store, run_path: str) -> JsonValue:
    """Return what the process that works on a run said last; None: nothing, or there is none."""
    if number := held_claim(store, run_path):
        with contextlib.suppress(FileNotFoundError, RunFormatError, ValueError):
            found = parse_json(store.read_document(_object(run_path, number, "heartbeat")))
            return found.get("word") if isinstance(found, dict) else None
    return None


def _newest(store: Store, run_path: str) -> int:
    return _newest_of(store.list_folder(f"{run_path}/lease"))


def _newest_of(names: Iterable[str]) -> int:
    return max((int(claim[1]) for name in names if (claim := _CLAIM.fullmatch(name))), default=0)


def _read_owner(store: Store, run_path: str, number: int) -> LeaseOwner:
    path = _object(run_path, number, "json")
    try:
        return LeaseOwner.model_validate_json(store.read_document(path))
    except ValidationError as error:
        raise RunFormatError(
            f"{path} in the artifact store {store.url} is not a claim that this release of "
            f"partwise can read{refused_format(error)}; install a newer one, or delete it if no "
            "process works on the run."
        ) from error


def _heartbeat(store: Store, run_path: str, number: int) -> bytes:
    try:
        return store.read(_object(run_path, number, "heartbeat"))
    except FileNotFoundError:
        return b""


def _object(run_path: str, number: int, kind: str) -> str:
    return f"{run_path}/lease/{number:04d}.{kind}"


def is_gone(store: Store, run_path: str, number: int = 1) -> bool:
    """Whether the process of a claim is known to have ended: only its own machine knows that."""
    return _read_owner(store, run_path, number).state() == "gone"


def _step(run_path: str, number: int, place: int) -> str:
    return _object(run_path, number, f"step-{place:04d}")


def _encoded(owner: LeaseOwner) -> bytes:
    return owner.model_dump_json(indent=2).encode() + b"\n"


def _run_id(run_path: str) -> str:
    return run_path.rpartition("/")[2]
