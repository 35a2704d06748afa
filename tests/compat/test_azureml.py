"""AzureML's names run: scripts with their metrics and files, parallel runs of entry scripts."""

import importlib
import inspect
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import partwise
from partwise.calls.script import MONTH_S
from partwise.compat.azureml.core import Environment, Experiment, Run, ScriptRunConfig, Workspace
from partwise.compat.azureml.core import run as azureml_run
from partwise.compat.azureml.core.conda_dependencies import CondaDependencies
from partwise.compat.azureml.core.run import ScriptRun
from partwise.compat.azureml.core.runconfig import (
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
)
from partwise.compat.azureml.pipeline.entry_script import EntryScript
from partwise.compat.azureml.pipeline.steps import ParallelRunConfig, ParallelRunStep
from partwise.compat.azureml.train.dnn import Gloo, Mpi, PyTorch
from partwise.errors import FunctionError, InputError
from partwise.fingerprints.functions import code_fingerprint
from partwise.migration.names import known_names

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys
from partwise.compat.azureml.core import Run
run = Run.get_context()
for loss in (0.5, 0.25, 0.125):  # the last within a second: it is written as this ends
    run.log("loss", loss)
run.log("size", int(os.environ["WORLD_SIZE"]))
run.log_row("point", x=1, y=2)
open("outputs/model.txt", "w").write(sys.argv[1])
sys.exit(int(sys.argv[2]))
"""
ENTRY = """
import sys
import time
started = []

def init():
    started.append(sys.argv[1])

def run(mini_batch):
    if isinstance(mini_batch, list):
        return [f"{len(mini_batch)} {started}"]
    import beside_it
    if mini_batch["key"].iloc[0] == "bad":
        raise ValueError("bad")
    found = mini_batch.groupby("key", as_index=False)["value"].sum()
    return found.assign(note='of "all" rows')[["value", "note"]]
