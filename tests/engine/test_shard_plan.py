"""The rule of keeping, without any store or process."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.engine.worker.shard_plan import ShardPlan, plan_shard
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.runs.ledger import LedgerRow, segment_table

BUNDLE, OUTPUT = "bundles/b.zip", "outputs/o.parquet"
ENDS = [PartitionStatus.DONE, PartitionStatus.SKIPPED, PartitionStatus.FAILED]
ENDS += [PartitionStatus.CANCELLED, PartitionStatus.INTERNAL_ERROR]


def ledger_row(name: str, status: str = "DONE", fingerprint: str = "f", **changes) -> LedgerRow:
    return LedgerRow(
        partition_id=name,
        shard=0,
        generation=1,
        status=status,
        rows=1,
        fingerprint=fingerprint,
        **changes,
    )


def artifact(bundle: str) -> StoredArtifact:
    return StoredArtifact(
        filename="model.txt",
        serde="",
        bundle=bundle,
        offset=0,
        size_bytes=1,
        stored_bytes=1,
        compression="stored",
        sha256="",
    )


def ledger(*rows: LedgerRow) -> pa.Table | None:
    keys = pa.table({"key": [row.partition_id for row in rows]})
    return segment_table(keys, list(rows)) if rows else None


def kept(plan: ShardPlan) -> list[str]:
    return [] if plan.kept is None else plan.kept["partition_id"].to_pylist()


def plan_one(now: str = "f", files: set[str] = frozenset(), **row) -> ShardPlan:
    return plan_shard(["a"], [now], None, ledger(ledger_row("a", **row)), set(files))


def test_without_anything_committed_all_partitions_wait() -> None:
    plan = plan_shard(["a", "b"], ["f", "g"], None, None, set())
    assert (plan.waiting, plan.committed, plan.kept) == ([0, 1], {}, None)


def test_a_done_partition_of_the_same_fingerprint_is_kept() -> None:
    plan = plan_one()
    assert kept(plan) == ["a"]
    assert not plan.waiting


@pytest.mark.parametrize("status", ENDS[1:])
def test_what_is_not_done_runs_again(status) -> None:
    assert plan_one(status=status).waiting == [0]


def test_another_fingerprint_runs_again() -> None:
    assert plan_one(now="g").waiting == [0]


def test_a_row_without_a_fingerprint_is_never_kept() -> None:
    assert plan_one(fingerprint=None).waiting == [0]


def test_a_partition_whose_files_are_gone_runs_again() -> None:
    refers = {"artifacts": (artifact(BUNDLE),), "rows_file": OUTPUT}
    assert kept(plan_one(files={BUNDLE, OUTPUT}, **refers)) == ["a"]
    assert plan_one(files={BUNDLE}, **refers).waiting == [0]
    assert plan_one(files={OUTPUT}, **refers).waiting == [0]


def test_what_this_generation_committed_counts_whatever_its_status() -> None:
    current = ledger(ledger_row("a", "FAILED"), ledger_row("b", "DONE", "other"))
    plan = plan_shard(["a", "b", "c"], ["f", "f", "f"], current, ledger(ledger_row("a")), set())
    assert plan.waiting == [2]
    assert plan.committed == {"FAILED": 1, "DONE": 1}
    assert plan.kept is None


def test_a_partition_that_has_no_rows_now_is_not_kept() -> None:
    plan = plan_shard(["a"], ["f"], None, ledger(ledger_row("a"), ledger_row("gone")), set())
    assert kept(plan) == ["a"]


names = st.lists(st.sampled_from("abcdefgh"), unique=True)


@st.composite
def ledgers(draw) -> list[LedgerRow]:
    row = st.tuples(st.sampled_from(ENDS), st.sampled_from(["f", "g", None]), st.booleans())
    return [
        ledger_row(
            name,
            status,
            fingerprint,
            artifacts=(artifact(BUNDLE),) if has_files else (),
            rows_file=OUTPUT if has_files else None,
        )
        for name in draw(names)
        for status, fingerprint, has_files in [draw(row)]
    ]


@given(
    ids=names,
    prints=st.lists(st.sampled_from("fg"), min_size=8, max_size=8),
    current=ledgers(),
    earlier=ledgers(),
    files=st.sampled_from([set(), {BUNDLE}, {OUTPUT}, {BUNDLE, OUTPUT}]),
)
def test_every_partition_waits_is_committed_or_is_kept(ids, prints, current, earlier, files):
    # A generation commits only partitions that it was given.
    current = [row for row in current if row.partition_id in ids]
    now = dict(zip(ids, prints, strict=False))
    plan = plan_shard(ids, list(now.values()), ledger(*current), ledger(*earlier), files)
    waiting = [ids[place] for place in plan.waiting]
    committed = [row.partition_id for row in current]
    assert sorted(waiting + committed + kept(plan)) == sorted(ids)
    assert waiting == [name for name in ids if name in waiting]
    assert plan.committed.total() == len(current)
    assert set(kept(plan)) == {
        row.partition_id
        for row in earlier
        if row.partition_id in now
        and row.partition_id not in committed
        and row.status == "DONE"
        and row.fingerprint == now[row.partition_id]
        and (not row.artifacts or {BUNDLE, OUTPUT} <= files)
    }
