"""What `partwise runs gc` deletes: all that no ledger row refers to, and nothing else."""

import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.errors import RunBusyError, RunNotFoundError
from partwise.flows import map_partitions
from partwise.runs.documents import run_path
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store.lease import Lease
from partwise.store.store import Store


def with_factor(factor: int):
    def function(data, context):
        context.upload(f"{context.key} times {factor}", "note.txt")
        return {"value": [context.key * factor]}

    return function


@pytest.fixture
def call(dask_client, tmp_path):
    cluster = RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=True)

    def run(factor: int, on_existing: str = "error", keys: int = 6) -> Run:
        return map_partitions(
            pa.table({"key": list(range(keys))}),
            "key",
            with_factor(factor),
            run_id="run",
            store=tmp_path,
            on_existing_artifacts=on_existing,
            execution=ExecutionOptions(n_shards=2),
            cluster=cluster,
        )

    return run


def test_a_fresh_run_has_no_garbage(call) -> None:
    run = call(1)
    assert collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files == []


@pytest.mark.slow
def test_an_overwritten_generation_goes_and_the_run_stays_whole(call) -> None:
    call(1)
    run = call(2, "overwrite")
    # What the first one was to work on is needed no more; all else is kept for a day.
    early = collect_garbage(run.store, "run", dry_run=False).files
    assert [path for path, _ in early] == ["runs/run/generations/0001.keys-0001.parquet"]
    before = run.store.list("runs/run/")
    planned = collect_garbage(run.store, "run", dry_run=True, grace_hours=0)
    assert run.store.list("runs/run/") == before
    assert planned.files
    assert all(size > 0 for _, size in planned.files)
    assert collect_garbage(run.store, "run", dry_run=False, grace_hours=0) == planned
    left = run.refresh()
    assert not {path for path, _ in planned.files} & set(left.store.list("runs/run/"))
    assert left.artifact(3, "note.txt") == "3 times 2"
    assert sorted(left.predictions()["value"].to_pylist()) == [0, 2, 4, 6, 8, 10]
    assert collect_garbage(run.store, "run", dry_run=True, grace_hours=0).files == []
    again = call(2, "resume")
    assert (again.kept, again.executed) == (6, 0)


@pytest.mark.slow
def test_what_a_resume_kept_stays(call) -> None:
    call(1)
    call(1, "resume", keys=8)
    store = Store.parse(call(1, "resume", keys=8).store.url)
    collect_garbage(store, "run", dry_run=False, grace_hours=0)
    run = call(1, "resume", keys=9)
    assert (run.kept, run.executed) == (8, 1)
    assert [run.artifact(key, "note.txt") for key in (0, 8)] == ["0 times 1", "8 times 1"]


def test_nothing_is_deleted_while_somebody_works_on_the_run(call) -> None:
    run = call(1)
    with (
        Lease.acquire(run.store, run_path("run")),
        pytest.raises(RunBusyError, match="run"),
    ):
        collect_garbage(run.store, "run", dry_run=False)


@pytest.mark.slow
def test_of_an_unfinished_run_only_scratch_goes(call) -> None:
    run = call(1)
    run.store.delete("runs/run/generations/0001.summary.json")
    run.store.write("runs/run/scratch/token/rows", b"rows of shards")
    deleted = collect_garbage(run.store, "run", dry_run=False, grace_hours=0).files
    assert deleted == [("runs/run/scratch/token/rows", 14)]


def test_an_unknown_run_is_named(tmp_path) -> None:
    with pytest.raises(RunNotFoundError, match="nope"):
        collect_garbage(Store.parse(tmp_path), "nope", dry_run=True)
