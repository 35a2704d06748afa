"""The command line, most of it in this process: what it prints, and the code it ends with."""

import json
import re
import shlex
import shutil
import socket
import sys
import urllib.request
import webbrowser
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cyclopts import App
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

from partwise.blocks import RemoteCluster
from partwise.flows import train_models
from partwise.flows.cli.main import app, main
from partwise.outcomes import Skip
from partwise.runs.run import Run
from partwise.sources.files import formats, heads
from tests.command_line import Ended, partwise

# What Prefect shows of runs is asked of its server.
pytestmark = pytest.mark.usefixtures("prefect_server")

STORES = [f"s{i}" for i in range(8)]
DAYS = 30


@pytest.fixture(scope="module")
def sales(tmp_path_factory) -> Path:
    """Eight stores with thirty days each."""
    random = np.random.default_rng(0)
    n = len(STORES) * DAYS
    table = pa.table(
        {
            "store": [store for store in STORES for _ in range(DAYS)],
            "day": [date(2026, 1, 1) + timedelta(days=i % DAYS) for i in range(n)],
            "x": random.normal(size=n),
            "y": random.normal(size=n),
            "empty": pa.nulls(n, pa.float64()),
        }
    )
    path = tmp_path_factory.mktemp("cli") / "sales.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def functions() -> Iterator[str]:
    """The name of a module that the command line can import; workers get it by value."""
    folder = str(Path(__file__).parent)
    sys.path.append(folder)
    import cli_functions

    cloudpickle.register_pickle_by_value(cli_functions)
    yield "cli_functions"
    cloudpickle.unregister_pickle_by_value(cli_functions)
    sys.path.remove(folder)


@pytest.fixture
def address(cluster: RemoteCluster) -> list[str]:
    """The options that name the session's cluster."""
    return ["--address", cluster.address, "--shares-filesystem"]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("cli-store"))


@pytest.fixture(scope="module")
def mixed_run(sales: Path, store: str, functions: str, cluster: RemoteCluster) -> str:
    """The ID of a run with five partitions DONE, two FAILED and one SKIPPED."""
    address = ["--address", cluster.address, "--shares-filesystem"]
    words = ["train", sales, "-p", "store", "--trainer", f"{functions}:mean", "--pickle"]
    words += ["--run-id", "mixed", "--store", store, "--max-retries", "0", *address]
    ended = partwise(*words)
    assert ended.code == 3, ended
    return "mixed"


def test_train_infer_and_look(sales, tmp_path, address, monkeypatch) -> None:
    monkeypatch.setenv("PARTWISE_STORE", str(tmp_path / "artifacts"))
    words = ["train", sales, "--partition-by", "store", "--trainer", "lightgbm", "--label", "y"]
    words += ["--features", "x", "--param", "num_leaves=4", "--rounds", "3", "--min-rows", "2"]
    words += ["--holdout-by-time", "day", "--filter", "day < 2026-01-21", "--filter", "store != s7"]
    trained = partwise(*words, "--run-id", "models", *address)
    assert trained.code == 0, trained
    lines = trained.out.splitlines()
    assert re.fullmatch(r"models  SUCCESS in \d+\.\d s", lines[0])
    assert "  partitions  7: 7 DONE" in lines
    assert "  rows        140" in lines
    assert re.search(r"holdout_rmse +\d", trained.out)
    assert re.search(r"seconds +cluster \d+\.\d, load", trained.out)
    assert f"  lies in     {tmp_path}/artifacts/runs/models" in lines
    where = """--filter '"day" < "2026-01-21"' --filter '"store" != "s7"'"""
    next_command = f"partwise infer {sales} {where} --partition-by store --training-run-id models"
    assert lines[-1] == f"next: {next_command}  (use the models, here on the rows of the training)"
    assert trained.err == ""

    words = next_command.replace(where, "").split()[1:]
    words += ["--keep-columns", "day", "--filter", "store in s0,s1,s7", *address]
    inferred = partwise(*words, "--run-id", "rows")
    assert inferred.code == 3
    assert "3: 2 DONE, 1 FAILED" in inferred.out
    assert "1 x ModelNotFoundError: " in inferred.out
    assert 'on_missing_model="skip" skips such partitions.' in inferred.out
    assert Run.open("rows", tmp_path / "artifacts").predictions().num_rows == 2 * DAYS

    skipped = partwise(*words, "--on-missing-model", "skip", "--run-id", "rows-2")
    assert skipped.code == 0
    assert skipped.out.splitlines()[-1].startswith("next: partwise runs export ")

    listed = partwise("runs", "list")
    assert listed.code == 0
    rows = [line.split() for line in listed.out.splitlines()]
    assert rows[0][:7] == ["RUN", "KIND", "STATUS", "PARTITIONS", "DONE", "SKIPPED", "FAILED"]
    assert [row[:7] for row in rows[1:]] == [
        ["rows-2", "infer", "SUCCESS", "3", "2", "1", "0"],
        ["rows", "infer", "PARTIAL_FAILURE", "3", "2", "0", "1"],
        ["models", "train", "SUCCESS", "7", "7", "0", "0"],
    ]
    few = partwise("runs", "list", "--limit", "1", "--json")
    assert json.loads(few.out)["run_id"] == "rows-2"
    assert few.out.count("\n") == 1
    assert partwise(*shlex.split(next_command)[1:], *address).code == 0


