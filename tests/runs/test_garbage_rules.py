"""What may never be deleted of a run, whatever generations and late executions left in it."""

import shutil
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise.errors import (
    InputError,
    IntegrityError,
    RunBusyError,
    RunFormatError,
    RunNotFoundError,
)
from partwise.outcomes import CANCELLED
from partwise.runs import garbage
from partwise.runs.contents import read_committed
from partwise.runs.garbage import Garbage, collect_garbage
from partwise.runs.run import Run
from partwise.store.lease import held_claim
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.runs.test_moved_clocks import clock_moved
from tests.two_drivers import Clockwork, WatchedStore

KEYS = "abcd"


def done(keys: str, value: float = 0.0) -> list[tuple[str, str, float]]:
    return [(key, "DONE", value) for key in keys]


def files(run: Run) -> set[str]:
    """The names of the run's files, but for those of leases."""
    paths = run.store.list(f"runs/{run.run_id}/")
    names = (path.removeprefix(f"runs/{run.run_id}/") for path in paths)
    return {name for name in names if not name.startswith("lease/")}


def content(run: Run) -> dict[str, tuple[str, str]]:
    """All that a reader can get of a run."""
    run = run.refresh()
    rows = run.partitions.select(["key", "status"]).to_pydict()
    found = {}
    for key, status in zip(rows["key"], rows["status"], strict=True):
        found[key] = (status, "".join(run.artifact(key, name) for name in run.artifacts(key)))
    output = sorted(row["key"] for row in run.predictions().to_pylist())
    found["rows"] = ("", "".join(output))
    return found


def outcomes(ledger: pa.Table) -> list[dict[str, object]]:
    return ledger.select(["partition_id", "status", "fingerprint", "finished_at"]).to_pylist()


def test_what_an_overwrite_and_late_executions_leave_is_deleted(make_run) -> None:
    make_run.begin()
    first = make_run.commit(*done(KEYS))
    make_run.end(4)
    make_run.begin("overwrite")
    second = make_run.commit(*done("ab", 1.0))
    zombie = make_run.commit(*done("ab", 2.0), generation=1)
    third = make_run.commit(*done("cd", 1.0))
    run = make_run.end(4)
    late = make_run.commit(*done("cd", 3.0), generation=2)
    before, kept = files(run), content(run)
    assert collect_garbage(run.store, "run", dry_run=False).files == []
    found = collect_garbage(run.store, "run", dry_run=True, grace_hours=0).files
    assert files(run) == before
    deleted = collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files
    assert deleted == found
    assert all(size > 0 for _, size in deleted)
    gone = {path.removeprefix("runs/run/") for path, _ in deleted}
    assert gone == before - files(run)
    gone -= {"generations/0001.ledger.parquet"}
    tokens = [name.split("-")[1] for name in gone]
    assert set(tokens) == {first, zombie, late}
    assert {name for name in files(run) if second in name or third in name}
    assert content(run) == kept
    assert collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files == []


def test_a_resume_finds_all_that_it_found_before(make_run) -> None:
    make_run.begin()
    make_run.commit(*done("ab"))
    make_run.commit(*done("cd"))
    run = make_run.end(4)
    make_run.begin()
    others = run.ledger.filter(pc.not_equal(run.ledger["key.key"], "a"))
    make_run.commit(*done("a", 1.0), carried=others)
    run = make_run.end(4)
    collect_garbage(run.store, "run", dry_run=False, grace_hours=0)
    # What is left is one segment of the second generation, with rows of the first.
    committed = read_committed(run.store, "run", 0, 3, (1, 2))
    earlier = committed.earlier
    assert committed.current is None
    assert earlier is not None
    assert outcomes(earlier) == outcomes(run.ledger)
    assert earlier["generation"].to_pylist() == [2, 1, 1, 1]
    assert len([name for name in files(run) if name.startswith("ledger/")]) == 1


@pytest.mark.parametrize("stopped", [None, CANCELLED])
def test_of_an_unfinished_run_only_staged_files_go(make_run, stopped) -> None:
    make_run.begin()
    make_run.commit(*done(KEYS))
    make_run.end(4)
    make_run.begin()
    make_run.commit(*done("a", 1.0))
    if stopped:
        make_run.commit(*[(key, "CANCELLED", 0.0) for key in "bcd"])
        run = make_run.end(4, stopped)
    else:
        make_run.leave()
        run = make_run.open()
    run.store.write("runs/run/scratch/token/rows.arrow", b"rows")
    before = files(run)
    deleted = collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files
    assert deleted == [("runs/run/scratch/token/rows.arrow", 4)]
    assert files(run) == before - {"scratch/token/rows.arrow"}


