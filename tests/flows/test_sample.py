"""A dry run on a few partitions, beside the run that is planned."""

import time

import numpy as np
import pyarrow as pa
import pytest

from partwise.datasets.dataset import list_datasets
from partwise.engine.options import ExecutionOptions
from partwise.engine.sample import WARM_SECONDS
from partwise.errors import RunExistsError, RunNotFoundError
from partwise.flows import map_partitions, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result
from partwise.runs.run import Run
from partwise.store.store import Store

SIZES = {f"store-{size:02d}": size for size in range(1, 42)}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    keys = [key for key, size in SIZES.items() for _ in range(size)]
    return pa.table({"store": keys, "x": [float(i) for i in range(len(keys))]})


def fit(data, context):
    time.sleep(0.002 * data.num_rows)
    return Result({"rows": data.num_rows}, metrics={"mean": 1.0})


class Unreadable(PickleSerde):
    def read(self, path):
        raise EOFError("ends early")


def train(rows, cluster, tmp_path, **arguments) -> Run:
    arguments = {"serde": PickleSerde(), "run_id": "night", **arguments}
    return train_models(rows, "store", fit, store=tmp_path, cluster=cluster, **arguments)


@pytest.mark.slow
def test_a_sample_tells_what_all_partitions_would_take(rows, cluster, tmp_path) -> None:
    run = train(rows, cluster, tmp_path, execution=ExecutionOptions(sample=3))
    assert run.run_id == "night-sample"
    assert run.counts == {"DONE": 3}
    assert sorted(run.partitions["store"].to_pylist()) == ["store-01", "store-21", "store-41"]
    assert run.summary.rows == 1 + 21 + 41
    # Of 1, 21 and 41 rows: the mean of all, whatever this machine made of 2 ms a row.
    warm = [dict(metrics)[WARM_SECONDS] for metrics in run.ledger["metrics"].to_pylist()]
    said = run.summary.remark
    assert "A sample of 3 of the 41 partitions. All of them would take about " in said
    seconds = float(said.partition("would take about ")[2].partition(" s on 2 slots")[0])
    assert seconds == pytest.approx(41 * np.mean(warm) / 2, rel=0.5)
    assert "MiB of memory each" in said
    with pytest.raises(RunNotFoundError):
        Run.open("night", tmp_path)
    again = train(rows, cluster, tmp_path, execution=ExecutionOptions(sample=5))
    assert again.counts == {"DONE": 5}
    assert train(rows, cluster, tmp_path).counts == {"DONE": 41}


def test_a_sample_reads_the_models_back(rows, cluster, tmp_path) -> None:
    from partwise.errors import RunFailedError

    execution = ExecutionOptions(sample=2, max_retries=0)
    with pytest.raises(RunFailedError) as caught:
        train(rows, cluster, tmp_path, serde=Unreadable(), execution=execution)
    run = caught.value.run
    assert run.counts == {"FAILED": 2}
    (group,) = run.failures().to_pylist()
    assert "cannot read the model that it wrote: EOFError: ends early" in group["error_message"]
    assert "nothing can be said of all" in run.summary.remark


def test_a_sample_of_more_than_there_are_is_all_of_them(rows, cluster, tmp_path) -> None:
    few = rows.slice(0, 3)
    run = train(few, cluster, tmp_path, execution=ExecutionOptions(sample=10))
    assert run.counts == {"DONE": 2}


def test_a_sample_takes_the_place_of_no_other_run(rows, cluster, tmp_path) -> None:
    train(rows, cluster, tmp_path, run_id="day-sample")
    with pytest.raises(RunExistsError, match=r"dry run would be 'day-sample', .* which was none"):
        train(rows, cluster, tmp_path, run_id="day", execution=ExecutionOptions(sample=2))
    assert Run.open("day-sample", tmp_path).counts == {"DONE": 41}


@pytest.mark.slow
def test_a_sample_that_is_called_by_its_own_name_keeps_it(rows, cluster, tmp_path) -> None:
    train(rows, cluster, tmp_path, run_id="day", execution=ExecutionOptions(sample=2))
    run = train(rows, cluster, tmp_path, run_id="day-sample", execution=ExecutionOptions(sample=3))
    assert (run.run_id, run.counts) == ("day-sample", {"DONE": 3})


@pytest.mark.slow
def test_a_sample_publishes_nothing(rows, cluster, tmp_path) -> None:
    def count(data, context):
        return {"n": [data.num_rows]}

    arguments = {"store": tmp_path, "cluster": cluster, "output": "dataset://counts"}
    map_partitions(
        rows, "store", count, run_id="dry", execution=ExecutionOptions(sample=2), **arguments
    )
    assert list_datasets(Store.parse(tmp_path)) == []
    map_partitions(rows, "store", count, run_id="real", **arguments)
    assert [dataset.rows for dataset in list_datasets(Store.parse(tmp_path))] == [41]
