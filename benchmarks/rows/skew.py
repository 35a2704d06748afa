"""Partitions of unequal size: how far from the best possible end a run is.

No order of work ends before the largest partition, nor before all of the work shared among the
workers. The bound is the greater of both, by the seconds that the ledger has for each partition.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row
from benchmarks.rows.models import FEATURES, make_rows, train

WORKERS = 2
LARGE, SLOW = "partwise, a large one", "partwise, slow ones"
LONG_S, SHORT_S = 0.35, 0.0005


def row(place: Place) -> Row:
    """Run both kinds of skew."""
    keys, rows = place.size(2_000, 100), place.size(600_000, 30_000)
    short, long = place.size(10_000, 500), place.size(20, 5)

    def prepare() -> None:
        _write_large(place.folder / "large.parquet", keys, rows)
        _write_slow(place.folder / "slow.parquet", short, long)

    return Row(
        title="Skew",
        work=f"{rows:,} rows in {keys:,} partitions, one of which has 30 %, a model of each; and "
        f"{long} partitions of {LONG_S} s among {short:,} of {SHORT_S * 1e3} ms. The bound is the "
        f"work shared among {WORKERS} workers, or the largest partition, by the ledger.",
        contestants=[
            Contestant(LARGE, place.ours(__name__, "large", place.folder, OUT), "a run"),
            Contestant(SLOW, place.ours(__name__, "slow", place.folder, OUT), "a run"),
        ],
        goals=[
            Goal(f"makespan / bound, {name}", 1.1, lambda found, name=name: found[name]["of bound"])
            for name in (LARGE, SLOW)
        ],
        shown="of bound",
        turns=place.size(3, 1),
        limit_s=place.size(600, 60),
        prepare=prepare,
    )


def _write_large(path: Path, keys: int, rows: int) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    small = np.arange(1, keys).repeat(-(-rows // keys))[: int(rows * 0.7)]
    key = np.concatenate([np.zeros(rows - len(small), int), small])
    pq.write_table(make_rows(np.random.default_rng(0).permutation(key)), path)


def _write_slow(path: Path, short: int, long: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    seconds = np.random.default_rng(0).permutation([LONG_S] * long + [SHORT_S] * short)
    pq.write_table(pa.table({"key": np.arange(len(seconds)), "seconds": seconds}), path)


def by_large(folder: Path, out: Path) -> Mapping[str, float]:
    """Train on partitions of which one is large."""
    return _map(folder / "large.parquet", out, _train)


def _train(data: Any, context: Any) -> None:  # noqa: ARG001 (what every function takes)
    train(data.to_numpy(FEATURES), data.to_numpy("y"))


def by_slow(folder: Path, out: Path) -> Mapping[str, float]:
    """Keep a core busy for as long as each row says."""
    return _map(folder / "slow.parquet", out, _spin)


def _spin(data: Any, context: Any) -> None:  # noqa: ARG001 (what every function takes)
    end = time.perf_counter() + float(data.to_numpy("seconds")[0])
    while time.perf_counter() < end:
        pass


def _map(rows: Path, out: Path, function: Any) -> Mapping[str, float]:
    from partwise import LocalCluster, map_partitions

    run = map_partitions(
        str(rows), "key", function, store=str(out), cluster=LocalCluster(workers=WORKERS)
    )
    assert run.summary is not None
    seconds = run.partitions["seconds"].to_numpy()
    makespan, bound = run.summary.stages["map"], max(seconds.sum() / WORKERS, seconds.max())
    return {"makespan": makespan, "bound": bound, "of bound": makespan / bound}


if __name__ == "__main__":
    take_part({"large": by_large, "slow": by_slow})
