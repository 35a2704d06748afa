"""Random histories of a run against a model in memory: what readers see at every step.

A history is a list of calls (new code, new rows, resume or overwrite), each of which may be killed
before any one of its writes, be cancelled, or go through; with garbage collections and damaged
segments between them. Before each write to the store a reader looks.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.engine.worker.shard_plan import plan_shard
from partwise.errors import IntegrityError, RunFormatError
from partwise.outcomes import CANCELLED
from partwise.runs.contents import files_there, ledger_segments, read_committed
from partwise.runs.garbage import collect_garbage
from partwise.runs.outputs import rewrite_partial_files
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_ids
from tests.run_maker import RunMaker, fingerprint_of
from tests.thoroughness import THOROUGH

KEYS = "abcd"
LOOKS = Counter[str]()
"""What readers met, over all histories of this process."""

Models = dict[str, str]
"""The text of the model of each key that has one."""
Attempt = tuple[int, int, frozenset[tuple[str, int]]]
"""How often the run was overwritten before, the code, the rows."""


class Crash(BaseException):
    """The death of the process, which nothing may catch."""


@dataclass(frozen=True)
class Call:
    """One call of a flow."""

    code: int
    values: dict[str, int]
    """The rows of each partition, as a number; on odd ones the function fails."""
    overwrites: bool
    writes: int | None
    """After so many writes to the store its process dies."""
    stops_after: int | None
    """Partitions after which it is cancelled."""

    def number(self, key: str) -> float:
        return 100.0 * self.code + self.values[key]

    def models(self, keys: list[str]) -> Models:
        """What a new run makes of these partitions."""
        return {key: f"{key} {self.number(key)}" for key in keys if self.values[key] % 2 == 0}

    def outcome(self, key: str) -> tuple[str, str, float]:
        return key, "FAILED" if self.values[key] % 2 else "DONE", self.number(key)


@dataclass(frozen=True)
class Collection:
    grace_hours: float


@dataclass(frozen=True)
class Damage:
    segment: int


@dataclass
class History:
    """A run, and what its readers have to see."""

    maker: RunMaker
    complete: Models | None = None
    """What the newest complete generation holds; None: none was complete."""
    attempts: dict[Attempt, Models] = field(default_factory=dict)
    """What was committed while none was complete, the newest attempt last."""
    overwritten: int = 0
    is_damaged: bool = False
    """Whether a segment was damaged since the last complete generation."""
    was_collected: bool = False
    """Whether a garbage collection left readers no grace."""
    committed: list[Models] = field(default_factory=list)
    """What each attempt had committed, one state after the other."""
    states: list[Models] = field(default_factory=lambda: [{}])
    """All that readers could see, one after the other."""
    handles: list[tuple[Run, Models]] = field(default_factory=list)
    """Readers who have begun, with what they have seen."""
    openings: list[tuple[Run, int, bool]] = field(default_factory=list)
    """Handles that have read nothing yet, how many states there were before, and `is_damaged`."""

    def shown(self) -> Models:
        if self.complete is not None:
            return self.complete
        most = max(map(len, self.attempts.values()), default=0)
        return [m for m in self.attempts.values() if len(m) == most][-1] if self.attempts else {}

    def advance(self) -> None:
        if self.states[-1] != self.shown():
            self.states.append(dict(self.shown()))

    def begin(self, call: Call) -> Attempt:
        self.overwritten += call.overwrites
        attempt = (self.overwritten, call.code, frozenset(call.values.items()))
        if self.complete is None:
            self.attempts[attempt] = self.attempts.pop(attempt, {})
            self.advance()
        return attempt

    def commit(self, attempt: Attempt, models: Models) -> None:
        if self.complete is None:
            self.attempts[attempt] |= models
            self.committed.append(dict(self.attempts[attempt]))
            self.advance()

    def settle(self, call: Call) -> None:
        self.complete = call.models(list(call.values))
        self.attempts, self.is_damaged = {}, False
        self.advance()

    def is_possible(self, found: Models, states: list[Models], is_damaged: bool) -> bool:
        if is_damaged:
            # Of a run that never was complete, and lost a segment: the rest of one attempt, which
            # may be another one than before.
            return any(found.items() <= state.items() for state in [*states, *self.committed])
        return found in states

    def look(self, where: str) -> None:
        """See what somebody sees who opens the run now."""
        try:
            run = self.maker.open()
        except LookupError:
            assert self.states == [{}], where
            return
        assert self.is_possible(read(run), [self.shown()], self.is_damaged), where
        LOOKS["new reader"] += 1

    def look_back(self) -> None:
        """See that readers who have begun go on with what they hold, or hear that it went."""
        openings, self.openings = self.openings, []
        for run, number, was_damaged in openings:
            with self._going("late reader"):
                is_damaged = was_damaged or self.is_damaged
                assert self.is_possible(read(run), self.states[number:], is_damaged)
        handles, self.handles = self.handles, []
        for run, seen in handles:
            with self._going("old reader"):
                assert read(run) == seen
                self.handles.append((run, seen))
        run = self.maker.open()
        self.openings.append((run, len(self.states) - 1, self.is_damaged))
        run = run.refresh()
        self.handles = [*self.handles[-3:], (run, read(run))]

    def _going(self, who: str) -> "Going":
        return Going(self, who)


class Going:
    """Allows a reader to be refused in words where a collection left no grace."""

    def __init__(self, history: History, who: str) -> None:
        self._history, self._who = history, who

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: object, trace: object) -> bool:
        if isinstance(error, IntegrityError | RunFormatError) and self._history.was_collected:
            LOOKS[f"{self._who}, refused"] += 1
            return True
        LOOKS[self._who] += kind is None
        return False


def read(run: Run) -> Models:
    """Read all that a run shows: each partition's model and its output row, which must agree."""
    rows = run.partitions.select(["key", "status"]).to_pylist()
    found = {
        row["key"]: run.artifact(row["key"], "note.txt") for row in rows if row["status"] == "DONE"
    }
    output = run.predictions().to_pylist()
    assert {row["key"]: f"{row['key']} {row['value']}" for row in output} == found
    assert len(output) == len(found)
    return found


