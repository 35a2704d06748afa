"""What may never be deleted of a run, whatever generations and late executions left in it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import IntegrityError, RunBusyError, RunNotFoundError
from partwise.outcomes import CANCELLED
from partwise.runs.contents import read_committed
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run

KEYS = "abcd"


def done(keys: str, value: float = 0.0) -> list[tuple[str, str, float]]:
    return [(key, "DONE", value) for key in keys]


def files(run: Run) -> set[str]:
    """The names of the run's files, but for those of leases."""
    paths = run.store.list(f"runs/{run.run_id}/")
    names = (path.removeprefix(f"runs/{run.run_id}/") for path in paths)
    return {name for name in names if not name.startswith("lease/")}


def content(run: Run) -> dict[str, tuple[str, bytes]]:
    """All that a reader can get of a run."""
    run = run.refresh()
    rows = run.partitions.select(["key", "status"]).to_pydict()
    found = {}
    for key, status in zip(rows["key"], rows["status"], strict=True):
        found[key] = (status, b"".join(run.artifact(key, name) for name in run.artifacts(key)))
    output = sorted(row["key"] for row in run.predictions().to_pylist())
    found["rows"] = ("", "".join(output).encode())
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
    told = collect_garbage(run.store, "run", dry_run=True)
    assert files(run) == before
    deleted = collect_garbage(run.store, "run", dry_run=False)
    assert deleted == told
    assert all(size > 0 for _, size in deleted)
    gone = {path.removeprefix("runs/run/") for path, _ in deleted}
    assert gone == before - files(run)
    tokens = [name.split("-")[1] for name in gone]
    assert set(tokens) == {first, zombie, late}
    assert {name for name in files(run) if second in name or third in name}
    assert content(run) == kept
    assert collect_garbage(run.store, "run", dry_run=False) == []


def test_a_resume_finds_all_that_it_found_before(make_run) -> None:
    make_run.begin()
    make_run.commit(*done("ab"))
    make_run.commit(*done("cd"))
    run = make_run.end(4)
    make_run.begin()
    others = run.ledger.filter(pc.not_equal(run.ledger["key.key"], "a"))
    make_run.commit(*done("a", 1.0), carried=others)
    run = make_run.end(4)
    collect_garbage(run.store, "run", dry_run=False)
    # What is left is one segment of the second generation, with rows of the first.
    current, earlier = read_committed(run.store, "run", 0, 3, (1, 2))
    assert current is None
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
    deleted = collect_garbage(run.store, "run", dry_run=False)
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
        collect_garbage(run.store, "run", dry_run=False)
    make_run.leave()
    assert files(run) == before


def test_nothing_goes_when_the_ledger_cannot_be_trusted(make_run) -> None:
    make_run.begin()
    make_run.commit(*done(KEYS))
    make_run.commit(*done("a", 2.0))
    run = make_run.end(4)
    Path(run.path, "ledger.parquet").write_bytes(b"?")
    before = files(run)
    with pytest.raises(IntegrityError, match=r"ledger.parquet of the run 'run' differs"):
        collect_garbage(run.store, "run", dry_run=False)
    assert files(run) == before
    with pytest.raises(RunNotFoundError, match="no run 'other'"):
        collect_garbage(run.store, "other", dry_run=False)
    assert not Path(run.store.url, "runs/other").exists()


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
    collect_garbage(stands.store, "run", dry_run=False)
    after = make_run.open()
    assert content(after) == before
    number = after.generation
    _, kept = read_committed(after.store, "run", 0, number + 1, range(1, number + 1))
    if after.summary is not None:
        assert kept is not None
        found = {row["partition_id"]: row for row in outcomes(kept)}
        assert all(found[row["partition_id"]] == row for row in outcomes(after.ledger))