def test_map_keeps_what_a_function_returns(sales, tmp_path, functions, address) -> None:
    words = ["map", sales, "-p", "store,day", "--function", f"{functions}:first_days"]
    words += ["--filter", "x > 0", "--columns", "store,day,x", "--n-shards", "3"]
    ended = partwise(*words, "--run-id", "m", "--store", tmp_path, *address)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1].startswith(f"next: partwise runs show m --store {tmp_path}")
    run = Run.open("m", tmp_path)
    expected = pq.read_table(sales, filters=[("x", ">", 0)]).num_rows
    assert run.predictions().num_rows == expected
    assert run.document.n_shards == 3

    shown = partwise("runs", "show", "m", "--store", tmp_path, "--key", "s0,2026-01-01")
    other = partwise("runs", "show", "m", "--store", tmp_path, "--key", "s0,2025-01-01")
    found = run.partitions.filter(
        (pa.compute.field("store") == "s0") & (pa.compute.field("day") == date(2026, 1, 1))
    )
    assert (shown.code, other.code) == (0 if found.num_rows else 2, 2)
    assert other.error.startswith("The run 'm' has no partition 's0,2025-01-01'.")


def test_a_command_reads_each_footer_once(sales, tmp_path, functions, address, monkeypatch) -> None:
    folder = tmp_path / "sales"
    folder.mkdir()
    for i in range(3):
        shutil.copy(sales, folder / f"{i}.parquet")
    read: list[str] = []

    def read_head(file, options):
        read.append(Path(file.path).name)
        return formats.read_head(file, options)

    monkeypatch.setattr(heads, "read_head", read_head)
    words = ["map", folder, "-p", "store", "--function", f"{functions}:first_days"]
    words += ["--store", tmp_path / "store", "--filter", "x > 0", "--run-id", "once"]
    ended = partwise(*words, *address)
    assert ended.code == 0, ended
    assert sorted(read) == ["0.parquet", "1.parquet", "2.parquet"]

    # The call is written down, and shown in the UI, as if the paths had been passed.
    run = Run.open("once", tmp_path / "store")
    assert run.read_generation_document().call["data"] == {
        "paths": [str(folder)],
        "columns": None,
        "filter": [[["x", ">", 0]]],
    }
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=["once"]))
        (flow_run,) = client.read_flow_runs(flow_run_filter=named)
    assert flow_run.parameters["data"] == [str(folder)]

    read.clear()
    resumed = partwise("runs", "resume", "once", "--store", tmp_path / "store", *address)
    assert resumed.code == 0, resumed
    assert sorted(read) == ["0.parquet", "1.parquet", "2.parquet"]
    assert "8 kept from before" in resumed.out


