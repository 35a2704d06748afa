"""One model on all rows by a flow: its run, resumes, failures and cancellation."""

import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed.client import FutureCancelledError

from partwise.blocks import LocalCluster
from partwise.cluster_calls import CUT_OFF
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.errors import (
    ClusterError,
    ColumnError,
    InputError,
    PackageError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
)
from partwise.flows import export_models, run_inference, train_distributed
from partwise.flows.cli.main import main
from partwise.flows.running.frame import Frame
from partwise.gangs.options import GangOptions
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.reports.report import render_report
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from tests.environments.wheels import make_wheel
from tests.flows.distributed_functions import (
    count_rows,
    decline,
    fail_on_rank_1,
    fail_once,
    look_into_shop,
    sleep_while_told,
)
from tests.lazily import Lazily
from tests.own_cluster import cut_off_others

dd = Lazily("dask.dataframe")

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS = 3000
TWO = ScalingConfig(ranks=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    x, z = np.random.default_rng(5).normal(size=(2, ROWS)).astype(np.float32)
    table = pa.table({"x": x, "z": z, "y": 2 * x - z, "row": np.arange(ROWS)})
    pq.write_table(table, folder / "rows.parquet", row_group_size=400)
    return folder / "rows.parquet"


@pytest.fixture
def train(cluster, store):
    def call(data, trainer=count_rows, **arguments):
        given = {"serde": PickleSerde(), "scaling": TWO, "store": store, "cluster": cluster}
        return train_distributed(data, trainer, **{**given, **arguments})

    return call


def test_a_run_has_a_row_for_each_rank_and_one_model(train, store, rows) -> None:
    late = pq.read_table(rows).slice(0, 7)
    run = train(rows, run_id="counted", eval_data={"late": late}, params={"depth": 3})
    assert (run.kind, run.status, run.counts) == (
        "train-distributed",
        RunStatus.SUCCESS,
        {"DONE": 2},
    )
    assert run.model(serde=PickleSerde()) == {"rows": ROWS, "late": 7, "depth": 3}
    table = run.partitions
    assert table["rank"].to_pylist() == [0, 1]
    assert sum(table["rows"].to_pylist()) == ROWS == run.summary.rows
    assert {host.partition("/")[0] for host in table["host"].to_pylist()} == {socket.gethostname()}
    assert "rank 1 of 2 has" in run.logs(1)
    assert run.artifact(0, "words.txt") == "word"
    report = render_report(run)
    assert "training run of one model" in report
    assert ('id="ranks"' in report, 'id="workers"' in report) == (True, False)
    assert collect_garbage(run.store, "counted", dry_run=True, grace_hours=0).files == []
    with pytest.raises(RunExistsError):
        train(rows, run_id="counted")


def test_a_resume_of_a_complete_run_has_nothing_to_do(train, rows) -> None:
    first = train(rows, run_id="again")
    settled = train(rows, run_id="again", on_existing_artifacts="resume")
    assert (settled.generation, settled.executed) == (2, 0)
    assert settled.model(serde=PickleSerde()) == first.model(serde=PickleSerde())
    other = train(rows, run_id="again", on_existing_artifacts="resume", filter=[("row", "<", 1000)])
    assert (other.generation, other.executed) == (3, 2)
    assert other.model(serde=PickleSerde())["rows"] == 1000


def test_a_failure_is_that_of_the_guilty_rank(train, rows, store) -> None:
    with pytest.raises(RunFailedError, match="ValueError: no such rows") as caught:
        train(rows, fail_on_rank_1, run_id="failed")
    # What the function raised, as it was.
    assert type(caught.value.__cause__) is ValueError
    assert caught.value.__cause__.args == ("no such rows",)
    run = caught.value.run
    assert run.status is RunStatus.FAILURE
    statuses = dict(zip(*(run.partitions[n].to_pylist() for n in ("rank", "status")), strict=True))
    assert statuses == {0: "CANCELLED", 1: "FAILED"}
    assert "PeerLost" not in str(caught.value)
    assert "failed on rank 1 of 2" in run.summary.message
    # The code has changed: a resume begins again, and readers see what is complete.
    run = train(rows, run_id="failed", on_existing_artifacts="resume")
    assert run.counts == {"DONE": 2}


def test_a_gang_whose_ranks_all_fail_hides_no_earlier_model(train, rows, store) -> None:
    def fail(context):
        raise ValueError("each by itself")

    made = train(rows, run_id="kept", scaling=ScalingConfig(ranks=1))
    with pytest.raises(RunFailedError, match="each by itself") as caught:
        train(
            rows,
            fail,
            run_id="kept",
            scaling=ScalingConfig(ranks=1),
            on_existing_artifacts="overwrite",
        )
    assert caught.value.run.counts == {"FAILED": 1}
    seen = Run.open("kept", store)
    assert seen.shown.generation == 1
    assert seen.model(serde=PickleSerde()) == made.model(serde=PickleSerde())


@pytest.mark.slow
def test_restarts_and_skips(train, rows) -> None:
    run = train(rows, fail_once, gang=GangOptions(max_retries=1))
    assert run.model(serde=PickleSerde()) == {"attempt": 2}
    assert run.partitions["attempts"].to_pylist() == [2, 2]
    skipped = train(rows, decline)
    assert skipped.partitions["status"].to_pylist()[0] == "SKIPPED"


def test_what_is_refused_before_any_rank_starts(train, rows, store) -> None:
    with pytest.raises(InputError, match="room"):
        train(rows, run_id="many", scaling=ScalingConfig(ranks=50))
    with pytest.raises(InputError, match="rename it"):
        train(rows, run_id="many", eval_data={"train": rows})
    with pytest.raises(ColumnError):
        train(rows, DistributedXGBoost(label="sales"), run_id="many", serde="")
    assert not (store / "runs" / "many").exists()


def test_the_time_limit_ends_all_ranks(train, rows, tmp_path) -> None:
    (tmp_path / "sleep").touch()
    options = GangOptions(timeout_s=2, grace_s=1)
    with pytest.raises(RunFailedError, match="limit"):
        train(rows, sleep_while_told, gang=options, params={"folder": str(tmp_path)})


def test_ctrl_c_ends_the_ranks_and_a_resume_goes_on(train, rows, tmp_path, store) -> None:
    (tmp_path / "sleep").touch()

    def interrupt() -> None:
        while not all((tmp_path / f"here-{rank}").exists() for rank in range(2)):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(RunCancelledError):
        train(
            rows,
            sleep_while_told,
            run_id="stopped",
            gang=GangOptions(grace_s=2),
            params={"folder": str(tmp_path)},
        )
    thread.join()
    run = Run.open("stopped", store)
    assert (run.status, run.newest.counts) == (RunStatus.CANCELLED, {"CANCELLED": 2})
    assert "asleep" in run.newest.logs(0)
    assert train(rows, run_id="stopped", on_existing_artifacts="resume").counts == {"DONE": 2}


def test_a_gang_that_is_lost_with_the_scheduler_begins_again_or_fails_with_its_run(
    train, rows, dask_client, tmp_path
) -> None:
    def cut() -> None:
        while not all((tmp_path / f"here-{rank}").exists() for rank in range(2)):
            time.sleep(0.05)
        cut_off_others(dask_client)
        (tmp_path / "sleep").unlink()

    for retries in (0, 1):
        (tmp_path / "sleep").touch()
        for mark in tmp_path.glob("here-*"):
            mark.unlink()
        thread = threading.Thread(target=cut)
        thread.start()
        given = {"gang": GangOptions(max_retries=retries), "params": {"folder": str(tmp_path)}}
        if retries:
            assert train(rows, sleep_while_told, **given).counts == {"DONE": 2}
        else:
            with pytest.raises(RunFailedError, match="connection to the Dask scheduler was closed"):
                train(rows, sleep_while_told, **given)
        thread.join()


def wait_in(folder: str):
    Path(folder, "here").touch()
    while os.path.exists(f"{folder}/sleep"):
        time.sleep(0.05)
    return pa.table({"y": [1.0]}).to_pandas()


def test_rows_that_are_lost_with_the_scheduler_on_their_way_are_asked_for_again(
    train, dask_client, tmp_path
) -> None:
    (tmp_path / "sleep").touch()
    frame = dd.from_map(wait_in, [str(tmp_path)], meta=pa.table({"y": [1.0]}).to_pandas())

    def cut() -> None:
        while not (tmp_path / "here").exists():
            time.sleep(0.05)
        cut_off_others(dask_client)
        (tmp_path / "sleep").unlink()

    thread = threading.Thread(target=cut)
    thread.start()
    assert train(frame).counts == {"DONE": 2}
    thread.join()


def test_what_is_lost_with_the_scheduler_and_not_asked_for_again_ends_the_call() -> None:
    plan: Any = SimpleNamespace(identity=SimpleNamespace(run_id="night"))
    frame = Frame(plan, Store.parse("artifacts"), LocalCluster())
    lost = FutureCancelledError("rows", CUT_OFF)
    with pytest.raises(ClusterError, match=r"at is lost; resume the run 'night'\."):
        frame.__exit__(type(lost), lost, None)
    frame.__exit__(ValueError, ValueError(), None)


SCRIPT = """
import sys

from partwise.blocks import RemoteCluster
from partwise.engine.scaling import ScalingConfig
from partwise.flows import train_distributed

rows, store, address, folder = sys.argv[1:]
train_distributed(
    rows,
    "tests.flows.distributed_functions:sleep_while_told",
    run_id="died",
    store=store,
    serde="pickle",
    scaling=ScalingConfig(ranks=2),
    params={"folder": folder},
    cluster=RemoteCluster(address=address, shares_filesystem=True),
)
"""


@pytest.mark.slow
def test_a_driver_that_dies_leaves_a_run_that_a_resume_goes_on_with(
    store, rows, cluster, tmp_path, start_python
) -> None:
    (tmp_path / "sleep").touch()
    process = start_python(SCRIPT, rows, store, cluster.address, tmp_path)
    while not all((tmp_path / f"here-{rank}").exists() for rank in range(2)):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    run = Run.open("died", store)
    # Nobody runs any more, as this machine knows.
    assert (run.status, run.counts) == (RunStatus.IN_PROGRESS, {"PENDING": 2})
    (tmp_path / "sleep").unlink()
    words = ["runs", "resume", "died", "--store", str(store), "--address", cluster.address]
    assert main([*words, "--shares-filesystem"]) == 0
    run = run.refresh()
    assert (run.generation, run.counts) == (2, {"DONE": 2})
    assert run.model(serde=PickleSerde()) == {"awake": 2}


@pytest.mark.slow
def test_xgboost_from_rows_to_predictions_and_onnx(rows, store, cluster, capsys) -> None:
    place = ["--store", str(store), "--address", cluster.address, "--shares-filesystem"]
    settings = ["--label", "y", "--features", "x,z", "--rounds", "5", "--ranks", "2"]
    words = ["train-distributed", str(rows), "--trainer", "xgboost", *settings]
    assert main([*words, "--eval-data", f"all={rows}", "--run-id", "boosted", *place]) == 0
    assert f"partwise infer {rows} --training-run-id boosted" in capsys.readouterr().out
    run = Run.open("boosted", store)
    assert run.model().num_boosted_rounds() == 5
    assert main(["train-distributed", str(rows), "--trainer", "forest", *place]) == 2
    used = ["--keep-columns", "row", "--run-id", "used"]
    assert main(["infer", str(rows), "--training-run-id", "boosted", *used, *place]) == 0
    # Nobody says how many ranks: so few rows are for one, which has the same model.
    words = [word for word in words if word not in ("--ranks", "2")]
    assert main([*words, "--eval-data", f"all={rows}", "--run-id", "alone", *place]) == 0
    alone = Run.open("alone", store)
    assert (run.counts, alone.counts) == ({"DONE": 2}, {"DONE": 1})
    assert alone.artifact(0, "model.ubj") == run.artifact(0, "model.ubj")
    assert run.eval_results["round"].to_pylist() == [1, 2, 3, 4, 5]
    last = run.partition(0)["all_rmse"]
    assert run.eval_results["all_rmse"][-1].as_py() == pytest.approx(last)
    same = {"store": store, "cluster": cluster, "keep_columns": ["row"]}
    native = Run.open("used", store).predictions().sort_by("row")
    assert native["row"].to_pylist() == list(range(ROWS))
    exported = export_models("boosted", store=store, cluster=cluster)
    assert exported.counts == {"DONE": 1}
    onnx = run_inference(rows, training_run_id="boosted", format="onnx", **same)
    found = onnx.predictions().sort_by("row")
    np.testing.assert_allclose(
        found["prediction"].to_numpy(), native["prediction"].to_numpy(), rtol=1e-6
    )


@pytest.mark.slow  # three runs, with packages that are built
def test_ranks_have_packages_of_their_own_and_a_resume_compares_them(
    train, rows, store, tmp_path, capsys
) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "shop", "1.0", "def main():\n    print('open')\n", script="shop")
    asked = Environment(packages=("shop",), find_links=(str(wheels),), no_index=True)
    run = train(rows, look_into_shop, run_id="packages", environment=asked)
    assert run.model(serde=PickleSerde()) == {"shop": "1.0", "program": "open"}
    assert run.partitions["major"].to_pylist() == [1, 1]
    assert run.read_generation_document().environment["shop"].startswith("1.0 (")
    make_wheel(wheels, "shop", "2.0", "def main():\n    print('shut')\n", script="shop")
    same = train(
        rows, look_into_shop, run_id="packages", environment=asked, on_existing_artifacts="resume"
    )
    assert (same.executed, same.model(serde=PickleSerde())["shop"]) == (0, "1.0")
    newer = asked.model_copy(update={"packages": ("shop>1",)})
    other = train(
        rows, look_into_shop, run_id="packages", environment=newer, on_existing_artifacts="resume"
    )
    assert other.model(serde=PickleSerde()) == {"shop": "2.0", "program": "shut"}
    with pytest.raises(PackageError, match="uv says"):
        train(rows, look_into_shop, run_id="none", environment=Environment(packages=("shop>7",)))
    assert not (store / "runs" / "none").exists()
    words = ["train-distributed", str(rows), "--trainer", f"{__name__}:look_into_shop"]
    words += ["--package", "./mine"]
    assert main([*words, "--store", str(store)]) == 2
    assert "'./mine' lies on this machine" in capsys.readouterr().err