def test_nothing_goes_while_somebody_works_on_the_run(make_run) -> None:
    make_run.begin()
    make_run.commit(*done(KEYS))
    make_run.end(4)
    make_run.begin()
    run = make_run.open()
    run.store.write("runs/run/scratch/token/rows.arrow", b"rows")
    before = files(run)
    with pytest.raises(RunBusyError, match="run is worked on by"):
        collect_garbage(run.store, "run", dry_run=False, grace_hours=0)
    make_run.leave()
    assert files(run) == before


def test_nothing_goes_when_the_ledger_cannot_be_trusted(make_run) -> None:
    make_run.begin()
    make_run.commit(*done(KEYS))
    make_run.commit(*done("a", 2.0))
    run = make_run.end(4)
    Path(run.path, "generations/0001.ledger.parquet").write_bytes(b"?")
    before = files(run)
    with pytest.raises(IntegrityError, match=r"0001.ledger.parquet of the run 'run' differs"):
        collect_garbage(run.store, "run", dry_run=False, grace_hours=0)
    assert files(run) == before
    with pytest.raises(RunNotFoundError, match="no run 'other'"):
        collect_garbage(run.store, "other", dry_run=False, grace_hours=0)
    assert not Path(run.store.url, "runs/other").exists()


def test_what_readers_could_see_has_its_grace(make_run, monkeypatch) -> None:
    make_run.begin()
    first = make_run.commit(*done(KEYS))
    make_run.end(4)
    make_run.begin("overwrite")
    make_run.commit(*done(KEYS, 1.0))
    run = make_run.end(4)
    before = files(run)
    reader = Run.open("run", run.store, generation=1)
    assert collect_garbage(run.store, "run", dry_run=False).files == []
    assert files(run) == before
    # An hour after the second was complete, and a day.
    for hours, there in ((1, True), (25, False)):
        later = datetime.now(UTC) + timedelta(hours=hours)
        monkeypatch.setattr(garbage, "now", lambda later=later: later)
        collect_garbage(run.store, "run", dry_run=False)
        assert any(first in name for name in files(run)) == there
    with pytest.raises(RunFormatError, match=r"was worked on since .* open it again"):
        _ = reader.ledger
    with pytest.raises(InputError, match="grace_hours is -1; it must be 0 or more"):
        collect_garbage(run.store, "run", dry_run=True, grace_hours=-1)


def test_what_was_replaced_has_its_grace_though_the_newer_one_has_a_slow_clock(make_run) -> None:
    make_run.begin()
    first = make_run.commit(*done(KEYS))
    make_run.end(4)
    with clock_moved(-1.0):
        make_run.begin("overwrite")
        make_run.commit(*done(KEYS, 1.0))
        run = make_run.end(4)
    older, newer = run.complete_generations()
    assert newer.finished_at < older.finished_at
    collect_garbage(run.store, "run", dry_run=False)
    assert any(first in name for name in files(run))


def test_of_a_complete_run_the_newest_checkpoint_alone_stays(make_run) -> None:
    make_run.begin()
    make_run.commit(*done("ab"))
    store = make_run.store
    root = "runs/run/checkpoints"

    def leave(name: str, *contents: str) -> set[str]:
        for content in contents:
            store.create(f"{root}/{name}/{content}", b"content")
        return {f"{root}/{name}/{content}" for content in contents}

    older = leave("0001-01-000001-00000000", "00000", "checkpoint.json")
    newest = leave("0001-02-000001-00000000", "00000", "00001", "checkpoint.json")
    torn = leave("0001-02-000002-00000000", "00000")
    make_run.end(2)
    assert collect_garbage(store, "run", dry_run=False).files == []
    assert set(store.list(root)) == older | newest | torn
    deleted = [
        path for path, _ in collect_garbage(store, "run", dry_run=False, grace_hours=0).files
    ]
    assert set(deleted) == older | torn
    assert deleted[0].endswith("checkpoint.json")
    assert set(store.list(root)) == newest


def overwrite_often(make_run: RunMaker, times: int = 5) -> None:
    make_run.begin()
    make_run.commit(*done("abcdefgh"))
    make_run.end(8)
    for _ in range(times):
        make_run.begin("overwrite")
        for key in "abcdefgh":
            make_run.commit(*done(key, 1.0))
        make_run.end(8)


def test_a_collection_gives_way_to_whoever_works_on_the_run(make_run, monkeypatch) -> None:
    overwrite_often(make_run)
    run = make_run.open()
    at_work, go_on = threading.Event(), threading.Event()
    delete = Store.delete

    def slow_delete(store: Store, path: str) -> None:
        if threading.current_thread() is not threading.main_thread() and "/lease/" not in path:
            at_work.set()
            go_on.wait(30)
        delete(store, path)

    monkeypatch.setattr(Store, "delete", slow_delete)
    monkeypatch.setattr(garbage, "AT_ONCE", 3)
    found = []
    collector = threading.Thread(
        target=lambda: found.append(collect_garbage(run.store, "run", dry_run=False, grace_hours=0))
    )
    collector.start()
    assert at_work.wait(30)
    # Another collection is refused: it is not worth waiting for.
    with pytest.raises(RunBusyError, match="run is worked on by"):
        collect_garbage(run.store, "run", dry_run=False)
    asked = threading.Timer(0.3, go_on.set)
    asked.start()
    make_run.begin()
    asked.join()
    collector.join()
    assert found[0].gave_way
    assert len(found[0].files) == 3, "it ends before the next step once it is asked to"
    before = files(run)
    make_run.commit(*done("abcdefgh", 2.0))
    make_run.end(8)
    # Output rows are set aside when they are replaced; all else is where it was.
    assert files(run) > {name for name in before if not name.startswith("outputs/")}