def test_a_partial_failure_ends_with_3_and_says_what_failed(store, mixed_run) -> None:
    shown = partwise("runs", "show", mixed_run, "--store", store)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert "  partitions  8: 5 DONE, 2 FAILED, 1 SKIPPED" in lines
    assert "  skipped     1 x too few rows" in lines
    assert "  keys        store (string)" in lines
    assert "  metrics     rows  30  (medians over 5 partitions)" in lines
    # Two failures of one cause, though their messages differ by the key.
    place = lines.index("  failures    2 x ValueError: s3 is")
    assert lines[place + 1].strip() == "s3; s4"
    assert lines[-1] == (
        f"next: partwise runs show {mixed_run} --failures --store {store}  (what failed, and where)"
    )

    failures = partwise("runs", "show", mixed_run, "--store", store, "--failures")
    assert failures.code == 0
    assert failures.out.splitlines()[:2] == ["2 x ValueError: s3 is", "    s3; s4"]
    as_json = partwise("runs", "show", mixed_run, "--store", store, "--failures", "--json")
    records = [json.loads(line) for line in as_json.out.splitlines()]
    assert [record["key.store"] for record in records] == ["s3", "s4"]
    assert records[0]["error_message"] == "s3 is\nbeyond me"


def test_a_run_of_which_all_is_skipped_ends_with_0_and_a_warning(
    sales, tmp_path, functions, address
) -> None:
    words = ["map", sales, "-p", "store", "--function", f"{functions}:mean"]
    words += ["--filter", "store == s2", "--output", "dataset://nothing", "--store", tmp_path]
    ended = partwise(*words, "--run-id", "all-skipped", *address)
    assert ended.code == 0, ended
    assert ended.out.startswith("all-skipped  SKIPPED in ")
    assert ended.out.splitlines()[-1].startswith("next: partwise runs show all-skipped --open")
    message = "SKIPPED: 1 partition (1 SKIPPED). Nothing was made: 1 x too few rows."
    assert f"warning: Run all-skipped: {message}\n" in ended.err
    assert partwise("data", "list", "--store", tmp_path, "--json").out == "", "nothing to register"
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=["all-skipped"]))
        (flow_run,) = client.read_flow_runs(flow_run_filter=named)
    assert flow_run.state is not None
    assert (flow_run.state.type.value, flow_run.state.name) == ("COMPLETED", "SKIPPED")
    assert flow_run.state.message == message


def test_one_partition_and_its_log_are_shown(store, mixed_run) -> None:
    words = ["runs", "show", mixed_run, "--store", store]
    shown = partwise(*words, "--key", "s3")
    assert shown.code == 0
    fields = dict(line.split(maxsplit=1) for line in shown.out.splitlines() if "  " in line)
    assert fields["status"] == "FAILED"
    assert fields["error_type"] == "ValueError"
    by_id = partwise(*words, "--key", fields["partition_id"])
    assert by_id.out == shown.out
    log = partwise(*words, "--key", "s3", "--logs")
    assert log.out.startswith("looking at s3\nTraceback")
    assert partwise(*words, "--key", "s2", "--logs") == Ended(0, "", "")
    record = json.loads(partwise(*words, "--key", "s5", "--json").out)
    assert (record["store"], record["status"], record["rows"]) == ("s5", "DONE", DAYS)
    assert {file["filename"] for file in record["artifacts"]} == {
        "log.txt",
        "model.pkl",
        "partwise-sketch.bin",
    }
    whole = json.loads(partwise(*words, "--json").out)
    assert whole["counts"] == {"DONE": 5, "FAILED": 2, "SKIPPED": 1}
    assert whole["status"] == "PARTIAL_FAILURE"


def test_what_readers_see_during_a_resume_and_how_far_it_is_are_shown(make_run) -> None:
    make_run.begin()
    make_run.commit(*[(key, "DONE", 1.0) for key in "abc"])
    make_run.end(3)
    make_run.begin(code="other", partitions=3)
    make_run.commit(("a", "FAILED", 2.0))
    words = ["runs", "show", "run", "--store", make_run.store.url]
    shown = partwise(*words).out
    assert re.search(r"note +generation 2 at work since .* UTC, 1 of 3; or its process died", shown)
    assert re.search(r"readers see +generation 1 \(SUCCESS\): 3 DONE", shown)
    assert re.search(r"partitions +1 so far: 1 FAILED", shown)
    record = json.loads(partwise(*words, "--json").out)
    assert (record["generation"], record["shown_generation"]) == (2, 1)
    assert (record["counts"], record["at_work"]["committed"]) == ({"DONE": 3}, 1)
    listed = partwise("runs", "list", "--store", make_run.store.url, "--json").out
    assert json.loads(listed)["counts"] == {"DONE": 3}
    failures = partwise(*words, "--failures").out
    assert "bad a" in failures
    assert failures.splitlines()[-1].startswith("next: partwise runs logs run --store ")
    assert "DONE" in partwise(*words, "--key", "a").out
    assert "FAILED" in partwise(*words, "--key", "a", "--generation", "2").out
    assert "no generation 3; its newest is 2" in partwise(*words, "--generation", "3").err
    make_run.leave()


