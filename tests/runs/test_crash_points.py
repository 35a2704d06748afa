"""A process that dies before any one of its writes: nothing committed is lost, a resume ends."""

from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset
import pytest

from partwise.engine.worker.shard_plan import plan_shard
from partwise.outcomes import RunStatus
from partwise.runs.completion import settle_unchanged
from partwise.runs.contents import files_there, read_committed
from partwise.runs.outputs import rewrite_partial_files
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_ids
from tests.run_maker import fingerprint_of

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"a": 1.0, "b": 20.0, "c": 3.0, "d": 4.0}


class Crash(BaseException):
    """The death of the process, which nothing may catch."""


class Fuse:
    """Lets a number of writes to the store pass, and dies before the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.dies_at: str | None = None
        for name in ("create", "write", "move", "delete"):
            monkeypatch.setattr(Store, name, self._guard(name, getattr(Store, name)))

    def _guard(self, verb: str, method):
        def guarded(store: Store, path: str, *content: bytes | str) -> None:
            if "/lease/" not in path:
                if self.left is not None:
                    self.left -= 1
                    if self.left < 0:
                        raise Crash(f"before {verb} {path}")
                if verb == self.dies_at:
                    raise Crash(f"before {verb} {path}")
            method(store, path, *content)

        return guarded


def work(make_run, values: dict[str, float], on_existing: str) -> Run:
    """Do as a driver and one worker do: keep what is the same, run the rest, one segment each."""
    claim = make_run.begin(on_existing)
    store, run_id = claim.store, claim.identity.run_id
    keys = list(values)
    names = partition_ids(pa.table({"key": keys}), make_run.columns)
    committed = read_committed(store, run_id, 0, claim.generation, claim.compatible)
    plan = plan_shard(
        names,
        [fingerprint_of(key, value) for key, value in values.items()],
        committed.current,
        committed.earlier,
        files_there(store, run_id, "map", 0),
    )
    assert not plan.committed
    kept = plan.kept
    if kept is not None:
        kept = rewrite_partial_files(
            store,
            run_id,
            kept,
            lambda name: name.replace(".parquet", f".{claim.generation}.parquet"),
        )
    rest = [(keys[place], "DONE", values[keys[place]]) for place in plan.waiting]
    if rest:
        make_run.commit(*rest[:2], carried=kept)
        if rest[2:]:
            make_run.commit(*rest[2:])
    elif kept is not None:
        make_run.commit(carried=kept)
    return make_run.end(len(values))


def check(run: Run, values: dict[str, float]) -> None:
    """See that a run is complete, and that readers with and without a ledger see the same."""
    assert run.status is RunStatus.SUCCESS
    assert run.counts == {"DONE": len(values)}
    for key, value in values.items():
        assert run.artifact(key, "note.txt") == f"{key} {value}"
    expected = [{"key": key, "value": value} for key, value in sorted(values.items())]
    assert run.predictions().sort_by("key").to_pylist() == expected
    files = pyarrow.dataset.dataset(f"{run.path}/outputs", format="parquet").to_table()
    assert files.sort_by("key").to_pylist() == expected


def look(run: Run) -> dict[str, float]:
    """See that all that an unfinished run shows can be read."""
    found = {}
    for key in run.partitions["key"].to_pylist():
        name, value = run.artifact(key, "note.txt").split()
        assert name == key
        found[key] = float(value)
    rows = run.predictions()
    assert dict(zip(*(rows.to_pydict() or {"key": [], "value": []}).values(), strict=True)) == found
    return found


@pytest.mark.parametrize("on_existing", ["resume", "overwrite"])
def test_a_crash_before_any_write_loses_nothing_that_was_committed(
    make_runs, monkeypatch, on_existing
) -> None:
    fuse = Fuse(monkeypatch)
    for survived in range(100):
        make_run = make_runs()
        fuse.left = None
        check(work(make_run, FIRST, "resume"), FIRST)
        fuse.left = survived
        try:
            work(make_run, SECOND, on_existing)
        except Crash:
            make_run.die()
        else:
            break
        fuse.left = None
        run = make_run.open()
        if run.generation == 1:
            check_readable_by_ledger(run)
        elif run.summary is None:
            # As if nothing had begun: neither less than before, nor a mixture.
            assert look(run) == FIRST
            assert look(run.newest).items() <= SECOND.items()
        else:
            assert run.counts == {"DONE": 4}
            assert look(run) == SECOND
        before = run.generation
        run = work(make_run, SECOND, "resume")
        assert run.generation == before + 1
        check(run, SECOND)
    assert survived > 6, "so many writes there are at least"
    check(make_run.open(), SECOND)


def check_readable_by_ledger(run: Run) -> None:
    assert run.status is RunStatus.SUCCESS
    assert look(run) == FIRST


def test_a_resume_with_nothing_to_do_ends_what_a_crash_left(make_run, monkeypatch) -> None:
    fuse = Fuse(monkeypatch)
    work(make_run, FIRST, "resume")
    fuse.dies_at = "move"
    with pytest.raises(Crash, match="before move runs/run/outputs/"):
        work(make_run, SECOND, "resume")
    make_run.die()
    fuse.dies_at = None
    # The summary is there, and so are output rows of two generations.
    claim = make_run.begin("resume")
    check(settle_unchanged(claim, datetime.now(UTC)), SECOND)
    make_run.leave()


def test_a_crash_at_the_very_beginning_leaves_a_run_to_begin(make_runs, monkeypatch) -> None:
    fuse = Fuse(monkeypatch)
    for survived in range(100):
        make_run = make_runs()
        fuse.left = survived
        try:
            work(make_run, FIRST, "error")
        except Crash:
            make_run.die()
        else:
            break
        fuse.left = None
        with suppress(LookupError):
            assert look(make_run.open()).items() <= FIRST.items()
        check(work(make_run, FIRST, "resume"), FIRST)
    assert survived > 5
