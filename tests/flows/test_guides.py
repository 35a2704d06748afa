"""What the guides of many-model systems do, with the names of docs/from_snowflake.md.

Those of scripts are in test_run_script.py, those of transformers in tests/transformers and
test_transformers.py of the command line.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from partwise import (
    ExecutionOptions,
    PartitionStatus,
    Run,
    RunStatus,
    ScalingConfig,
    TorchDistributor,
    map_partitions,
    run_inference,
    train_distributed,
    train_models,
)
from tests.flows.guide_functions import predict_store, process_store, train_net, train_store
from tests.lazily import Lazily

torch = Lazily("torch")

STORES = ["North", "South", "East/1", "West"]


@pytest.fixture(scope="module")
def sales() -> pd.DataFrame:
    rows = [(store, day % 7 / 7, day % 2) for store in STORES for day in range(32)]
    frame = pd.DataFrame(rows, columns=["store", "price", "promotion"])
    return frame.assign(sales=3.0 - frame["price"] + frame["promotion"])


@pytest.fixture(scope="module")
def where(cluster, tmp_path_factory) -> dict[str, Any]:
    options = ExecutionOptions(n_shards=2, first_segment_s=0.2)
    store = str(tmp_path_factory.mktemp("guides"))
    return {"store": store, "cluster": cluster, "execution": options}


RESTORE = """
import sys

from partwise import Run, RunStatus

run = Run.open("sales-v1.0", sys.argv[1])
assert run.status == RunStatus.SUCCESS == "SUCCESS"
for row in run.partitions.to_pylist():
    print(row["store"], row["status"], run.logs(row["store"]).strip())
    model = run.model(row["store"])
    print(type(model).__name__, model.rmse < 3, model.feature_cols)
"""


@pytest.fixture(scope="module")
def trained(sales, where) -> Run:
    """The run of the guide: begun, polled, and waited for."""
    pytest.importorskip("sklearn")
    training_run = train_models.start(sales, "store", train_store, run_id="sales-v1.0", **where)
    seen = []
    while training_run.wait(0.2) == RunStatus.IN_PROGRESS:
        seen.append(training_run.progress())
    assert training_run.status == RunStatus.SUCCESS, training_run.logs()
    counted = [sum(each.counts.values()) for each in seen if each and each.total is not None]
    assert set(counted) <= {len(STORES)}
    return training_run.result()


def test_many_models_are_trained_and_polled_for(trained) -> None:
    details = {row["store"]: row["status"] for row in trained.partitions.to_pylist()}
    assert details == dict.fromkeys(STORES, PartitionStatus.DONE)
    assert details["North"] == "DONE"
    assert "Model trained for East/1" in trained.logs("East/1")


def test_a_run_is_restored_by_its_id_in_another_process(trained, where) -> None:
    words = [sys.executable, "-c", RESTORE, where["store"]]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    shown = [f"{name} DONE Model trained for {name}" for name in sorted(STORES)]
    assert lines[::2] == shown
    assert set(lines[1::2]) == {"XGBRegressor True ['price', 'promotion']"}


def test_models_are_used_by_a_function_that_uploads_what_it_makes(trained, sales, where) -> None:
    run = run_inference(sales, "store", trained.run_id, predict_store, run_id="predicted", **where)
    assert run.counts == {"DONE": len(STORES)}
    found = run.artifact("North", "predictions.csv", read=pd.read_csv)
    own = trained.model("North").predict(found[["price", "promotion"]])
    assert found["predicted"].tolist() == pytest.approx(own.tolist())


def test_a_function_over_partitions_leaves_files(sales, where, tmp_path) -> None:
    run = map_partitions(sales, "store", process_store, run_id="processed", **where)
    assert run.counts == {"DONE": len(STORES)}
    assert "Processed North" in run.logs("North")
    assert {"summary.json", "rows.parquet"} <= set(run.artifacts("East/1"))
    assert run.artifact("East/1", "summary.json") == {
        "store": "East/1",
        "rows": 32,
        "mean": pytest.approx(sales[sales["store"] == "East/1"]["sales"].mean()),
    }
    assert len(run.artifact("West", "rows.parquet", read=pd.read_parquet)) == 32
    run.export(tmp_path, "*.json")
    assert Path(tmp_path, "North", "summary.json").exists()


@pytest.mark.slow
def test_what_is_done_stays_when_a_run_is_cancelled_in_the_middle(sales, where) -> None:
    takes = pd.DataFrame({"store": STORES, "takes_s": 3.0})
    given = {**where, "params": takes, "run_id": "cancelled"}
    run = map_partitions.start(sales, "store", process_store, **given)
    while not (progress := run.progress()) or progress.counts.get("DONE", 0) < 1:
        assert run.wait(0.1) == RunStatus.IN_PROGRESS, run.logs()
    run.cancel()
    assert run.wait(10.0) == RunStatus.CANCELLED
    ended = Run.open("cancelled", where["store"])
    assert set(ended.counts) == {"DONE", "CANCELLED"}
    for row in ended.partitions.to_pylist():
        has_files = "summary.json" in ended.artifacts(row["store"])
        assert has_files == (row["status"] == PartitionStatus.DONE)


@pytest.mark.slow  # tests/trainers has the group that a function opens, without a flow
def test_a_net_is_trained_by_ranks_whose_function_opens_the_group(sales, where) -> None:
    distributor = TorchDistributor(train_net, params={"lr": 0.1}, process_group="function")
    run = train_distributed(
        sales,
        distributor,
        scaling=ScalingConfig(ranks=2),
        run_id="net",
        store=where["store"],
        cluster=where["cluster"],
    )
    assert run.counts == {"DONE": 2}
    assert run.partition(0)["loss"] >= 0
    assert "model.pt" in " ".join(run.artifacts(0))