"""


@pytest.fixture
def experiment(dask_client, tmp_path) -> Experiment:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "score.py").write_text(textwrap.dedent(ENTRY))
    # Of which `run` imports it anew for each mini-batch.
    (tmp_path / "beside_it.py").touch()
    workspace = Workspace(
        store=str(tmp_path / "store"), compute_targets={"cpus": dask_client.scheduler.address}
    )
    return Experiment(workspace, "trial")


def test_a_submitted_script_has_metrics_and_files(experiment, tmp_path):
    spread = PyTorchConfiguration("Gloo", process_count=2)
    config = ScriptRunConfig(
        str(tmp_path), "train.py", ["x", 0], compute_target="cpus", distributed_job_config=spread
    )
    # The processes of a script begin without the path of this one.
    config.run_config.environment_variables["PYTHONPATH"] = str(ROOT)
    run = experiment.submit(config)
    assert run.wait_for_completion() == {"runId": run.id, "status": "Completed"}
    metrics = run.get_metrics()
    assert metrics["loss"] == [0.5, 0.25, 0.125]
    assert metrics["size"] == 2
    assert run.get_metrics("point") == {"point": {"x": 1, "y": 2}}
    assert "outputs/model.txt" in run.get_file_names()
    run.download_file("outputs/model.txt", str(tmp_path / "copy.txt"))
    assert (tmp_path / "copy.txt").read_text() == "x"
    assert run.get_status() == "Completed"


def test_a_parallel_run_calls_init_once_and_run_for_each_key(experiment, tmp_path):
    config = ParallelRunConfig(
        entry_script="score.py",
        source_directory=str(tmp_path),
        compute_target="cpus",
        partition_keys=["key"],
        run_max_try=1,
    )
    rows = pa.table({"key": ["a", "a", "bad", "b"], "value": [1, 2, 3, 4]})
    run = experiment.submit(ParallelRunStep("sums", config, rows, arguments=["--fast"]))
    run.wait_for_completion()
    assert run.run.status == "PARTIAL_FAILURE"
    run.download_file("parallel_run_step.txt", str(tmp_path))
    lines = (tmp_path / "parallel_run_step.txt").read_text().splitlines()
    assert sorted(lines) == ['3 of "all" rows', '4 of "all" rows'], "what run returned, no more"
    assert run.run.predictions(["key", "value"]).num_rows == 2
    assert run.get_metrics() == run.get_metrics("loss") == {}


def test_files_are_mini_batches_of_so_many(experiment, tmp_path):
    for name in "abc":
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).touch()
    config = ParallelRunConfig(
        entry_script="score.py",
        source_directory=str(tmp_path),
        mini_batch_size=2,
        error_threshold=4,
    )
    step = ParallelRunStep("files", config, str(tmp_path / "in"), arguments=[1])
    given = step.arguments_of_map(experiment.workspace)
    assert given["data"]["mini_batch"].to_pylist() == [0, 0, 1]
    assert (given["execution"].timeout_s, given["execution"].max_retries) == (60, 2)
    assert given["execution"].max_failed == 4

    class Data:
        def to_pandas(self):
            return given["data"].to_pandas().head(2)

    for _ in range(2):
        assert given["function"](Data(), None) == {"append_row": ["2 ['1']"]}
    # A resume runs mini-batches of another script, or of another module beside it, again.
    (tmp_path / "beside_it.py").write_text("a = 1")
    changed = step.arguments_of_map(experiment.workspace)["function"]
    assert code_fingerprint(changed) != code_fingerprint(given["function"])
    with pytest.warns(UserWarning, match=r"output='there' is not written: Run.download_file"):
        ParallelRunStep("files", config, str(tmp_path / "in"), output="there")


def test_rows_are_texts_with_spaces_and_no_quotes(tmp_path):
    script = tmp_path / "rows.py"
    script.write_text("def run(mini_batch): return mini_batch")
    rows = pd.DataFrame(
        {
            "day": pd.to_datetime(["2026-03-01", "2026-03-02"]),
            "name": ["a b", None],
            "price": [0.5, float("nan")],
            "sold": [1, 2],
        },
        index=[7, 9],
    )
    data = partwise.DataConnector.from_dataframe(rows)
    found = EntryScript(str(script), "")(data, None)
    assert list(found["append_row"]) == ["2026-03-01 a b 0.5 1", "2026-03-02   2"]
    assert list(found.columns) == [*rows.columns, "append_row"]


def test_an_estimator_becomes_the_arguments_of_run_script():
    estimator = PyTorch(
        "project",
        entry_script="train.py",
        script_params={"--fast": "", "--epochs": 3},
        node_count=2,
        process_count_per_node=2,
        distributed_training=Gloo(),
        pip_packages=["polars"],
        vm_priority="lowpriority",
        shm_size="512m",
        framework_version="2.9",
    )
    given = estimator.arguments_of_run(Workspace())
    assert given["arguments"] == ["--fast", "--epochs", "3"]
    assert (given["nodes"], given["ranks_per_node"], given["backend"]) == (2, 2, "gloo")
    assert given["environment"].packages == ("torch==2.9", "polars")
    assert (given["infrastructure"].vm_priority, given["infrastructure"].shm_gib) == ("low", 0.5)
    for seconds, timeout_s in ((None, MONTH_S), (0, 0), (60, 60)):
        one = PyTorch("project", max_run_duration_seconds=seconds)
        assert one.arguments_of_run(Workspace())["timeout_s"] == timeout_s
        config = ScriptRunConfig("project", "train.py", max_run_duration_seconds=seconds)
        assert config.arguments_of_run(Workspace())["timeout_s"] == timeout_s
    spread = PyTorch("project", distributed_training=Mpi(process_count_per_node=4))
    assert spread.arguments_of_run(Workspace())["ranks_per_node"] == 4
    assert spread.arguments_of_run(Workspace())["backend"] == "mpi"


def test_an_environment_is_its_packages():
    environment = Environment("own")
    environment.python.conda_dependencies = CondaDependencies.create(pip_packages=["polars"])
    assert environment.packages.packages == ("polars",)
    assert Environment.from_pip_requirements("a", "r.txt").packages.requirements_file == "r.txt"
    assert MpiConfiguration().arguments()["backend"] == "none"


REFUSED = {
    "of the two": lambda: ScriptRunConfig("."),
    "cannot be spread": lambda: PyTorchConfiguration("Gloo", 3, 2).arguments(),
    "no curated environment": lambda: Environment.get(Workspace(), "AzureML-sklearn"),
    "no subscription": lambda: Workspace("1", "2", "3"),
    "cannot be submitted": lambda: Experiment(Workspace(), "a").submit(object()),
    "no entry script": lambda: ParallelRunConfig(entry_script="none.py"),
    "'gpus' means no cluster here": lambda: Workspace().cluster("gpus"),
    "'1.6' has no wheels": lambda: PyTorch(".", framework_version="1.6"),
    "one by one": lambda: PyTorch(".", conda_packages=["mkl"]),
    "none of": lambda: PyTorch(".", vm_priority="cheap"),
    "'2' is no number with k": lambda: PyTorch(".", shm_size=2).arguments_of_run(Workspace()),
    "shm_gib 0.0: ": lambda: PyTorch(".", shm_size="0g").arguments_of_run(Workspace()),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_has_no_counterpart_is_answered_by_a_sentence(sentence):
    with pytest.raises(InputError, match=sentence):
        REFUSED[sentence]()


NUMBERS = {
    "node_count": lambda value: PyTorchConfiguration(node_count=value).arguments(),
    "process_count": lambda value: PyTorchConfiguration(process_count=value or 0).arguments(),
    "process_count_per_node": lambda value: MpiConfiguration(value).arguments(),
    "run_max_try": lambda value: parallel_config(run_max_try=value).execution(),
    "error_threshold": lambda value: parallel_config(error_threshold=value or "no").execution(),
    "allowed_failed_count": lambda value: parallel_config(
        allowed_failed_count=value or "no"
    ).execution(),
    "allowed_failed_percent": lambda value: parallel_config(
        allowed_failed_percent=str(value)
    ).execution(),
}


def parallel_config(**settings) -> ParallelRunConfig:
    return ParallelRunConfig(
        entry_script=Path(__file__).name, source_directory=str(Path(__file__).parent), **settings
    )


@pytest.mark.parametrize("value", [0, -2, 1.5, float("nan"), None, "2", True], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_of_things_is_answered_by_a_sentence(name, value):
    with pytest.raises(InputError, match=f"{name}=.* is no (whole )?number"):
        NUMBERS[name](value)


def test_no_file_is_no_mini_batch():
    config = parallel_config(mini_batch_size=0)
    with pytest.raises(InputError, match="mini_batch_size=0 is"):
        ParallelRunStep("a", config, str(ROOT)).arguments_of_map(Workspace())


@pytest.mark.parametrize("given", ["environment_variables", "environment"])
def test_variables_of_a_parallel_run_are_refused(given, tmp_path):
    (tmp_path / "score.py").write_text("def run(mini_batch): pass")
    environment = Environment("own")
    environment.environment_variables["LEVEL"] = "1"
    value = environment if given == "environment" else {"LEVEL": "1"}
    config = ParallelRunConfig(
        entry_script="score.py", source_directory=str(tmp_path), **{given: value}
    )
    with pytest.raises(InputError, match="variables LEVEL have no counterpart in a parallel run"):
        ParallelRunStep("a", config, str(tmp_path)).arguments_of_map(Workspace())


def test_what_a_configuration_does_not_know_cannot_be_set(tmp_path):
    (tmp_path / "score.py").touch()
    parallel = ParallelRunConfig(entry_script="score.py", source_directory=str(tmp_path))
    for settings, name in (
        (RunConfiguration(), "communicator"),
        (Environment(), "docker"),
        (CondaDependencies(), "conda_packages"),
        (PyTorchConfiguration(), "process_count_per_node"),
        (MpiConfiguration(), "process_count"),
        (Mpi(), "process_count"),
        (ScriptRunConfig(".", "train.py"), "environment"),
        (parallel, "timeout"),
        (ParallelRunStep("a", parallel, str(tmp_path)), "inputs_of_files"),
        (PyTorch("."), "environment"),
    ):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            setattr(settings, name, "Nccl")


def test_one_file_is_a_mini_batch_and_what_run_returns_has_to_be_rows(tmp_path):
    script = tmp_path / "score.py"
    script.write_text("def run(mini_batch): print(mini_batch)")
    config = ParallelRunConfig(entry_script="score.py", source_directory=str(tmp_path))
    given = ParallelRunStep("a", config, str(script)).arguments_of_map(Workspace())
    assert given["data"]["path"].to_pylist() == [str(script)]
    with pytest.raises(FunctionError, match=r"score.py' returned None: return a frame or a list"):
        given["function"](partwise.DataConnector(given["data"]), None)


def test_outside_a_run_values_are_printed(capsys):
    for loss in (0.5, 0.25):
        Run.get_context().log("loss", loss)
    assert capsys.readouterr().out == "loss: 0.5\nloss: 0.25\n"


@pytest.fixture
def reported(monkeypatch):
    """What a script reports, by calls."""
    calls = []
    monkeypatch.setattr(ScriptRun, "_logged", {})
    monkeypatch.setattr(ScriptRun, "_unwritten", {})
    monkeypatch.setattr(ScriptRun, "_written_at", -azureml_run.WRITTEN_EACH_S)
    monkeypatch.setattr(azureml_run, "script_context", lambda: calls)
    context = SimpleNamespace(report=lambda **values: calls.append(dict(values)))
    monkeypatch.setattr(azureml_run, "get_context", lambda: context)
    return calls


def test_all_that_a_script_logs_under_a_name_is_kept(reported):
    """Also where it asks for its context anew at each value."""
    for step in (1, 2):
        Run.get_context().log("loss", 0.5 / step)
        Run.get_context().log_list("each", np.arange(step))
        Run.get_context().log_row("point", x=step, **({"y": 3} if step == 2 else {}))
    Run.get_context().log("name", "a")
    Run.get_context().complete()
    assert {name: value for call in reported for name, value in call.items()} == {
        "loss": [0.5, 0.25],
        "each": [0, 0, 1],
        "point": {"x": [1, 2], "y": [None, 3]},
        "name": "a",
    }


def test_of_many_values_each_is_the_metric_and_the_list_is_written_now_and_then(reported):
    run = Run.get_context()
    for step in range(2_000):
        run.log("loss", step)
    run.flush()
    lists = [call["loss"] for call in reported if isinstance(call["loss"], list)]
    assert [call["loss"] for call in reported if call["loss"] not in lists] == [*range(2_000)]
    assert lists[-1] == [*range(2_000)]
    assert len(lists) < 20


def test_many_rows_of_a_script_become_a_table_now_and_then(reported):
    run, began = Run.get_context(), time.process_time()
    for step in range(20_000):
        run.log_row("point", x=step)
    run.flush()
    assert reported[-1] == {"point": {"x": [*range(20_000)]}}
    assert time.process_time() - began < 5, "a table for each row takes half a minute"


def test_calls_take_the_arguments_that_the_table_of_names_has():
    names = (
        *("core.ScriptRunConfig", "core.runconfig.PyTorchConfiguration"),
        *("core.runconfig.MpiConfiguration", "core.runconfig.TensorflowConfiguration"),
        *("pipeline.steps.ParallelRunConfig", "pipeline.steps.ParallelRunStep"),
        "train.dnn.PyTorch",
    )
    for path in names:
        module, _, name = path.rpartition(".")
        found = known_names().find(f"azureml.{path}")
        assert found is not None
        ours = getattr(importlib.import_module(f"partwise.compat.azureml.{module}"), name)
        assert tuple(inspect.signature(ours).parameters) == found[0].parameters, path