@dataclass
class Noting(Clockwork):
    """Writes down what each operation is."""

    verbs: list[str] = field(default_factory=list)

    def tick(self, verb: str, path: str) -> None:
        super().tick(verb, path)
        self.verbs += [verb] * (self.count - len(self.verbs))


def collected(folder: Path, clockwork: Noting) -> Garbage:
    watched = WatchedStore(url=str(folder), clockwork=clockwork)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(garbage, "AT_ONCE", 10)
        patched.setattr(garbage, "_LOOK_EVERY", 5)
        return collect_garbage(watched, "run", dry_run=False, grace_hours=0)


@pytest.fixture(scope="module")
def overwritten(tmp_path_factory) -> tuple[Path, list[str]]:
    """The folder of a store, and the operations of a collection in it."""
    folder, copy = (tmp_path_factory.mktemp("overwritten") / each for each in ("store", "copy"))
    overwrite_often(RunMaker(Store.parse(folder)), times=2)
    shutil.copytree(folder, copy)
    clockwork = Noting()
    collected(copy, clockwork)
    return folder, clockwork.verbs


@given(place=st.integers(0, 9999), verb=st.sampled_from(["", "size"]))
@example(place=0, verb="size")
@settings(max_examples=9)
def test_whoever_wants_the_run_at_any_moment_has_it_soon_and_misses_nothing(
    overwritten, tmp_path_factory, place, verb
) -> None:
    folder = tmp_path_factory.mktemp("wanted") / "store"
    shutil.copytree(overwritten[0], folder)
    store = Store.parse(folder)
    there, before = files(Run.open("run", store)), content(Run.open("run", store))
    wanted_at: list[set[str]] = []

    def want() -> None:
        if number := held_claim(store, "runs/run"):
            store.write(f"runs/run/lease/{number:04d}.wanted", b"wanted")
            wanted_at.append(files(Run.open("run", store)))

    places = [number for number, each in enumerate(overwritten[1], 1) if verb in ("", each)]
    clockwork = Noting(places[place % len(places)], want)
    found = collected(folder, clockwork)
    run = Run.open("run", store)
    after = files(run)
    assert {path.removeprefix("runs/run/") for path, _ in found.files} == there - after
    assert content(run) == before
    if wanted_at:
        assert len(wanted_at[0] - after) <= 10, "at most the step at work goes on"
    if clockwork.stopped_at.startswith("size"):
        assert (found.gave_way, found.files) == (True, [])
        assert clockwork.verbs[clockwork.stop_at :].count("size") <= 5, "it looks soon"


GENERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["resume", "overwrite"]),
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from(["DONE", "FAILED"])),
            min_size=1,
            max_size=5,
        ),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(generations=GENERATIONS)
@settings(max_examples=12)
def test_no_reader_and_no_resume_misses_anything(make_runs, generations) -> None:
    make_run = make_runs()
    run = None
    for on_existing, segments, ends in generations:
        earlier = None if run is None or on_existing == "overwrite" else run.ledger
        if earlier is not None:
            touched = pa.array([key for key, _ in segments])
            chosen = pc.and_(
                pc.invert(pc.is_in(earlier["key.key"], touched)),
                pc.equal(earlier["status"], "DONE"),
            )
            earlier = earlier.filter(chosen)
        make_run.begin(on_existing)
        if earlier is not None and earlier.num_rows:
            make_run.commit(carried=earlier)
        for number, (key, status) in enumerate(segments):
            make_run.commit((key, status, float(number)))
        if ends:
            keys = {key for key, _ in segments}
            keys |= set() if earlier is None else set(earlier["key.key"].to_pylist())
            run = make_run.end(len(keys))
        else:
            make_run.leave()
            run = make_run.open()
    stands = make_run.open()
    before = content(stands)
    collect_garbage(stands.store, "run", dry_run=False, grace_hours=0)
    after = make_run.open()
    assert content(after) == before
    number = after.generation
    kept = read_committed(after.store, "run", 0, number + 1, range(1, number + 1)).earlier
    if after.summary is not None:
        assert kept is not None
        found = {row["partition_id"]: row for row in outcomes(kept)}
        assert all(found[row["partition_id"]] == row for row in outcomes(after.ledger))
