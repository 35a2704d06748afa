"""A study by its flow: its trials, the best model, resumes, failures."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ColumnError, InputError, RunFailedError, RunNotFoundError, SourceError
from partwise.flows import export_models, run_inference, tune_model
from partwise.flows.running import execute_study
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.reports.summary import run_fields
from partwise.runs.run import Run
from partwise.runs.trials import read_trials
from partwise.trainers import LightGBMTrainer
from partwise.tuning.space import loguniform, randint, uniform
from tests.flows.study_functions import fail, look_at_itself, nothing, parabola
from tests.own_cluster import cut_off_others, wait_for

TRAINER = LightGBMTrainer(label="y", rounds=20)
SPACE = {"learning_rate": loguniform(0.02, 0.3), "num_leaves": randint(3, 16)}
X = {"x": uniform(-1, 1)}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    x, z = np.random.default_rng(5).normal(size=(2, 600))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({"x": x, "z": z, "y": 2 * x - z, "row": np.arange(600)}), path)
    return path


@pytest.fixture
def tune(cluster, store, rows):
    def call(trainer=parabola, space=X, **arguments):
        given = {"serde": PickleSerde(), "store": store, "cluster": cluster, "metric": "loss"}
        return tune_model(rows, trainer, space, **{**given, **arguments})

    return call


def settings_of(run: Run) -> list[dict]:
    return [dict(trial.settings) for trial in read_trials(run.ledger)]


def test_a_built_in_trainer_is_tuned_and_its_best_model_used(tune, store, rows, cluster) -> None:
    given = {"metric": "", "serde": "", "trials": 6, "pruner": "median"}
    run = tune(TRAINER, SPACE, run_id="tuned-lightgbm", **given)
    assert (run.kind, run.status) == ("tune", RunStatus.SUCCESS)
    assert run.trials["trial"].to_pylist() == list(range(6))
    assert run.best.metric == "holdout_rmse"
    done = [value for value in run.trials["value"].to_pylist() if value is not None]
    assert run.best.value == min(done)
    assert run.partitions["rows"].to_pylist() == [600] * 6
    shown = run_fields(run)["best"]
    assert shown.startswith(f"trial {run.best.number}: holdout_rmse ")
    assert all(f"{name} " in shown for name in run.best.settings)
    table = pq.read_table(rows)
    model = run.model()
    used = run_inference(
        rows,
        training_run_id="tuned-lightgbm",
        run_id="used-best",
        keep_columns=["row"],
        store=store,
        cluster=cluster,
    )
    names = ["x", "z", "row"]
    expected = model.predict(np.column_stack([table[name].to_numpy() for name in names]))
    found = used.predictions().sort_by("row")["prediction"].to_numpy()
    np.testing.assert_allclose(found, expected)
    exported = export_models(
        "tuned-lightgbm", "onnx", run_id="best-onnx", store=store, cluster=cluster
    )
    assert exported.counts == {"DONE": 1}
    used_export = run_inference(
        rows,
        training_run_id="best-onnx",
        run_id="used-export",
        keep_columns=["row"],
        store=store,
        cluster=cluster,
    )
    from_export = used_export.predictions().sort_by("row")["prediction"].to_numpy()
    np.testing.assert_allclose(from_export, expected, rtol=1e-5)
    assert 'id="study"' in Path(store, "runs", "tuned-lightgbm", "report.html").read_text()


def test_one_slot_and_a_seed_decide_what_is_tried_and_a_resume_goes_on(tune) -> None:
    given = {"max_concurrent": 1, "trials": 13, "pruner": "hyperband", "seed": 5}
    first = tune(run_id="study-first", **given)
    second = tune(run_id="study-second", **given)
    assert settings_of(first) == settings_of(second)
    assert first.trials["value"].to_pylist() == second.trials["value"].to_pylist()
    more = tune(run_id="study-first", on_existing_artifacts="resume", **{**given, "trials": 16})
    assert (more.kept, more.executed) == (13, 3)
    assert settings_of(more)[:13] == settings_of(first)
    assert len({each["x"] for each in settings_of(more)}) == 16
    other = tune(
        run_id="study-first", on_existing_artifacts="resume", **{**given, "seed": 6, "trials": 2}
    )
    assert (other.kept, other.executed) == (0, 2)


def test_rows_are_filtered_and_a_filter_that_leaves_none_is_told(tune, store) -> None:
    run = tune(trials=1, filter=[("row", "<", 100)], run_id="study-filtered")
    assert run.ledger["rows"].to_pylist() == [100]
    with pytest.raises(SourceError, match=r"no rows to train on: the filter .* leaves none"):
        tune(trials=1, filter=[("row", "<", -1)], run_id="study-of-none")
    assert not (store / "runs" / "study-of-none" / "generations").exists()


def test_a_study_whose_rows_were_on_their_way_as_the_scheduler_was_lost_goes_on(
    tune, dask_client, tmp_path, monkeypatch
) -> None:
    folder, load_rows = tmp_path, execute_study.load_rows

    def load_late(*given) -> int:
        (folder / "begun").touch()
        wait_for((folder / "go").exists, "it may not go on")
        return load_rows(*given)

    monkeypatch.setattr(execute_study, "load_rows", load_late)
    with ThreadPoolExecutor(1) as executor:
        tuning = executor.submit(tune, trials=2, run_id="study-cut-off")
        wait_for(lambda: (folder / "begun").exists() or tuning.done(), "no rows are loaded")
        cut_off_others(dask_client)
        (folder / "go").touch()
        run = tuning.result()
    assert run.ledger["rows"].to_pylist() == [600, 600]


def test_a_study_begins_anew_when_a_file_that_its_function_reads_has_changed(
    tune, tmp_path
) -> None:
    file = tmp_path / "table.txt"
    file.write_text("1")
    given = {"files": [file], "trials": 2, "run_id": "study-inputs"}
    tune(**given)
    assert tune(on_existing_artifacts="resume", **{**given, "trials": 3}).kept == 2
    file.write_text("2")
    assert tune(on_existing_artifacts="resume", **given).kept == 0
    with pytest.raises(InputError, match="nowhere"):
        tune(**{**given, "files": [tmp_path / "nowhere"], "run_id": "study-no-inputs"})


def test_trials_that_wait_and_run_are_seen_as_long_as_it_works(tune, store) -> None:
    space = {"store": str(store), "x": [1, 2, 3]}
    run = tune(look_at_itself, space, sampler="grid", max_concurrent=1, run_id="study-seen")
    assert run.metrics.filter(pc.equal(run.metrics["metric"], "pending"))["value"][0].as_py() == 2
    assert (run.partitions.num_rows, run.progress().total) == (3, 3)


def test_patience_and_a_grid_end_a_study_early(tune) -> None:
    run = tune(space={"x": [0.3, 0.2, 0.9]}, sampler="grid", trials=50, run_id="study-grid")
    assert run.trials.num_rows == 3
    assert "all 3 settings of the grid" in run.summary.remark
    best_first = {"x": {"kind": "grid", "values": [0.3, *np.linspace(0.5, 1, 20).tolist()]}}
    run = tune(
        space=best_first,
        sampler="grid",
        patience=4,
        max_concurrent=1,
        run_id="study-patience",
    )
    assert run.trials.num_rows == 5
    assert "no better" in run.summary.remark


def test_trials_that_all_fail_fail_the_study_with_their_reasons(tune, store) -> None:
    execution = ExecutionOptions(max_retries=0)
    with pytest.raises(RunFailedError, match="3 x ValueError: no way with"):
        tune(fail, {"x": 1.0, "z": uniform(0, 1)}, trials=3, execution=execution, run_id="s-fail")
    with pytest.raises(RunFailedError, match="goes by the metric 'loss'"):
        tune(nothing, X, trials=64, run_id="study-no-metric")
    assert Run.open("study-no-metric", store).trials.num_rows <= 3


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"trials": 0}, InputError, "trials=0 leaves nothing"),
        ({"patience": 0}, InputError, "patience=0"),
        ({"max_duration_s": 0.0}, InputError, "max_duration_s=0"),
        ({"space": {}}, InputError, "space is empty"),
        ({"space": {"x": {"kind": "normal"}}}, InputError, "kind 'normal'"),
        ({"space": {"x": {"kind": "uniform", "low": 2, "high": 1}}}, InputError, "low end"),
        ({"sampler": "grid"}, InputError, "endlessly many"),
        ({"metric": ""}, InputError, "has to name what the study goes by"),
        ({"trainer": TRAINER, "metric": "loss"}, InputError, "no metric 'loss'"),
        ({"trainer": TRAINER, "metric": "auc"}, InputError, "none of a regression"),
        ({"trainer": TRAINER, "metric": ""}, InputError, "no parameter 'x'"),
        ({"trainer": TRAINER.model_copy(update={"label": "q"}), "metric": ""}, ColumnError, "'q'"),
    ],
)
def test_bad_input_is_refused_before_any_work(tune, store, given, error, message) -> None:
    with pytest.raises(error, match=message):
        tune(run_id="study-refused", **given)
    with pytest.raises(RunNotFoundError):
        Run.open("study-refused", store)


SCRIPT = """
import sys

