"""A dry run on a few partitions: does the function work, and what would all of them take?"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.outcome import Produced
from partwise.engine.works import StoredModel, Work
from partwise.engine.written_models import read_written
from partwise.errors import SerdeError
from partwise.formatting import counted, duration
from partwise.outcomes import PartitionStatus
from partwise.shuffle.plan import ShardedRows

WARM_SECONDS = "warm_seconds"
"""The metric of what a partition takes once its process has imported what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWork:
    """Does the work on a partition twice: the first time includes what is done only once.

    A model that was trained is read back, too.
    """

    work: Work

    def rehearse(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,
    ) -> None:
        """Work on one partition the first time; a child then measures its time anew."""
        self.work(data, context, models, directory)

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,
    ) -> Produced:
        """Work on one partition the second time."""
        began = time.monotonic()
        produced = self.work(data, context, models, directory)
        seconds = time.monotonic() - began
        reader, written = produced.reader, produced.model
        if reader is not None and written is not None:
            try:
                read_written(reader, written)
            except Exception as error:
                raise SerdeError(
                    f"{type(reader).__name__} cannot read the model that it wrote: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return replace(produced, metrics={**produced.metrics, WARM_SECONDS: seconds})


def sample_of(sharded: ShardedRows, count: int) -> ShardedRows:
    """Choose partitions: the smallest, the largest, and others evenly between by their size."""
    order = np.argsort(sharded.key_rows, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, count).round().astype(np.int64))
    # One alone is the median.
    chosen = order[places if count > 1 else [len(order) // 2]]
    return _only(sharded, chosen)


def chosen_by_hash(sharded: ShardedRows, count: int, fewest_rows: int = 1) -> ShardedRows:
    """Choose partitions by the hashes of their keys: evenly, and the same ones in other rows."""
    # The order of the hashes is as good as random, and new partitions change few of the first.
    chosen = np.flatnonzero(sharded.key_rows >= fewest_rows)[:count]
    return _only(sharded, chosen)


def _only(sharded: ShardedRows, chosen: np.ndarray) -> ShardedRows:
    hashes = sharded.key_hashes[chosen]
    numbers = {int(number) for number in hashes % np.uint64(sharded.n_shards)}
    return replace(
        sharded,
        shards=tuple(shard for shard in sharded.shards if shard.number in numbers),
        rows=int(sharded.key_rows[chosen].sum()),
        key_hashes=hashes,
        key_rows=sharded.key_rows[chosen],
        keys=sharded.keys.take(pa.array(chosen)),
        only=frozenset(hashes.tolist()),
    )


def predict(ledger: pa.Table, sharded: ShardedRows, slots: int) -> str:
    """Say what all partitions would take, by what those of a sample took.

    Seconds are taken to be a + b * rows, with the a and b, neither below 0, that fit best.
    """
    sentence = f"A sample of {ledger.num_rows} of the {counted(sharded.partitions, 'partition')}."
    rows, seconds, memory = [], [], []
    for status, count, metrics, peak in zip(
        *(ledger[name].to_pylist() for name in ("status", "rows", "metrics", "peak_memory_bytes")),
        strict=True,
    ):
        warm = dict(metrics or ()).get(WARM_SECONDS)
        if status == PartitionStatus.DONE and warm is not None:
            rows.append(count)
            seconds.append(warm)
            memory.append(peak or 0)
    if not rows:
        return f"{sentence} None of them is DONE, so nothing can be said of all."
    fixed, each = _fit(np.array(rows, np.float64), np.array(seconds))
    every = fixed + each * sharded.key_rows
    total = max(float(every.sum()) / slots, float(every.max()))
    sentence += f" All of them would take about {duration(total)} on {counted(slots, 'slot')}"
    if max(memory):
        sentence += f", and up to {max(memory) / 2**20:,.0f} MiB of memory each"
    return f"{sentence}."


def _fit(rows: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """The line through points that fits best and has no negative part."""
    if len(set(rows.tolist())) > 1:
        each, fixed = np.polyfit(rows, seconds, 1)
        if each >= 0 and fixed >= 0:
            return float(fixed), float(each)
        if fixed < 0:
            return 0.0, float((rows @ seconds) / (rows @ rows))
    return float(seconds.mean()), 0.0
