"""Lanes of workers, and seconds against rows."""

import numpy as np

from partwise.reports.skew import MOST_DOTS, describe_skew
from partwise.reports.timeline import MOST_BARS, MOST_LANES, MOST_WORKERS, describe_timeline
from tests.reports.conftest import at


def work(key, host, shard, start, stop, **more):
    times = {"seconds": stop - start, "finished_at": at(stop)}
    return {"key": key, "host": host, "shard": shard, "rows": 10, **times, **more}


def test_partitions_of_a_shard_are_one_bar_in_its_workers_lane(make_ledger) -> None:
    rows = [
        work("a", "vm/10", 0, 0, 2),
        work("b", "vm/10", 0, 2, 4, status="FAILED"),
        work("c", "vm/10", 3, 5, 10),
        work("d", "vm/9", 1, 1, 6),
    ]
    found = describe_timeline(make_ledger.complete(rows).ledger)
    assert found is not None
    assert (found.began_at, found.seconds, found.workers, found.hosts) == (at(0), 10, 2, 1)
    assert [lane.worker for lane in found.lanes] == ["9", "10"]
    first, second = found.lanes[1].bars
    assert (first.left, first.width, first.failed, first.row) == (0, 40, 50, 0)
    assert first.text == "shard 0: 0 s to 4 s, 2 partitions, 1 failed"
    assert (second.left, second.width, second.failed) == (50, 50, 0)
    assert (found.lanes[1].busy_share, found.lanes[0].busy_share) == (90, 50)
    assert found.busy_share == 70


def test_what_a_worker_does_at_once_stands_below_each_other(make_ledger) -> None:
    rows = [work("a", "vm/0", 0, 0, 6), work("b", "vm/0", 1, 3, 9), work("c", "vm/0", 2, 6, 10)]
    (lane,) = describe_timeline(make_ledger.complete(rows).ledger).lanes
    assert [bar.row for bar in lane.bars] == [0, 1, 0]
    assert lane.rows == 2


def test_a_worker_of_an_older_release_is_its_host(make_ledger) -> None:
    rows = [work("a", "vm", 0, 0, 6), work("b", None, 1, 0, 6)]
    lanes = describe_timeline(make_ledger.complete(rows).ledger).lanes
    assert [(lane.worker, lane.host) for lane in lanes] == [("unknown", "unknown"), ("vm", "vm")]


def test_lanes_and_bars_are_few_however_many_workers_and_shards_there_are(make_ledger) -> None:
    rows = [work(f"k{i}", f"n{i % 200}/w", i, i, i + 1) for i in range(10_000)]
    found = describe_timeline(make_ledger.complete(rows).ledger)
    assert (found.workers, len(found.lanes)) == (200, MOST_WORKERS)
    bars = [len(lane.bars) for lane in found.lanes]
    assert sum(bars) <= MOST_BARS
    assert all(bars[:MOST_LANES])
    assert not any(bars[MOST_LANES:])
    assert sum(lane.partitions for lane in found.lanes) == 50 * MOST_WORKERS


def key_of(row: int) -> str:
    return f"row {row}"


def test_the_slowest_are_named_and_always_drawn(make_ledger) -> None:
    chance = np.random.default_rng(1)
    seconds = chance.random(3000) + 0.1
    seconds[[5, 77, 2999]] = [30, 40, 50]
    rows = [
        work(f"{i:04d}", "vm/0", 0, 0, float(s), rows=i + 1, status="DONE" if i % 3 else "FAILED")
        for i, s in enumerate(seconds)
    ]
    found = describe_skew(make_ledger.complete(rows).ledger, key_of)
    assert [slow.key for slow in found.slowest][:3] == ["row 2999", "row 77", "row 5"]
    assert (found.slowest[0].seconds, found.slowest[0].rows) == ("50 s", "3,000")
    assert found.slowest[0].dot.y == 0
    assert len(found.dots) + len(found.slowest) == MOST_DOTS
    assert sum(band.partitions for band in found.bands) == found.partitions == 3000
    assert found.is_log == (True, True)
    assert 350 < sum(dot.is_wrong for dot in found.dots) < 650


def test_where_all_have_as_many_rows_seconds_have_a_histogram(make_ledger) -> None:
    rows = [work(f"k{i}", "vm/0", 0, 0, 1 + i) for i in range(9)]
    found = describe_skew(make_ledger.complete(rows).ledger, key_of)
    assert sum(bar.count for bar in found.histogram.bins) == 9
    assert [band.rows for band in found.bands] == ["10"]
    assert found.times_median == 1.8