@pytest.mark.slow
def test_a_pickle_is_read_when_told_to(sales, store, mixed_run, functions, address) -> None:
    words = ["infer", sales, "-p", "store", "--training-run-id", mixed_run, "--store", store]
    words += ["--predict", f"{functions}:add", "--on-missing-model", "skip", *address]
    refused = partwise(*words)
    assert refused.code == 2
    assert "The model is of the format 'pickle', and none was given" in refused.error
    inferred = partwise(*words, "--pickle", "--run-id", "added")
    assert inferred.code == 0, inferred
    assert "5 DONE, 3 SKIPPED" in inferred.out


def test_a_resume_runs_what_is_not_done(store, mixed_run, address, tmp_path) -> None:
    # Others look at the run as it was.
    store = str(shutil.copytree(store, tmp_path / "store"))
    resumed = partwise("runs", "resume", mixed_run, "--store", store, *address)
    assert resumed.code == 3
    assert "8: 5 DONE, 2 FAILED, 1 SKIPPED  (5 kept from before, 3 run)" in resumed.out
    again = partwise("runs", "show", mixed_run, "--store", store)
    assert re.search(r"generation +2, begun", again.out)


@pytest.mark.slow
def test_a_run_without_success_ends_with_1(sales, tmp_path, functions, address) -> None:
    words = ["train", sales, "-p", "store", "--trainer", f"{functions}:fail", "--store", tmp_path]
    ended = partwise(*words, "--run-id", "bad", "--max-retries", "0", *address)
    assert ended.code == 1
    assert ended.error.startswith("The run 'bad' ended with FAILURE: 8 partitions (8 FAILED).")
    # A function's own words are repeated as they are.
    for told in (ended.error, ended.out):
        assert "8 x RuntimeError: none of them without run_id='own'" in told
    assert "s0; s1; s2 and 5 more" in ended.out
    stopped = partwise(*words, "--run-id", "budget", "--fail-fast", *address)
    assert stopped.code == 1
    assert "the failure budget is 0" in stopped.error


def test_what_cannot_be_repeated_is_named_with_the_call(tmp_path, cluster, address) -> None:
    def fit(data, context):
        return Skip("so it is")

    train_models(pa.table({"k": [1]}), "k", fit, run_id="mem", store=tmp_path, cluster=cluster)
    ended = partwise("runs", "resume", "mem", "--store", tmp_path, *address)
    assert ended.code == 2
    assert "the rows are a frame or table in memory" in ended.error
    call = "train_models(..., partition_by=['k'], run_id='mem', "
    assert call in ended.error
    assert ended.error.endswith("on_existing_artifacts='resume')")


@pytest.mark.slow
def test_what_nothing_refers_to_is_deleted_on_request(sales, tmp_path, functions, address) -> None:
    words = ["map", sales, "-p", "store", "--function", f"{functions}:first_days", "--run-id", "m"]
    words += ["--store", tmp_path, "--on-existing-artifacts", "overwrite", "--n-shards", "2"]
    assert [partwise(*words, *address).code for _ in range(2)] == [0, 0]
    words = ["runs", "gc", "m", "--grace-hours", "0", "--store", tmp_path]
    planned = [
        json.loads(line) for line in partwise(*words, "--dry-run", "--json").out.splitlines()
    ]
    assert planned
    assert all((tmp_path / file["path"]).stat().st_size == file["size_bytes"] for file in planned)
    told = partwise(*words, "--dry-run")
    assert told.code == 0
    assert told.out.splitlines()[-1].startswith(f"{len(planned)} files of m would be deleted, ")
    assert partwise(*words).out.splitlines()[-1].startswith(f"{len(planned)} files of m deleted, ")
    assert not any((tmp_path / file["path"]).exists() for file in planned)
    assert partwise(*words).out == "0 files of m deleted, 0 B\n"
    assert Run.open("m", tmp_path).predictions().num_rows == len(STORES)


