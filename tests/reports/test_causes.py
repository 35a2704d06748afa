"""Failures by fingerprint, others by reason."""

from partwise.outcomes import PartitionStatus
from partwise.reports.causes import MOST_GROUPS, describe_causes

FAILED, LOST = PartitionStatus.FAILED, PartitionStatus.INTERNAL_ERROR


def failure(i, fingerprint, message="bad"):
    error = {"error_type": "a.b.Bad", "error_message": message, "error_fingerprint": fingerprint}
    return {"key": f"k{i:03d}", "status": "FAILED", **error}


def test_failures_are_grouped_with_the_largest_first(make_ledger) -> None:
    rows = [failure(i, "big" if i % 3 else "small", f"bad {i}") for i in range(12)]
    rows += [{"key": f"lost {i}", "status": "INTERNAL_ERROR", "reason": "died"} for i in range(2)]
    rows += [{"key": "fine"}]
    ledger = make_ledger.complete(rows).ledger
    keys = ledger["key.key"].to_pylist()
    found = describe_causes(ledger, (FAILED, LOST), keys.__getitem__)
    assert [(cause.count, cause.fingerprint) for cause in found.groups] == [
        (8, "big"),
        (4, "small"),
        (2, None),
    ]
    assert found.partitions == 14
    big, small, lost = found.groups
    assert big.samples == ("k001", "k002", "k004", "k005", "k007")
    assert (big.title, big.message) == ("Bad", "bad 1")
    assert (small.share, small.samples[0]) == (50, "k000")
    assert (lost.title, lost.status, lost.message) == ("INTERNAL_ERROR", "INTERNAL_ERROR", "died")
    assert ledger["partition_id"][keys.index("k001")].as_py() == big.partition_id


def test_more_groups_than_anybody_reads_are_counted(make_ledger) -> None:
    rows = [failure(i, f"f{i}", "m" * 5000) for i in range(100)]
    found = describe_causes(make_ledger.complete(rows).ledger, (FAILED,), str)
    assert len(found.groups) == MOST_GROUPS
    assert (found.other_groups, found.other_partitions) == (100 - MOST_GROUPS, 100 - MOST_GROUPS)
    assert found.groups[0].left_out == 3000
    assert len(found.groups[-1].message) < 1000


def test_without_failures_there_are_no_groups(make_ledger) -> None:
    found = describe_causes(make_ledger.complete([{"key": "a"}]).ledger, (FAILED,), str)
    assert (found.groups, found.partitions, found.other_groups) == ((), 0, 0)
