"""Scripts by the flow and the command line: their runs, resumes, failures and ends."""

import os
import re
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.environments.environment import Environment
from partwise.errors import (
    InputError,
    PackageError,
    RunExistsError,
    RunFailedError,
    RunNotFoundError,
)
from partwise.flows import run_script
from partwise.flows.cli.main import main
from partwise.outcomes import RunStatus
from partwise.processes.family import find_marked
from partwise.reports.report import render_report
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from tests.environments.wheels import make_wheel

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
            **{**given, "store": store, "cluster": cluster, "grace_s": 1.0, **arguments}
        )

    return call


def test_a_plain_script_is_given_rows_and_leaves_a_model(run, store, tmp_path):
    table = pa.table({"store": ["a", "b", "c"], "sales": [1.0, 2.0, 6.0]})
    (tmp_path / "rows.csv").write_text("store,sales\na,1\nb,5\n")
    made = run(
        "train_plain.py",
        run_id="plain",
        arguments=[
            "--column",
            "sales",
            "--data",
            "{inputs.rows}",
            "--model",
            "{outputs}/mean.json",
        ],
        inputs={"rows": str(tmp_path / "rows.csv"), "table": table},
    )
    assert (made.kind, made.status, made.counts) == (
        "run-script",
        RunStatus.SUCCESS,
        {"DONE": 1},
    )
    assert made.artifact(0, "outputs/mean.json") == {"mean": 3, "rows": 2}
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
        ranks_per_node=2,
    )
    row = again.partitions.to_pylist()[1]
    assert (row["rows"], row["mean"], row["sales"]) == (None, 3.0, 6.0)


@pytest.mark.slow
def test_scripts_of_torch_find_each_other_as_under_torchrun_and_open_mpi(run):
    pytest.importorskip("torch")
    made = run("train_ddp.py", run_id="ddp", nodes=2, backend="gloo", arguments={"epochs": 2})
    assert made.counts == {"DONE": 2}
    assert made.partitions["epoch"].to_pylist() == [1, 1]
    assert "outputs/model.pt" in made.artifacts(0)
    assert "outputs/model.pt" not in made.artifacts(1)
    shim = run("train_ompi_shim.py", run_id="shim", ranks_per_node=2)
    assert shim.partitions["sum"].to_pylist() == [3, 3]
    assert shim.partitions["node_rank"].to_pylist() == [0, 0]
    shim = run("train_ompi_shim.py", run_id="shim-2", nodes=2)
    assert shim.partitions["node_rank"].to_pylist() == [0, 1]


def test_open_mpi_starts_the_processes_of_a_script(mpirun, run):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    text = """
        import json
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        print(json.dumps({"metrics": {"sum": world.allreduce(world.rank + 1)}}))
    """
    made = run(textwrap.dedent(text), run_id="mpi", nodes=2, backend="mpi")
    assert made.partitions["sum"].to_pylist() == [3, 3]


def test_a_script_has_packages_of_its_own(run, tmp_path):
    make_wheel(tmp_path / "wheels", "tiny-one", "1.5", "VALUE = 9\n")
    wanted = Environment(
        packages=("tiny-one>=1",), find_links=(str(tmp_path / "wheels"),), no_index=True
    )
    text = """
        import importlib.util, json, tiny_one
        partwise = importlib.util.find_spec("partwise") is not None
        print(json.dumps({"metrics": {"value": tiny_one.VALUE, "partwise": partwise}}))
    """
    made = run(textwrap.dedent(text), run_id="own", environment=wanted, ranks_per_node=2)
    assert made.partitions["value"].to_pylist() == [9, 9]
    assert made.partitions["partwise"].to_pylist() == [0, 0]
    assert made.read_generation_document().environment["tiny-one"].startswith("1.5")
    newer = wanted.model_copy(update={"packages": ("tiny-one>2",)})
    with pytest.raises(PackageError, match=r"tiny-one.*uv says:.*\n?.*tiny-one"):
        run("pass", run_id="none", environment=newer)


