"""Calls of flows within a flow run of Prefect, and without any server: both come to the same."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    temporary_settings,
)

from partwise.calls.call import Call
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.errors import (
    ArgumentError,
    ColumnError,
    InputError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
    RunIdError,
)
from partwise.flows import (
    map_partitions,
    model_pipeline,
    promote_models,
    run_script,
    scale_cluster,
    tidy_store,
    train_distributed,
    tune_model,
)
from partwise.flows.orchestration import direct
from partwise.flows.orchestration.direct import runs_directly
from partwise.flows.orchestration.interruption import note_claim
from partwise.flows.orchestration.run_flow import run_flow
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus, Skip
from partwise.runs.run import Run
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import (
    await_steps,
    begin_step,
    run_logger,
    run_step,
    step,
    try_step,
)
from partwise.trainers import LightGBMTrainer
from tests.flows.distributed_functions import count_rows, fail_on_rank_1
from tests.flows.study_functions import parabola
from tests.lazily import Lazily
from tests.thoroughness import quick_and_slow

server = Lazily("prefect.server.api.server")

ROWS = pa.table({"key": [n // 3 for n in range(24)], "value": [float(n) for n in range(24)]})
OPTIONS = ExecutionOptions(n_shards=2, max_retries=0)


@pytest.fixture(params=["prefect", "direct"])
def way(request: pytest.FixtureRequest, prefect_server: str) -> Iterator[str]:
    """How calls of flows work in a test: each is run in both ways."""
    if request.param == "prefect":
        yield "prefect"
        return
    with temporary_settings(updates={PREFECT_API_URL: None}):
        yield "direct"


@pytest.fixture
def call(way, cluster, tmp_path) -> Callable[..., Run]:
    """Call a function for each of eight partitions."""
    given = {"store": tmp_path, "cluster": cluster, "execution": OPTIONS, "run_id": "r"}

    def map_(function: Any, **arguments: Any) -> Run:
        return map_partitions(ROWS, "key", function, **{**given, **arguments})

    return map_


def fail_for(keys: set[int]) -> Callable[..., Any]:
    def function(data, context):
        if context.key in keys:
            raise ValueError("not this one")
        return {"twice": 2 * data.to_numpy("value")}

    return function


def test_a_run_succeeds_wholly_or_in_part(call, way, tmp_path) -> None:
    run = call(fail_for(set()))
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": 8})
    assert sorted(run.predictions()["twice"].to_pylist()) == [2.0 * n for n in range(24)]
    assert (Path(run.path) / "report.html").exists()
    part = call(fail_for({1, 2}), run_id="part")
    assert (part.status, part.counts) == (RunStatus.PARTIAL_FAILURE, {"DONE": 6, "FAILED": 2})
    # Only a run of Prefect's is known by a flow run.
    documents = [each.read_generation_document() for each in (run, part)]
    assert {each.flow_run_id is None for each in documents} == {way == "direct"}
    with pytest.raises(RunExistsError, match="'part'"):
        call(fail_for({1}), run_id="part")
    whole = call(fail_for(set()), run_id="part", version="1", on_existing_artifacts="overwrite")
    assert (whole.status, whole.generation) == (RunStatus.SUCCESS, 2)
    same = call(fail_for(set()), run_id="part", version="1", on_existing_artifacts="resume")
    assert (same.executed, same.kept, same.counts) == (0, 8, {"DONE": 8})


def test_a_run_that_fails_is_raised(call) -> None:
    with pytest.raises(
        RunFailedError, match=r"'r' ended with FAILURE: 8 partitions.*8 x ValueError"
    ) as caught:
        call(fail_for(set(range(8))))
    assert isinstance(caught.value.run, Run)
    assert (caught.value.run.status, caught.value.run.counts) == (RunStatus.FAILURE, {"FAILED": 8})


def test_a_run_of_which_all_is_skipped_comes_back(call) -> None:
    run = call(lambda data, context: Skip("too few rows"))
    assert (run.status, run.counts) == (RunStatus.SKIPPED, {"SKIPPED": 8})


def test_bad_input_is_refused_before_any_work(call, way, cluster, tmp_path) -> None:
    store = tmp_path / "new"
    function = fail_for(set())
    with pytest.raises(InputError, match=r"cannot use: execution\.max_retries -1: Input should"):
        call(function, store=store, execution={"max_retries": -1})
    with pytest.raises(InputError, match="null_keys 'perhaps'"):
        call(function, store=store, null_keys="perhaps")
    with pytest.raises(RunIdError, match="Mars"):
        call(function, store=store, run_id="{scheduled[Mars]}")
    with pytest.raises(ColumnError, match="'shop'"):
        map_partitions(ROWS, "shop", function, store=store, cluster=cluster)
    with pytest.raises(TypeError, match="missing a required argument: 'function'"):
        map_partitions(ROWS, "key")
    assert not store.exists()
    assert runs_directly() is (way == "direct")


def test_a_mistake_is_raised_without_the_frames_of_an_engine(call) -> None:
    with pytest.raises(RunIdError, match="not a safe name") as caught:
        call(fail_for(set()), run_id="a/b")
    with pytest.raises(ColumnError, match="'nope'") as of_column:
        call(fail_for(set()), columns=["nope"])
    for error in (caught, of_column):
        files = [Path(str(entry.path)).name for entry in error.traceback]
        assert set(files) == {"test_both_ways.py", "lazy_flow.py"}
        assert error.value.__suppress_context__


def test_a_misspelt_argument_is_named_with_what_it_may_mean(way, tmp_path) -> None:
    mistakes = (
        (map_partitions, {"stoer": tmp_path}, r"map_partitions\(\) .* 'stoer'\. .* mean 'store'\?"),
        (tidy_store, {"zzz": 1}, r"^tidy_store\(\) has no argument 'zzz'\. help\(tidy_store\) "),
        (
            lambda **given: promote_models("sales", "run", **given),
            {},
            r"too many .* arguments\. By their place it takes catalog, all others by name\.$",
        ),
        (map_partitions, {}, r"^map_partitions\(\): missing a required argument: 'data'\.$"),
    )
    for called, arguments, sentence in mistakes:
        with pytest.raises(ArgumentError, match=sentence) as caught:
            called(**arguments)
        assert isinstance(caught.value, TypeError)
        files = {Path(str(entry.path)).name for entry in caught.traceback}
        assert files == {"test_both_ways.py", "lazy_flow.py"}
    assert runs_directly() is (way == "direct")


def test_a_flow_of_a_plain_value_refuses_in_one_sentence_too(way, tmp_path) -> None:
    store = tmp_path / "new"
    with pytest.raises(
        InputError, match=r"^The call of tidy-store .* keep_last 0: Input"
    ) as caught:
        tidy_store(keep_last=0, store=store)
    assert {Path(str(entry.path)).name for entry in caught.traceback} == {
        *("test_both_ways.py", "lazy_flow.py")
    }
    with pytest.raises(InputError, match=r"scale-cluster .* n 'few': Input should be"):
        scale_cluster("few", cluster="tcp://127.0.0.1:1")
    with pytest.raises(InputError, match=r"promote-models .* catalog 3: Input should be"):
        promote_models(3, models="b", store=store)
    with pytest.raises(TypeError, match="missing a required argument: 'catalog'"):
        promote_models()
    assert not store.exists()
    assert tidy_store(keep_last="2", store=store).runs == {}
    assert runs_directly() is (way == "direct")


def test_run_ids_are_made_up_and_filled_in(call) -> None:
    made_up = call(fail_for(set()), run_id="").run_id
    assert made_up.startswith("map-20")
    assert call(fail_for(set()), run_id="due-{scheduled:%Y}").run_id.startswith("due-20")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_cancelled_and_resumed(call, tmp_path, how) -> None:
    path, sleeps = str(tmp_path / "at-work"), tmp_path / "sleeps"
    sleeps.touch()

    def work(data, context):
        Path(path).touch()
        while context.key == 5 and os.path.exists(context.params["sleeps"]):
            time.sleep(0.05)

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), how)

    before = signal.getsignal(signal.SIGTERM)
    params = {key: {"sleeps": str(sleeps)} for key in range(8)}
    thread = threading.Thread(target=interrupt)
    thread.start()
    # It works until it is told to end, so that only an interrupt has this return.
    with pytest.raises(RunCancelledError, match="'r' ended with CANCELLED") as caught:
        call(work, params=params)
    thread.join()
    assert caught.value.run.status is RunStatus.CANCELLED
    assert signal.getsignal(signal.SIGTERM) is before
    sleeps.unlink()
    done = call(work, params=params, on_existing_artifacts="resume")
    assert (done.status, done.counts) == (RunStatus.SUCCESS, {"DONE": 8})


def test_one_model_is_trained_by_a_gang(way, cluster, tmp_path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(ROWS, rows, row_group_size=6)
    given: dict[str, Any] = {"store": tmp_path, "cluster": cluster, "serde": PickleSerde()}
    given["scaling"] = ScalingConfig(ranks=2)
    run = train_distributed(rows, count_rows, run_id="gang", **given)
    assert run.model(serde=PickleSerde())["rows"] == 24
    with pytest.raises(RunFailedError, match="no such rows") as caught:
        train_distributed(rows, fail_on_rank_1, run_id="failed", **given)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.run.counts["FAILED"] >= 1


def test_a_model_is_tuned(way, cluster, tmp_path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(ROWS, rows)
    given: dict[str, Any] = {"store": tmp_path, "cluster": cluster, "serde": PickleSerde()}
    space = {"x": [0.1, 0.3]}
    run = tune_model(rows, parabola, space, run_id="t", metric="loss", trials=2, **given)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": 2})


def test_a_script_is_run(way, cluster, tmp_path) -> None:
    script = "import os; print('rank', os.environ.get('RANK', 0)); raise SystemExit(%d)"
    given: dict[str, Any] = {"store": tmp_path / "store", "cluster": cluster}
    for code, status in ((0, RunStatus.SUCCESS), (3, RunStatus.FAILURE)):
        (tmp_path / f"ends_{code}.py").write_text(script % code)
        try:
            run = run_script(f"ends_{code}.py", source_directory=str(tmp_path), **given)
        except RunFailedError as error:
            run = error.run
        assert run.status is status
        assert (run.read_generation_document().flow_run_id is None) is (way == "direct")


@pytest.mark.slow
def test_a_pipeline_runs_its_stages_in_the_same_way(way, cluster, tmp_path) -> None:
    x = np.random.default_rng(3).normal(size=240)
    rows = pa.table({"k": [n // 60 for n in range(240)], "x": x, "y": 2 * x})
    trainer = LightGBMTrainer(label="y", features=("x",), rounds=5, min_rows=20)
    done = model_pipeline(
        rows, "k", trainer, run_id="p", store=tmp_path, cluster=cluster, execution=OPTIONS
    )
    assert done.status is RunStatus.SUCCESS
    assert [run.executed for run in done.runs] == [4, 4, 4, 4]
    for run in done.runs:
        assert (run.read_generation_document().flow_run_id is None) is (way == "direct")


@dataclass(frozen=True, kw_only=True)
class Named(Call):
    """A call of a flow that does nothing else."""

    kind = "map"


def test_an_error_of_somebody_elses_comes_as_it_is(way, make_run) -> None:
    @run_flow(Named, name="breaks")
    def breaks(call: Named) -> Run:
        raise LookupError("somebody else's")

    with pytest.raises(LookupError, match="somebody else's"):
        breaks()


def test_secrets_are_masked_in_lines(way, make_run, caplog) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    make_run.end(1)

    @run_flow(Named, name="leaks")
    def leaks(call: Named) -> Run:
        run_logger().warning("no answer from postgresql://app:canary7f3a@db/shop")
        assert is_direct() is (way == "direct")
        return Run.open("run", make_run.store)

    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    assert leaks(run_id="leaks").run_id == "run"
    [record] = [record for record in caplog.records if "no answer" in record.getMessage()]
    assert record.name == "prefect.flow_runs"
    assert record.flow_run_name == "leaks"
    assert "canary" not in record.getMessage()


def test_a_process_says_once_that_there_is_no_server(way, make_run, caplog) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    make_run.end(1)

    @run_flow(Named, name="calm")
    def calm(call: Named) -> Run:
        if call.run_id == "refused":
            raise InputError("It cannot be used.")
        note_claim()
        return Run.open("run", make_run.store)

    direct.say_so.cache_clear()
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    for refuse in (lambda: calm(run_id="refused"), lambda: tidy_store(keep_last=0)):
        with pytest.raises(InputError):
            refuse()
    assert "running without a Prefect server" not in caplog.text
    for _ in range(2):
        calm()
    assert caplog.text.count("running without a Prefect server") == (way == "direct")


def test_a_direct_call_starts_no_server(call, way, tmp_path) -> None:
    if way == "prefect":
        pytest.skip("a server is there")
    process = psutil.Process()
    seen: set[str] = set()
    ended = threading.Event()

    def listening() -> set[str]:
        found = {
            str(each.laddr) for each in process.net_connections("tcp") if each.status == "LISTEN"
        }
        for child in process.children():
            # One that has ended meanwhile started no server.
            with suppress(psutil.Error):
                found.add(" ".join(child.cmdline()))
        return found

    before = listening()

    def look() -> None:
        while not ended.wait(0.02):
            seen.update(listening())

    thread = threading.Thread(target=look)
    thread.start()
    call(fail_for({1}))
    ended.set()
    thread.join()
    assert seen - before == set()
    assert server.SubprocessASGIServer._instances == {}


def test_a_cluster_is_scaled_without_a_server(dask_client) -> None:
    with (
        temporary_settings(updates={PREFECT_API_URL: None}),
        pytest.raises(InputError, match="name a cluster that runs already"),
    ):
        scale_cluster(2, cluster="")
    assert server.SubprocessASGIServer._instances == {}


def test_a_block_that_a_server_keeps_needs_one() -> None:
    with (
        temporary_settings(updates={PREFECT_API_URL: None}),
        pytest.raises(
            InputError, match=r"'store-block/prod' is kept by a Prefect server.*set PREF"
        ),
    ):
        map_partitions(ROWS, "key", fail_for(set()), store="store-block/prod")


def test_who_asks_for_prefect_by_its_variable_gets_it(prefect_server, monkeypatch) -> None:
    assert not runs_directly()
    monkeypatch.delenv(direct.ALLOW_EPHEMERAL)
    # The second is what the profile that Prefect ships says.
    updates = {PREFECT_API_URL: None, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True}
    with temporary_settings(updates=updates):
        assert runs_directly()
        for name in direct.EPHEMERAL_MODE:
            with monkeypatch.context() as context:
                context.setenv(name, "true")
                assert not runs_directly()


PROFILES = """
{active}
[profiles.asks]
PREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "true"
[profiles.names]
PREFECT_API_URL = "http://127.0.0.1:9/api"
[profiles.loud]
PREFECT_LOGGING_LEVEL = "DEBUG"
[profiles.silent]
"""
SETTINGS = {
    "nothing": ({}, {}, True),
    "asks by a profile": ({"PREFECT_PROFILE": "asks"}, {}, False),
    "names by a profile": ({"PREFECT_PROFILE": "names"}, {}, False),
    "a silent profile": ({"PREFECT_PROFILE": "silent"}, {}, True),
    "names by a profile of Prefect's own": ({"PREFECT_PROFILE": "local"}, {}, False),
    "names by the profile in use": ({}, {"profiles.toml": 'active = "names"'}, False),
    "a silent profile in use": ({}, {"profiles.toml": 'active = "silent"'}, True),
    "one that sets something else": ({}, {"profiles.toml": 'active = "loud"'}, True),
    "a variable": ({"PREFECT_API_URL": "http://127.0.0.1:9/api"}, {}, False),
    "an empty variable": ({"PREFECT_API_URL": ""}, {}, True),
    "a variable that asks": ({"PREFECT_SERVER_EPHEMERAL_ENABLED": "1"}, {}, False),
    "one that asks for none": ({"PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "False"}, {}, True),
    "a level": ({"PREFECT_LOGGING_LEVEL": "DEBUG"}, {}, True),
    ".env": ({}, {".env": "PREFECT_API_URL=http://127.0.0.1:9/api"}, False),
    "prefect.toml": ({}, {"prefect.toml": '[api]\nurl = "http://127.0.0.1:9/api"'}, False),
    "pyproject.toml": ({}, {"pyproject.toml": '[tool.prefect.api]\nurl = "http://h/api"'}, False),
    "another pyproject.toml": ({}, {"pyproject.toml": '[project]\nname = "mine"'}, True),
}


QUICK = {"nothing", "names by a profile", "a silent profile in use", "a variable", "prefect.toml"}
"""The others, each with a Python of its own too, are slow."""


ASKED = """
import json, os, sys
# What Prefect's settings need, so that no case has to import it again.
import anyio, fsspec, httpx, jinja2, orjson, pydantic, pydantic_settings, rich, websockets
from partwise.flows.orchestration.direct import runs_directly
assert "prefect" not in sys.modules
for line in sys.stdin:
    folder, variables = json.loads(line)
    if (child := os.fork()) == 0:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            del os.environ[name]
        os.environ |= variables
        os.chdir(folder)
        first, is_loaded = runs_directly(), "prefect" in sys.modules
        import prefect.settings
        print(json.dumps([first, is_loaded, runs_directly()]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def ask_elsewhere() -> Iterator[Callable[..., list[bool]]]:
    """Ask in a process of each case's own: before and after Prefect is imported.

    They are forked from one that has imported what comes before.
    """
    with subprocess.Popen(
        [sys.executable, "-c", ASKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(folder: Path, variables: dict[str, str]) -> list[bool]:
            print(json.dumps([str(folder), variables]), file=stdin, flush=True)
            answer: list[bool] = json.loads(stdout.readline())
            return answer

        yield ask


@pytest.mark.parametrize("where", quick_and_slow(QUICK, SETTINGS))
def test_a_server_is_found_where_prefect_finds_it(where, ask_elsewhere, tmp_path) -> None:
    variables, files, expected = SETTINGS[where]
    home = tmp_path / "home"
    home.mkdir()
    active = files.get("profiles.toml", "")
    if active or variables.get("PREFECT_PROFILE", "local") != "local":
        (home / "profiles.toml").write_text(PROFILES.format(active=active))
    for name, text in files.items():
        if name != "profiles.toml":
            (tmp_path / name).write_text(text)
    # Prefect is asked where there may be one; the answer is the one that it gives anyhow.
    may_be = not expected or where == "one that sets something else"
    found = ask_elsewhere(tmp_path, variables | {"PREFECT_HOME": str(home)})
    assert found == [expected, may_be, expected]


def test_steps_without_prefect(caplog) -> None:
    @step("divide", "divide {a}")
    def divide(a: float, b: float) -> float:
        return a / b

    assert run_step(divide, 6, 3) == 2
    steps = [begin_step(divide, n, 1) for n in range(100)]
    await_steps(steps)
    assert [each.result() for each in steps] == list(range(100))
    with pytest.raises(ZeroDivisionError):
        begin_step(divide, 1, 0).result()
    caplog.set_level(logging.WARNING, "partwise")
    try_step(divide, 1, 0)
    assert (
        "The step divide failed, and the run is whole without it: ZeroDivisionError" in caplog.text
    )


def test_a_direct_call_does_without_prefect(run_python, tmp_path) -> None:
    script = f"""
import json, os, sys
for name in [name for name in os.environ if name.startswith("PREFECT_")]:
    del os.environ[name]
os.environ["PREFECT_HOME"] = {str(tmp_path)!r}
import pyarrow as pa
import partwise
from partwise import LocalCluster, StoreBlock, map_partitions, tidy_store

for name in partwise.__all__:
    getattr(partwise, name)

def count(data, context):
    return {{"rows": [len(data.to_arrow())]}}

rows = pa.table({{"key": ["a", "b"], "x": [1.0, 2.0]}})
store = StoreBlock(url={str(tmp_path / "store")!r})
run = map_partitions(rows, "key", count, store=store, cluster=LocalCluster(workers=1))
tidy_store(store=store, dry_run=True)
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "prefect")
print(json.dumps([run.predictions().num_rows, loaded]))
"""
    assert run_python(script) == [2, []]
