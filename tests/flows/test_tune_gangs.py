"""Studies whose trials are a gang each, by the flow."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise import (
    DistributedXGBoost,
    InputError,
    LightGBMTrainer,
    PickleSerde,
    Run,
    RunFailedError,
    ScalingConfig,
    loguniform,
    randint,
    run_inference,
    tune_model,
    uniform,
)
from partwise.calls.one_model import TuneCall
from partwise.calls.reading import read_arguments
from partwise.engine.options import ExecutionOptions
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.trials import read_trials
from tests.flows.study_functions import (
    die_on_rank_1,
    gang_parabola,
    score_on_late,
    wait_together,
)

X = {"x": uniform(-1, 1)}
TWO = ScalingConfig(ranks=2, cpus=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gang-studies")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    x, z = np.random.default_rng(5).normal(size=(2, 400))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    table = pa.table({"x": x, "z": z, "y": 2 * x - z, "late": np.arange(400) % 4})
    pq.write_table(table, path)
    return path


@pytest.fixture
def tune(cluster, store, rows):
    def call(trainer=gang_parabola, space=X, **arguments):
        given = {"serde": PickleSerde(), "store": store, "cluster": cluster, "metric": "loss"}
        return tune_model(rows, trainer, space, **{**given, "scaling": TWO, **arguments})

    return call


def told(run: Run) -> list[tuple]:
    return [
        (each.settings["x"], each.status, each.value, each.record.pruned)
        for each in read_trials(run.ledger)
    ]


@pytest.mark.slow  # tests/flows/test_tune_model.py and tests/studies have it without gangs
def test_one_seed_tries_and_prunes_the_same_and_a_resume_goes_on(tune, store) -> None:
    given = {"trials": 8, "pruner": "median", "seed": 3, "sampler": "random"}
    first = tune(run_id="gangs-first", **given)
    assert first.status is RunStatus.SUCCESS
    counts = Counter(status for _, status, _, _ in told(first))
    assert counts[PartitionStatus.DONE] >= 5, "the first five have nothing to be compared with"
    assert counts[PartitionStatus.SKIPPED] >= 1, "some are worse from their first step on"
    assert told(tune(run_id="gangs-second", **given)) == told(first)
    best = min(value for _, _, value, _ in told(first) if value is not None)
    assert first.best.value == best
    assert first.model(serde=PickleSerde()) == {"x": first.best.settings["x"]}
    row = first.ledger.slice(first.best.number, 1).to_pylist()[0]
    assert (row["rows"], row["attempts"]) == (400, 1)
    names = {artifact["filename"] for artifact in row["artifacts"]}
    assert "model.pkl" in names
    assert 'id="study"' in Path(store, "runs", "gangs-first", "report.html").read_text()
    more = tune(run_id="gangs-first", on_existing_artifacts="resume", **{**given, "trials": 9})
    assert (more.kept, more.executed) == (8, 1)
    assert told(more)[:8] == told(first)


@pytest.mark.slow
def test_a_distributed_trainer_is_tuned_on_rows_of_its_own(tune, store, rows, cluster) -> None:
    late = pq.read_table(rows, filters=[("late", "=", 0)])
    trainer = DistributedXGBoost(label="y", features=["x", "z"], rounds=8)
    run = tune(
        trainer,
        {"max_depth": randint(1, 5), "eta": loguniform(0.05, 0.5), "rounds": randint(4, 9)},
        metric="late_rmse", eval_data={"late": late}, filter=[("late", ">", 0)], serde="",
        trials=3, run_id="gangs-xgboost",
    )  # fmt: skip
    assert run.counts == {"DONE": 3}
    best = run.best
    assert best.value == min(trial.value for trial in read_trials(run.ledger))
    model = run.model()
    assert model.num_boosted_rounds() == best.settings["rounds"]
    used = run_inference(
        late, training_run_id="gangs-xgboost", run_id="gangs-used", keep_columns=["y"],
        store=store, cluster=cluster,
    ).predictions()  # fmt: skip
    error = used["prediction"].to_numpy() - used["y"].to_numpy()
    assert np.sqrt(np.mean(error**2)) == pytest.approx(best.value, rel=1e-5)
    kind, arguments = read_arguments(run.read_generation_document().call_known)
    again = tune_model.validate_parameters({**arguments, "data": rows, "eval_data": {"late": late}})
    assert (kind, again["scaling"], again["trainer"]) == (TuneCall, TWO, trainer)


def test_a_function_of_one_rank_is_scored_on_a_second_table(tune, rows) -> None:
    late = pq.read_table(rows, filters=[("late", "=", 0)])
    run = tune(
        score_on_late, {"x": [1.0, 2.0]}, sampler="grid", scaling=ScalingConfig(ranks=1, cpus=1),
        eval_data={"late": late}, filter=[("late", ">", 0)], run_id="gangs-two-tables",
    )  # fmt: skip
    assert (run.counts, run.best.settings["x"]) == ({"DONE": 2}, 2.0)
    # Each table whole, and none of the rows of the other.
    assert run.model(serde=PickleSerde()) == [300, 100, {1, 2, 3}, {0}]


@pytest.mark.slow
def test_a_rank_that_is_killed_fails_its_trial_after_its_retries(tune) -> None:
    execution = ExecutionOptions(max_retries=1)
    space = {"x": [-1.0, 1.0, -2.0]}
    run = tune(
        die_on_rank_1, space, sampler="grid", trials=3, execution=execution, run_id="gangs-killed"
    )
    ledger = {row["trial"]: row for row in run.partitions.to_pylist()}
    assert [each.status.value for each in read_trials(run.ledger)] == ["DONE", "FAILED", "DONE"]
    assert {row["attempts"] for row in run.ledger.to_pylist()} == {2}
    assert "SIGKILL" in read_trials(run.ledger)[1].reason, ledger
    assert run.best.settings["x"] == -2.0
    with pytest.raises(RunFailedError, match="ProcessDied"):
        tune(die_on_rank_1, {"x": [3.0, 4.0]}, sampler="grid", trials=2, run_id="gangs-all-killed")


def test_trials_of_one_rank_run_side_by_side(tune, tmp_path) -> None:
    one = ScalingConfig(ranks=1, cpus=1)
    space = {"x": [1, 2], "folder": str(tmp_path)}
    # One alone would wait for ever.
    execution = ExecutionOptions(timeout_s=120, max_retries=0)
    run = tune(
        wait_together, space, sampler="grid", trials=2, scaling=one, execution=execution,
        run_id="gangs-beside",
    )  # fmt: skip
    assert run.counts == {"DONE": 2}


XGB = DistributedXGBoost(label="y", features=["x"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scaling": ScalingConfig(ranks=99)}, "99 ranks .* the cluster has room for"),
        ({"trainer": LightGBMTrainer(label="y")}, "a LightGBMTrainer trains in one process"),
        ({"trainer": XGB, "metric": "late_rmse"}, "measures its models on eval_data="),
        ({"metric": ""}, "has to name what the study goes by"),
        ({"scaling": ScalingConfig(), "eval_data": {"late": "l.parquet"}}, "give scaling= too"),
        ({"eval_data": {"train": "l.parquet"}}, "'train', which are the rows trained on"),
        ({"trainer": XGB, "space": {"rounds": 0}, "eval_data": {"late": "l.parquet"}}, "rounds"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_any_work(tune, store, rows, given, message) -> None:
    if "eval_data" in given:
        given = {**given, "eval_data": dict.fromkeys(given["eval_data"], str(rows))}
    with pytest.raises(InputError, match=message):
        tune(run_id="gangs-refused", **given)
    assert not (store / "runs" / "gangs-refused" / "generations").exists()


SCRIPT = """
import sys

