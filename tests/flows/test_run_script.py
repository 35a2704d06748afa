"""Scripts by the flow and the command line: their runs, resumes, failures and ends."""

import json
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.errors import RunExistsError
from partwise.flows import run_script
from partwise.outcomes import RunStatus
from partwise.reports.report import render_report
from partwise.runs.garbage import collect_garbage

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scripts"


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture
def run(cluster, store, tmp_path):
    """Run a script of the given text, or an example by its name."""

    def call(script, **arguments):
        if script.endswith(".py"):
            given = {"entry_script": script, "source_directory": str(EXAMPLES)}
        else:
            (tmp_path / "main.py").write_text(script)
            given = {"entry_script": "main.py", "source_directory": str(tmp_path)}
        return run_script(
            **{**given, "store": store, "compute_target": cluster, "grace_s": 1.0, **arguments}
        )

    return call


def test_a_plain_script_is_given_rows_and_leaves_a_model(run, store, tmp_path):
    table = pa.table({"store": ["a", "b", "c"], "sales": [1.0, 2.0, 6.0]})
    (tmp_path / "rows.csv").write_text("store,sales\na,1\nb,5\n")
    made = run(
        "train_plain.py",
        run_id="plain",
        params={"column": "sales"},
        arguments=["--data", "{inputs.rows}", "--model", "{outputs}/mean.json"],
        inputs={"rows": str(tmp_path / "rows.csv"), "table": table},
    )
    assert (made.kind, made.status, made.counts) == (
        "run-script",
        RunStatus.SUCCESS,
        {"DONE": 1},
    )
    assert json.loads(made.artifact(0, "outputs/mean.json")) == {"mean": 3, "rows": 2}
    assert "2 rows" in made.logs(0)
    assert made.partitions["exit_code"].to_pylist() == [0]
    assert "run of a script" in render_report(made)
    assert collect_garbage(made.store, "plain", dry_run=True, grace_hours=0).files == []
    with pytest.raises(RunExistsError):
        run("train_plain.py", run_id="plain", arguments=["--data", "x", "--column", "y"])
    # The artifact of one run is the input of another, and rows in memory come as Parquet.
    text = textwrap.dedent("""
        import json, os, pathlib, pyarrow.parquet as pq
        rows = pq.read_table(os.environ["PARTWISE_INPUT_TABLE"])
        mean = json.loads(pathlib.Path(os.environ["PARTWISE_INPUT_MODEL"]).read_text())
        seen = {"rows": rows.num_rows, **mean, "sales": rows["sales"][2].as_py()}
        print(json.dumps({"metrics": seen}))
    """)
    again = run(
        text,
        run_id="uses",
        inputs={"model": "run://plain/0/outputs/mean.json", "table": table},
        process_count_per_node=2,
    )
    row = again.partitions.to_pylist()[1]
    assert (row["rows"], row["mean"], row["sales"]) == (None, 3.0, 6.0)


def test_scripts_of_torch_find_each_other_as_under_torchrun_and_open_mpi(run):
    pytest.importorskip("torch")
    made = run("train_ddp.py", run_id="ddp", node_count=2, backend="gloo", params={"epochs": 2})
    assert made.counts == {"DONE": 2}
    assert made.partitions["epoch"].to_pylist() == [1, 1]
    assert "outputs/model.pt" in made.artifacts(0)
    assert "outputs/model.pt" not in made.artifacts(1)
    shim = run("train_ompi_shim.py", run_id="shim", process_count_per_node=2)
    assert shim.partitions["sum"].to_pylist() == [3, 3]
    assert shim.partitions["node_rank"].to_pylist() == [0, 0]
    shim = run("train_ompi_shim.py", run_id="shim-2", node_count=2)
    assert shim.partitions["node_rank"].to_pylist() == [0, 1]