FAILURES = [
    ("raise SystemExit(3)", {}, "Its process ended: exit status 3"),
    ("import no_such_module", {}, "No module named 'no_such_module'"),
    (
        """
import os, socket, time
if os.environ["RANK"] == "1":
    first = socket.create_server(("127.0.0.1", 0))
    socket.socket().bind(first.getsockname())
time.sleep(6000)
""",
        {"ranks_per_node": 2},
        "Address already in use",
    ),
    (
        "import time; print('at work', flush=True); time.sleep(6000)",
        {"timeout_s": 1.0},
        "its time limit of 1 s was over",
    ),
    (
        "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(6000)",
        {"timeout_s": 1.0, "ranks_per_node": 2},
        "its time limit of 1 s was over",
    ),
    (
        "import pathlib; pathlib.Path('outputs/passwords').symlink_to('/etc/passwd')",
        {},
        "is a link to /etc/passwd, outside of the working folder",
    ),
]


@pytest.mark.parametrize("place", range(len(FAILURES)))
def test_a_failure_is_told_and_leaves_nothing_behind(run, dask_client, place):
    text, arguments, message = FAILURES[place]
    name = f"fails-{place}"
    with pytest.raises(RunFailedError, match=re.escape(message)) as caught:
        run(text, run_id=name, **arguments)
    failed = caught.value.run
    assert (failed.status, failed.summary.counts.get("DONE")) == (RunStatus.FAILURE, None)
    assert_nothing_is_left(dask_client, name)


def assert_nothing_is_left(client, run_id) -> None:
    """No process of a script, no folder of a node, and all slots free."""
    assert find_marked(f"PARTWISE_RUN_ID={run_id}".encode()) == []

    def folders(dask_worker):
        # One of them may go away at that moment, of which `rglob` makes an error.
        walk = os.walk(dask_worker.local_directory)
        return [name for _, names, _ in walk for name in names if name.startswith("gang-")]

    # A worker that only lent its slot learns of the end when the call has returned.
    deadline = time.monotonic() + 10
    while any(left := list(client.run(folders).values())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == [[], []]
    # Tasks of another kind than a gang's get the slots at once.
    assert client.gather(client.map(abs, [-1, -2], pure=False)) == [1, 2]


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    # Two generations away, in a session of its own, and deaf to SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    open("started", "w").close()
    time.sleep(600)
while not os.path.exists("started"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "time.sleep(600)"])
def test_a_daemon_ends_with_its_script(run, dask_client, then):
    name = f"daemon-{len(then)}"
    limit_s = 2.0 if "sleep" in then else 120.0
    call = {"run_id": name, "ranks_per_node": 2, "timeout_s": limit_s}
    if then:
        with pytest.raises(RunFailedError, match=r"exit status 3|its time limit of 2 s was over"):
            run(DAEMON + then, **call)
    else:
        assert run(DAEMON, **call).counts == {"DONE": 2}
    assert_nothing_is_left(dask_client, name)


