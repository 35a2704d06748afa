"""A dry run: the work done twice, its model read back, and a guess of what all would take."""

import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.child.main import MARK, Child
from partwise.engine.outcome import Produced
from partwise.engine.sample import WARM_SECONDS, SampleWork, predict, sample_of
from partwise.engine.works import MapWork, TrainWork
from partwise.errors import SerdeError
from partwise.shuffle.plan import ShardedRows

DATA = DataConnector(pa.table({"key": ["a"], "x": [1.0]}))


class TextSerde:
    filename = "model.txt"

    def write(self, model: Any, path: str) -> None:
        Path(path).write_text(str(model))

    def read(self, path: str) -> Any:
        return Path(path).read_text()


class WriteOnlySerde(TextSerde):
    def read(self, path: str) -> Any:
        raise ValueError("lost in writing")


def train(serde, folder) -> Any:
    work = SampleWork(work=TrainWork(function=lambda data, context: "model", serde=serde))
    return work(DATA, PartitionContext(), None, str(folder))


def produce(function: Any, mark: bytearray) -> Produced:
    """Have a child with this mark do the work of a dry run."""
    child = SimpleNamespace(
        settings=SimpleNamespace(threads=1, directory=""),
        connection=None,
        enclose=None,
        _mark=mark,
        _obstacle=None,
        _seeding=SimpleNamespace(seed_all=lambda seed: None),
    )
    shard = SimpleNamespace(
        opened=SimpleNamespace(
            key_columns=["key"],
            partition_ids=["a"],
            offsets=[0, 1],
            seeds=[0],
            models={},
            run_id="run",
        ),
        reader=SimpleNamespace(partition=lambda start, stop: DATA.to_arrow()),
        keys=["a"],
        params={},
        share_of=lambda index: None,
    )
    work = SampleWork(work=MapWork(function=function, key_columns=("key",)))
    return Child._produce(child, shard, work, 0, 1)


def test_the_work_is_done_twice_and_each_time_has_the_whole_time_of_a_partition() -> None:
    mark, began = bytearray(MARK.size), []
    produced = produce(lambda data, context: began.append(MARK.unpack_from(mark)), mark)
    (first, second) = began
    assert first == (0, 0)
    assert second[0] == 0
    assert 0 < second[1] <= time.monotonic_ns()
    assert produced.metrics[WARM_SECONDS] >= 0


def test_a_model_that_can_be_read_back_is_fine(tmp_path) -> None:
    assert Path(train(TextSerde(), tmp_path).model.content).read_text() == "model"


def test_a_model_that_cannot_be_read_back_is_told_before_the_real_run(tmp_path) -> None:
    with pytest.raises(SerdeError, match=r"WriteOnlySerde cannot read .* ValueError: lost in writ"):
        train(WriteOnlySerde(), tmp_path)


@pytest.fixture
def sharded() -> ShardedRows:
    sizes = np.array([5, 1, 9, 3, 7, 2, 8], dtype=np.int64)
    return ShardedRows(
        key_columns=(),
        n_shards=4,
        shards=tuple(SimpleNamespace(number=number) for number in range(4)),
        rows=int(sizes.sum()),
        key_hashes=np.arange(7, dtype=np.uint64),
        key_rows=sizes,
        keys=pa.table({"key": range(7)}),
        dropped_rows=0,
        schema=pa.schema([]),
        empty_columns=frozenset(),
    )


def test_a_sample_holds_the_smallest_and_the_largest(sharded) -> None:
    chosen = sample_of(sharded, 3)
    assert sorted(chosen.key_rows.tolist()) == [1, 5, 9]
    assert chosen.rows == 15
    assert chosen.only == {0, 1, 2}
    assert [shard.number for shard in chosen.shards] == [0, 1, 2]


def test_one_partition_alone_is_the_median(sharded) -> None:
    assert sample_of(sharded, 1).key_rows.tolist() == [5]


@dataclass
class Took:
    rows: int
    seconds: float | None
    status: str = "DONE"


def ledger(*partitions: Took) -> pa.Table:
    kind = pa.map_(pa.string(), pa.float64())
    metrics = [[] if one.seconds is None else [(WARM_SECONDS, one.seconds)] for one in partitions]
    return pa.table(
        {
            "status": [one.status for one in partitions],
            "rows": [one.rows for one in partitions],
            "metrics": pa.array(metrics, kind),
            "peak_memory_bytes": [100 << 20] * len(partitions),
        }
    )


def test_time_grows_with_rows(sharded) -> None:
    # 1 s + 2 s a row: 7 partitions with 35 rows take 77 s, on two slots half of it.
    sentence = predict(ledger(Took(1, 3.0), Took(9, 19.0)), sharded, slots=2)
    assert "All of them would take about 38" in sentence or "about 39" in sentence
    assert "on 2 slots, and up to 100 MiB of memory each." in sentence


def test_many_slots_are_no_faster_than_the_largest_partition(sharded) -> None:
    few, many = (predict(ledger(Took(1, 3.0), Took(9, 19.0)), sharded, n) for n in (1000, 2000))
    assert few.partition(" on ")[0] == many.partition(" on ")[0]
    assert "about 19" in few


def test_where_none_is_done_nothing_is_predicted(sharded) -> None:
    failed = predict(ledger(Took(1, None, "FAILED")), sharded, slots=1)
    assert failed.endswith("None of them is DONE, so nothing can be said of all.")


def test_a_trained_model_is_read_as_a_later_run_would_read_it(tmp_path) -> None:
    serde = TextSerde()
    produced = TrainWork(function=lambda data, context: 1, serde=serde)(
        DATA, PartitionContext(), None, str(tmp_path)
    )
    assert produced.reader is serde
    assert produced.model.serde.endswith(":TextSerde")