class Watch:
    """Looks before each write to the store, and lets the process die before one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.history: History | None = None
        self.call: Call | None = None
        self.left: int | None = None
        for verb in ("create", "write", "move", "delete"):
            monkeypatch.setattr(Store, verb, self._guard(verb, getattr(Store, verb)))
        self._is_inner = False

    def _guard(self, verb: str, method: Callable[..., None]) -> Callable[..., None]:
        def guarded(store: Store, path: str, *more: bytes | str) -> None:
            # A move deletes; leases are not what readers read.
            if self._is_inner or self.history is None or "/lease/" in path:
                return method(store, path, *more)
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Crash(f"before {verb} {path}")
            self.history.look(f"{verb} {path}")
            self._is_inner = True
            try:
                method(store, path, *more)
            finally:
                self._is_inner = False
            if path.endswith(".summary.json") and self.call is not None:
                self.history.settle(self.call)
            return None

        return guarded


def carry_out(history: History, watch: Watch, call: Call) -> None:
    """Do as a driver and one worker do, in segments of two partitions."""
    maker = history.maker
    keys = list(call.values)
    claim = maker.begin(
        "overwrite" if call.overwrites else "resume",
        code=f"code {call.code}",
        inputs=f"rows {sorted(call.values.items())}",
    )
    attempt = history.begin(call)
    committed = read_committed(maker.store, "run", 0, claim.generation, claim.compatible)
    plan = plan_shard(
        partition_ids(pa.table({"key": keys}), maker.columns),
        [fingerprint_of(key, call.number(key)) for key in keys],
        committed.current,
        committed.earlier,
        files_there(maker.store, "run", "map", 0),
    )
    kept = plan.kept
    if kept is not None:
        kept = rewrite_partial_files(
            maker.store,
            "run",
            kept,
            lambda name: name.replace(".parquet", f".{claim.generation}.parquet"),
        )
        maker.commit(carried=kept)
        history.commit(attempt, call.models(kept["key.key"].to_pylist()))
    waiting = [keys[place] for place in plan.waiting]
    working = waiting[: call.stops_after]
    for start in range(0, len(working), 2):
        part = working[start : start + 2]
        maker.commit(*map(call.outcome, part))
        history.commit(attempt, call.models(part))
    if left := waiting[len(working) :]:
        maker.commit(*[(key, "CANCELLED", 0.0) for key in left])
        maker.end(len(keys), CANCELLED)
        LOOKS["cancelled"] += 1
        return
    watch.call = call
    run = maker.end(len(keys))
    assert read(run) == call.models(keys), "a resume keeps only what a new run would make"
    LOOKS["complete"] += 1
    LOOKS["kept"] += run.kept


def damage(history: History, step: Damage) -> None:
    paths = ledger_segments(history.maker.store, "run")
    if not paths:
        return
    store = history.maker.store
    path = paths[step.segment % len(paths)]
    store.write(path, store.read(path)[:-20])
    history.is_damaged = history.complete is None
    LOOKS["damaged"] += 1


CALLS = st.builds(
    Call,
    code=st.sampled_from([1, 1, 2]),
    values=st.fixed_dictionaries(
        {"a": st.integers(0, 2), "b": st.integers(0, 2)},
        optional={"c": st.integers(0, 2), "d": st.integers(0, 2)},
    ),
    overwrites=st.sampled_from([False, False, True]),
    writes=st.none() | st.integers(0, 12),
    stops_after=st.none() | st.none() | st.integers(0, 3),
)
STEPS = st.lists(
    CALLS
    | CALLS
    | CALLS
    | st.builds(Collection, st.sampled_from([24.0, 24.0, 0.0]))
    | st.builds(Damage, st.integers(0, 9)),
    min_size=2,
    max_size=9,
)


def follow(make_runs: Callable[[], RunMaker], steps: list, watch: Watch) -> None:
    """Go through a history; then a last resume gives what a new run would give."""
    history = watch.history = History(make_runs())
    last = Call(code=1, values={"a": 0, "b": 2}, overwrites=False, writes=None, stops_after=None)
    for step in [*steps, last]:
        match step:
            case Call():
                watch.left, watch.call = step.writes, None
                try:
                    carry_out(history, watch, step)
                except Crash:
                    LOOKS["killed"] += 1
                finally:
                    history.maker.die()
                    watch.left = watch.call = None
            case Collection(grace_hours=hours):
                history.was_collected |= hours == 0
                try:
                    collect_garbage(history.maker.store, "run", dry_run=False, grace_hours=hours)
                except LookupError:
                    continue
            case Damage():
                watch.history = None
                damage(history, step)
                watch.history = history
        history.look(f"after {step}")
        if history.maker.store.exists("runs/run/run.json"):
            history.look_back()


@given(steps=STEPS)
@settings(max_examples=12, deadline=None)
def test_readers_see_one_complete_generation_or_all_of_one_attempt(make_runs, watch, steps) -> None:
    follow(make_runs, steps, watch)


@pytest.mark.slow
@given(steps=STEPS)
@settings(max_examples=400 if THOROUGH else 40, deadline=None)
def test_thousands_of_looks_differ_nowhere(make_runs, watch, steps) -> None:
    follow(make_runs, steps, watch)


@pytest.fixture(scope="module")
def watch():
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Watch(monkeypatch)
    # No history met only half of what it is made of.
    assert all(LOOKS[name] for name in ("new reader", "old reader", "killed", "kept", "damaged"))