def table(tmp_path: Path, rows: pa.Table) -> str:
    pq.write_table(rows, tmp_path / "bad.parquet")
    return str(tmp_path / "bad.parquet")


BAD_INPUT = {
    "missing key column": ({"-p": "shop"}, "--partition-by names column 'shop'", 2),
    "missing label": ({"--label": "z"}, "The label 'z' is missing", 2),
    "label all null": ({"--label": "empty"}, "The label 'empty' is null in every row", 2),
    "missing filter column": ({"--filter": "z > 1"}, "The filter names column 'z'", 2),
    "filter of another type": ({"--filter": "x = abc"}, "compares column 'x'", 2),
    "no rows after filter": ({"--filter": "x > 1000"}, "leaves none of the 240 rows", 2),
    "malformed run ID": ({"--run-id": "../x"}, "The run_id '../x' is not a safe name", 2),
    "unknown parameter": ({"--param": "leafs=3"}, "LightGBM has no parameter 'leafs'", 2),
    "unwritable store": ({"--store": "/proc/nowhere"}, "/proc/nowhere", 1),
    "unknown kind of store": ({"--store": "ftp://x/y"}, "'ftp://x/y' is of an unknown kind", 2),
    "no cluster": (
        {"--address": "tcp://127.0.0.1:9", "--connect-timeout-s": "0.3"},
        "No Dask scheduler answered at tcp://127.0.0.1:9",
        1,
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_nothing_is_written(
    name, sales, tmp_path, cluster, monkeypatch
) -> None:
    changes, message, code = BAD_INPUT[name]
    monkeypatch.chdir(tmp_path)
    options = {
        "-p": "store",
        "--trainer": "lightgbm",
        "--label": "y",
        "--features": "x",
        "--address": cluster.address,
        **changes,
    }
    words = [word for option in options.items() for word in option]
    ended = partwise("train", sales, *words, "--shares-filesystem")
    assert ended.code == code, ended
    assert message in ended.error
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            pa.table({"store": pa.array([], pa.string()), "y": pa.array([], pa.float64())}),
            "no rows",
        ),
        (
            pa.Table.from_arrays(
                [pa.array(["a"]), pa.array([1.0]), pa.array([2.0])], ["store", "y", "y"]
            ),
            "more than one column named 'y'",
        ),
        (pa.table({"store": ["a", None], "y": [1.0, 2.0], "x": [1.0, 2.0]}), "null"),
        (pa.table({"store": [["a"]], "y": [1.0]}), "cannot be a partition key"),
    ],
    ids=["empty table", "duplicate columns", "null key", "list as key"],
)
def test_a_bad_table_is_refused(rows, message, tmp_path, address) -> None:
    path = table(tmp_path, rows)
    words = ["train", path, "-p", "store", "--trainer", "lightgbm", "--label", "y"]
    ended = partwise(*words, "--store", tmp_path / "store", *address)
    assert ended.code == 2, ended
    assert message in ended.error
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "no.parquet", "-p", "k", "--trainer", "a:b"], "There is no file or directory"),
        (["train", "SALES", "-p", "store", "--trainer", "lightgbm"], "needs --label"),
        (["train", "SALES", "--trainer", "lightgbm", "--label", "y"], "--partition-by"),
        (["train", "-p", "store", "--trainer", "lightgbm", "--label", "y"], "DATA"),
        (["train", "SALES", "-p", "store", "--trainer", "a:b", "--workers", "two"], "--workers"),
        (["train", "SALES", "-p", "store", "--trainr", "a:b"], "Did you mean --trainer"),
        (["trian"], 'Did you mean "train"?'),
        (["runs", "show", "nope"], "There is no run 'nope' in"),
        (["runs", "show", "../x"], "The run_id '../x' is not a safe name"),
        (["runs", "show", "nope", "--logs"], "name it with --key"),
        (["runs", "show", "nope", "--failures", "--key", "1"], "give one of them"),
        (["runs", "export", "a", "--what", "models", "--to", "b"], '"drift", "artifacts"'),
        (["runs", "resume", "nope"], "There is no run 'nope' in"),
        (["runs", "gc", "nope"], "There is no run 'nope' in"),
        (["runs", "list", "--store", "s3://me:secret@bucket"], "credentials"),
    ],
)
def test_a_wrong_call_ends_with_2_before_a_server_is_asked(
    words, message, sales, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("PARTWISE_STORE", str(tmp_path / "store"))
    ended = partwise(*[str(sales) if word == "SALES" else word for word in words])
    assert ended.code == 2, ended
    assert message in ended.error
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_an_existing_run_is_an_error_unless_told_otherwise(
    sales, store, mixed_run, address
) -> None:
    words = ["train", sales, "-p", "store", "--trainer", "lightgbm", "--label", "y"]
    words += ["--features", "x", "--run-id", mixed_run, "--store", store]
    ended = partwise(*words, *address)
    assert ended.code == 2
    assert f"The run '{mixed_run}' exists in" in ended.error


def test_an_empty_store_and_a_damaged_run_are_told_of(store, tmp_path, mixed_run) -> None:
    empty = partwise("runs", "list", "--store", tmp_path)
    assert empty == Ended(0, f"There are no runs in {tmp_path}.\n", "")
    assert partwise("runs", "list", "--store", tmp_path, "--json") == Ended(0, "", "")
    damaged = tmp_path / "runs" / "odd"
    damaged.mkdir(parents=True)
    (damaged / "run.json").write_text("{}")
    listed = partwise("runs", "list", "--store", tmp_path)
    assert listed.code == 0
    assert listed.out.splitlines()[1].split()[:2] == ["odd", "UNREADABLE"]
    shown = partwise("runs", "show", "odd", "--store", tmp_path)
    assert shown.code == 1
    assert "format version" in shown.error


def test_the_first_error_is_raised_where_one_wants_to_see_it(tmp_path, monkeypatch) -> None:
    with pytest.raises(LookupError, match="There is no run 'nope'"):
        main(["runs", "show", "nope", "--store", str(tmp_path), "--debug"])
    monkeypatch.setenv("PARTWISE_DEBUG", "1")
    with pytest.raises(LookupError, match="There is no run 'nope'"):
        main(["runs", "show", "nope", "--store", str(tmp_path)])


def test_the_version_and_help_are_printed() -> None:
    assert partwise("--version").out.startswith("partwise 0.")
    assert "Train one model per partition" in partwise("--help").out
    for command in ("train", "infer", "map", "runs list", "runs show", "runs resume", "runs gc"):
        ended = partwise(*command.split(), "--help")
        assert ended.code == 0
        assert f"Usage: partwise {command} " in ended.out


def commands_of(group: App) -> Iterator[App]:
    for name in group:
        if not name.startswith("-"):
            command = group[name]
            yield from [command] if command.default_command else commands_of(command)


def test_every_argument_and_option_of_every_command_says_what_it_is() -> None:
    commands = list(commands_of(app))
    assert len(commands) > 50
    for command in commands:
        arguments = command.assemble_argument_collection(parse_docstring=True)
        shown = [each for each in arguments if each.show]
        assert not [each.names for each in shown if not each.parameter.help], command.name


@pytest.fixture
def browser(monkeypatch) -> list[str]:
    """What a browser was asked to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    return asked


def test_a_report_that_is_lost_is_made_for_the_browser(store, mixed_run, browser) -> None:
    Run.open(mixed_run, store).store.delete(f"runs/{mixed_run}/report.html")
    words = ["runs", "show", mixed_run, "--open", "--store", store]
    ended = partwise(*words)
    assert (ended.code, ended.err) == (0, "")
    (url,) = browser
    path = Path(urllib.request.url2pathname(url.removeprefix("file://")))
    assert ended.out == f"report: {path}\n"
    text = path.read_text()
    assert "mixed" in text
    assert "not enough" in text or "ValueError" in text
    assert not path.is_relative_to(store)
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("word", ["--failures", "--json", "--key=s3"])
def test_open_is_given_by_itself(store, mixed_run, browser, word) -> None:
    ended = partwise("runs", "show", mixed_run, "--open", word, "--store", store)
    assert ended.code == 2
    assert ended.error.startswith("--open shows the report of the whole run")
    assert browser == []


def test_the_ledger_names_the_workers(store, mixed_run) -> None:
    hosts = Run.open(mixed_run, store).partitions["host"].to_pylist()
    assert all(re.fullmatch(rf"{re.escape(socket.gethostname())}/.+", host) for host in hosts)