from partwise import PickleSerde, tune_model
from partwise.blocks import RemoteCluster
from tests.flows.study_functions import journalled

rows, store, address, folder, trials = sys.argv[1:]
tune_model(
    rows,
    journalled,
    {"x": {"kind": "uniform", "low": -1.0, "high": 1.0}, "folder": folder},
    metric="loss",
    trials=int(trials),
    run_id="killed-study",
    store=store,
    serde=PickleSerde(),
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
    words = [str(rows), str(store), cluster.address, str(tmp_path), "20"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    for enough in (4, 9):
        process = subprocess.Popen([sys.executable, str(script), *words], env=environment)
        deadline = time.monotonic() + 120
        while len(_numbers(tmp_path / "ended")) < enough and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = _committed(store)
    assert len(before) >= 4
    begun = Counter(_numbers(tmp_path / "begun"))
    subprocess.run([sys.executable, str(script), *words], env=environment, check=True)
    run = Run.open("killed-study", store)
    assert run.status is RunStatus.SUCCESS
    assert run.trials["trial"].to_pylist() == list(range(20))
    assert run.kept >= len(before)
    after = Counter(_numbers(tmp_path / "begun"))
    assert all(after[number] == begun[number] for number in before), "a finished one ran again"
    settings = settings_of(run)
    assert len({each["x"] for each in settings}) == 20
    assert {number: settings[number]["x"] for number in before} == before
    models = [run.model(number, serde=PickleSerde())["x"] for number in range(20)]
    assert models == [each["x"] for each in settings]


def _numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _committed(store: Path) -> dict[int, float]:
    """What is on the store: by the number of the trial what it tried."""
    trials = read_trials(Run.open("killed-study", store).ledger)
    return {trial.number: trial.settings["x"] for trial in trials}