from partwise import PickleSerde, ScalingConfig, tune_model
from partwise.blocks import RemoteCluster
from tests.flows.study_functions import gang_parabola

rows, store, address, folder = sys.argv[1:]
tune_model(
    rows,
    gang_parabola,
    {"x": {"kind": "uniform", "low": -1.0, "high": 1.0}, "folder": folder},
    metric="loss",
    trials=7,
    run_id="gangs-driver",
    store=store,
    serde=PickleSerde(),
    scaling=ScalingConfig(ranks=2, cpus=1),
    on_existing_artifacts="resume",
    cluster=RemoteCluster(address=address, shares_filesystem=True),
)
"""


@pytest.mark.slow
def test_no_finished_trial_runs_again_when_the_driver_is_killed(
    tmp_path, rows, store, cluster
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(rows), str(store), cluster.address, str(tmp_path)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    process = subprocess.Popen(words, env=environment)
    deadline = time.monotonic() + 240
    while len(lines(tmp_path / "begun")) < 4 and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {each.settings["x"] for each in read_trials(Run.open("gangs-driver", store).ledger)}
    assert len(before) >= 2
    begun = Counter(lines(tmp_path / "begun"))
    subprocess.run(words, env=environment, check=True)
    run = Run.open("gangs-driver", store)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": 7})
    after = Counter(lines(tmp_path / "begun"))
    assert all(after[str(x)] == begun[str(x)] for x in before), "a finished one ran again"
    assert before <= {each.settings["x"] for each in read_trials(run.ledger)}


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
