"""Whether what a ledger refers to is on the store."""

from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.outcomes import CANCELLED, PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.runs.completion import UnfinishedShard, complete_run
from partwise.runs.contents import are_there, bundles_of, files_there, read_committed
from partwise.runs.ledger import LedgerRow, segment_table
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_ids
from tests.run_maker import RunMaker, ending

BUNDLES = ["bundles/0.zip", "bundles/1.zip", "bundles/2.zip"]
OUTPUTS = ["outputs/0.parquet", "outputs/1.parquet"]
ROWS = st.tuples(
    st.lists(st.sampled_from(BUNDLES), max_size=2), st.none() | st.sampled_from(OUTPUTS)
)


def artifact(bundle: str) -> StoredArtifact:
    return StoredArtifact(
        filename="x",
        bundle=bundle,
        offset=0,
        size_bytes=1,
        stored_bytes=1,
        compression="stored",
        sha256="",
        serde="",
    )


@given(st.lists(ROWS, max_size=8), st.sets(st.sampled_from(BUNDLES + OUTPUTS)), st.integers(0, 3))
@settings(max_examples=60)
def test_a_row_is_there_when_all_its_files_are(rows, files, start) -> None:
    ledger = segment_table(
        pa.table({"key": pa.array([str(i) for i in range(len(rows))], pa.string())}),
        [
            LedgerRow(
                partition_id=str(i),
                shard=0,
                generation=1,
                status="DONE",
                rows=1,
                artifacts=tuple(map(artifact, bundles)),
                rows_file=output,
            )
            for i, (bundles, output) in enumerate(rows)
        ],
    )
    rows, ledger = rows[start:], ledger.slice(start)
    assert bundles_of(ledger) == {bundle for bundles, _ in rows for bundle in bundles}
    assert are_there(ledger, files).to_pylist() == [
        files >= set(bundles) and (output is None or output in files) for bundles, output in rows
    ]


def test_a_run_is_whole_until_one_of_its_files_is_gone(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "FAILED", 2.0))
    run = make_run.end(2)
    files = files_there(run.store, "run", "map")
    assert files == files_there(run.store, "run", "map", shard=0)
    assert files_there(run.store, "run", "map", shard=1) == set()
    assert run.is_whole()
    for name in [*files, "generations/0001.ledger.parquet"]:
        content = run.store.read(f"runs/run/{name}")
        run.store.delete(f"runs/run/{name}")
        assert not run.refresh().is_whole()
        run.store.write(f"runs/run/{name}", content)
    assert run.refresh().is_whole()


@pytest.mark.parametrize(
    ("second", "compatible", "expected"),
    [
        # One that is complete has all that was kept; of one that died, the others count on.
        ("complete", (2,), {"a": ("DONE", 2), "b": ("FAILED", 2)}),
        ("died", (1, 2), {"a": ("DONE", 2), "b": ("FAILED", 2), "c": ("DONE", 1)}),
        ("lost its worker", (2,), {"a": ("DONE", 2)}),
    ],
)
def test_where_all_that_is_done_is_kept_the_newest_generation_has_the_word(
    make_run, second, compatible, expected
) -> None:
    keys = "ab" if second != "died" else "abc"
    make_run.begin(code="1")
    make_run.commit(*((key, "DONE", 1.0) for key in keys))
    make_run.end(len(keys))
    make_run.begin(code="2")
    make_run.commit(("a", "DONE", 2.0))
    if second != "lost its worker":
        make_run.commit(("b", "FAILED", 2.0))
    if second == "complete":
        make_run.end(2)
    elif second == "lost its worker":
        shard = UnfinishedShard(
            shard=0,
            keys=pa.table({"key": ["a", "b"]}),
            status=PartitionStatus.INTERNAL_ERROR,
            reason="its worker died",
        )
        complete_run(make_run.claim, replace(ending(2), unfinished=(shard,)))
    make_run.die()
    claim = make_run.begin("resume-failed", code="3")
    assert claim.compatible == compatible
    earlier = read_committed(
        claim.store, "run", 0, claim.generation, claim.compatible, keeps_done=True
    ).earlier
    rows = earlier.select(["key.key", "status", "generation"]).to_pylist()
    assert {row["key.key"]: (row["status"], row["generation"]) for row in rows} == expected


YEAR_1, NOW = datetime(1, 1, 1), datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    "generations",
    [
        [("int64", [-1, 5]), ("uint64", [5, 2**64 - 1])],
        [("uint64", [5, 2**64 - 1]), ("int64", [-1, 5])],
        [("timestamp[us]", [YEAR_1, NOW]), ("timestamp[ns]", [NOW])],
        [("large_string", ["a"]), ("string", ["a", "b"])],
    ],
)
def test_keys_of_earlier_generations_get_the_types_of_today(tmp_path, generations) -> None:
    store = Store.parse(tmp_path)
    for kind, keys in generations:
        maker = RunMaker(store, keys=pa.schema([("key", kind)]))
        maker.begin()
        maker.commit(*((key, "DONE", 1.0) for key in keys))
        maker.die()
    for kind, keys in generations:
        today = pa.table({"key": pa.array(keys, kind)})
        ids = partition_ids(today, maker.columns)
        earlier = read_committed(
            store, "run", 0, 3, (1, 2), ids=ids, key_types=today.schema.types
        ).earlier
        assert earlier is not None
        assert earlier["key.key"].combine_chunks() == today["key"].combine_chunks()


@pytest.mark.parametrize(
    ("third", "stop", "expected"),
    [
        # It died before it came to "b", which is tried again for its failure in the second one.
        ((), None, {"a": "DONE", "b": "FAILED", "c": "DONE"}),
        ((("b", "SKIPPED", 3.0),), None, {"a": "DONE", "b": "SKIPPED", "c": "DONE"}),
        ((("b", "DONE", 3.0),), None, {"a": "DONE", "b": "DONE", "c": "DONE"}),
        # What it says of those that it did not work on counts for nothing.
        ((), CANCELLED, {"a": "DONE", "b": "FAILED", "c": "DONE"}),
    ],
)
def test_of_a_resume_that_keeps_all_that_is_done_readers_see_what_it_goes_by(
    make_run, third, stop, expected
) -> None:
    make_run.begin(code="1")
    make_run.commit(("a", "DONE", 1.0), ("b", "DONE", 1.0), ("c", "DONE", 1.0))
    make_run.die()
    make_run.begin(code="2")
    make_run.commit(("b", "FAILED", 2.0))
    make_run.die()
    claim = make_run.begin("resume-failed", code="3")
    assert claim.compatible == (1, 2)
    if third:
        make_run.commit(*third)
    if stop is not None:
        keys = pa.table({"key": ["a", "b", "c"]})
        shard = UnfinishedShard(
            shard=0, keys=keys, status=PartitionStatus.CANCELLED, reason="cancelled"
        )
        complete_run(claim, replace(ending(3, stop), unfinished=(shard,)))
    make_run.die()
    rows = Run.open("run", claim.store).ledger.select(["key.key", "status"]).to_pylist()
    assert {row["key.key"]: row["status"] for row in rows} == expected