MULTIPROCESSING = """
import multiprocessing, os, signal
from multiprocessing.util import get_temp_dir
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    lock, manager = context.Lock(), context.Manager()
    folders = [get_temp_dir(), os.path.dirname(manager.address)]
    names = [f"/dev/shm/sem.{lock._semlock.name[1:]}", *folders]
    assert all(map(os.path.exists, names)), names
    print(*names, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_multiprocessing_makes_in_a_script_that_is_killed_is_removed(run):
    with pytest.raises(RunFailedError, match="SIGKILL") as caught:
        run(MULTIPROCESSING, run_id="multiprocessing")
    names = caught.value.run.logs(0).split()
    assert len(names) == 3
    assert [name for name in names if os.path.exists(name)] == []


@pytest.mark.slow  # 1 GB
def test_a_gigabyte_of_output_leaves_a_small_log_and_its_metrics(run):
    text = """
        import json, os
        for place in range(1000):
            os.write(1, (b"x" * 99 + b"\\n") * 10_000)
        print(json.dumps({"metrics": {"loss": 0.5}}))
        print("the end")
    """
    made = run(textwrap.dedent(text), run_id="gigabyte")
    log = made.logs(0)
    assert len(log) < 1_100_000
    assert log.endswith("the end\n")
    assert made.partitions["loss"].to_pylist() == [0.5]


def test_snapshots_that_no_generation_needs_are_collected(run, store):
    first = run("print('first')", run_id="replaced")
    (old,) = first.store.list("runs/replaced/snapshots/")
    made = run("print('second')", run_id="replaced", on_existing_artifacts="overwrite")
    with pytest.raises(RunExistsError):
        run("print('third')", run_id="replaced")
    (new,) = set(made.store.list("runs/replaced/snapshots/")) - {old}
    # The list of what the first generation was to work on is needed no more; all else for a day.
    garbage = collect_garbage(made.store, "replaced", dry_run=False)
    keys = "runs/replaced/generations/0001.keys-0001.parquet"
    assert [file for file, _ in garbage.files] == [keys]
    words = ["runs", "gc", "replaced", "--store", str(store), "--grace-hours", "0"]
    assert main([*words, "--dry-run"]) == 0
    assert made.store.exists(old)
    assert main(words) == 0
    assert made.store.list("runs/replaced/snapshots/") == [new]
    again = run(
        "",
        run_id="replaced-again",
        source_directory="run://replaced",
        on_existing_artifacts="error",
    )
    assert "second" in again.logs(0)


REFUSED = [
    ({"entry_script": "nowhere.py"}, "no script 'nowhere.py' in .*; the scripts that are: main.py"),
    # Paths of pathlib too, as inputs are.
    ({"entry_script": Path("nowhere.py")}, "no script 'nowhere.py' in "),
    ({"source_directory": Path("/nowhere")}, "source_directory='/nowhere': there is no such"),
    ({"entry_script": "nowhere.py", "resume_from": Path("/nowhere")}, "no script 'nowhere.py' in"),
    ({"entry_script": "../main.py"}, "'../main.py' is not in the source directory"),
    ({"entry_script": "", "command": ""}, "give one of them; neither is given"),
    ({"command": "true"}, "give one of them; both are given"),
    ({"source_directory": "/nowhere"}, "there is no such folder"),
    ({"inputs": {"rows": "/nowhere/x.csv"}}, "The input 'rows', /nowhere/x.csv, is not there"),
    ({"inputs": {"rows": "run://nobody/0/x"}}, "There is no run 'nobody'"),
    ({"arguments": ["{inputs.rows}"]}, "there is no input 'rows'; there are: none"),
    ({"outputs": ["../x"]}, "give globs relative to the script's working folder"),
    ({"ranks_per_node": 64}, "64 processes with 1 CPUs each .* The cluster has 2 workers"),
    ({"nodes": 3}, "room for 2 such nodes"),
    ({"backend": "nccl"}, "no process has one: give backend='gloo'"),
    ({"environment_variables": {"A-B": "x"}}, "not a variable's name"),
    (
        {"backend": "mpi", "environment_variables": {"PATH": "/nowhere"}},
        "On the worker tcp.*: backend='mpi' needs Open MPI",
    ),
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_cannot_be_run_is_refused_before_anything_is_written(run, store, place):
    arguments, message = REFUSED[place]
    with pytest.raises((InputError, RunNotFoundError), match=message):
        run("pass", run_id="refused", **arguments)
    assert not (store / "runs" / "refused" / "run.json").exists()


def test_the_command_line_runs_shows_and_repeats_a_script(cluster, store, tmp_path, capsys):
    there = ["--store", str(store), "--address", cluster.address, "--shares-filesystem"]
    words = ["run-script", "main.py", "-d", str(tmp_path), "--run-id", "typed"]
    (tmp_path / "main.py").write_text('print(\'{"metrics": {"loss": 0.5}}\')\n')
    assert main([*words, *there, "--", "--lr", "0.1", "$RANK"]) == 0
    assert "typed  SUCCESS" in capsys.readouterr().out
    call = Run.open("typed", store).read_generation_document().call["arguments"]
    assert call["arguments"] == ["--lr", "0.1", "$RANK"]
    # Of the snapshot that the run has, whatever became of the folder.
    (tmp_path / "main.py").unlink()
    assert main(["runs", "repeat", "typed", "--run-id", "again", *there]) == 0
    assert Run.open("again", store).partitions["loss"].to_pylist() == [0.5]
    assert main(["runs", "show", "again", "--store", str(store)]) == 0
    assert "loss" in capsys.readouterr().out
    assert main(["run-script", "--run-id", "none", *there]) == 2
