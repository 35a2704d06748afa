"""Runs in a process of their own: what their handle says, and who may end them."""

import asyncio
import contextvars
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pyarrow as pa
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    ColumnError,
    FunctionError,
    InputError,
    PartwiseError,
    RunCancelledError,
    RunFailedError,
)
from partwise.flows import map_partitions, model_pipeline
from partwise.flows.cli.main import main
from partwise.flows.orchestration import ui_cancel
from partwise.flows.orchestration.started_process import LOG, OUTCOME, PARENT, _leave
from partwise.flows.orchestration.started_run import KEPT_S, StartedRun, _remove_old
from partwise.outcomes import RunStatus
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from partwise.trainers import Linear
from tests.flows.start_functions import nap, times
from tests.own_cluster import wait_for
from tests.thoroughness import quick_and_slow

KEYS = 40
ROWS = pa.table({"key": [n // 2 for n in range(2 * KEYS)], "value": [1.0] * (2 * KEYS)})
END_S = 10.0
"""Within so many seconds a run that is cancelled ends; the goal of docs/running.md."""


@pytest.fixture
def given(cluster, tmp_path, monkeypatch) -> dict[str, Any]:
    """What calls have in common: each partition takes a fifth of a second, and is kept soon."""
    # The lines are looked at; those of other tests need not be made.
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "INFO")
    options = ExecutionOptions(n_shards=2, first_segment_s=0.2)
    return {"store": str(tmp_path / "store"), "cluster": cluster, "execution": options}


@pytest.fixture
def started(given) -> Iterator[Callable[..., StartedRun[Any]]]:
    made = []

    def start(function: Any = nap, data: Any = ROWS, **more: Any) -> StartedRun[Any]:
        made.append(map_partitions.start(data, "key", function, **{**given, **more}))
        return made[-1]

    yield start
    for work in made:
        work.cancel()
        work.wait(END_S)


def has_committed(run_id: str, store: str) -> bool:
    with suppress(LookupError):
        return "DONE" in Run.open(run_id, store).counts
    return False


def check_cancelled(run_id: str, store: str) -> None:
    """What is committed is kept, and the rest is to be done."""
    run = Run.open(run_id, store)
    assert run.status is RunStatus.CANCELLED
    assert 0 < run.counts["DONE"] < sum(run.counts.values())


@pytest.mark.slow  # two processes with a cluster each
def test_several_runs_work_at_once_and_come_to_what_calls_come_to(started, given) -> None:
    began = time.monotonic()
    works = [started(times(3.0), run_id="closure"), started(lambda data, context: {"one": [1, 1]})]
    assert time.monotonic() - began < 2.0, "start waits"
    assert works[0].run_id == "closure"
    assert works[1].run_id.startswith("map-")
    assert {work.status for work in works} == {RunStatus.IN_PROGRESS}
    assert works[0].wait(0.01) is RunStatus.IN_PROGRESS
    with pytest.raises(TimeoutError, match="'closure' is still at work"):
        works[0].result(0.01)
    first, second = (work.result() for work in works)
    assert [work.wait() for work in works] == [RunStatus.SUCCESS] * 2
    assert set(first.predictions()["much"].to_pylist()) == {3.0}
    assert second.predictions()["one"].to_pylist() == [1] * 2 * KEYS
    assert "Run closure: " in works[0].logs()
    assert "closure" not in works[1].logs()
    assert not works[0].cancel()
    # The code that was sent has the fingerprint of the code that is here.
    again = map_partitions(
        ROWS, "key", times(3.0), **given, run_id="closure", on_existing_artifacts="resume"
    )
    assert (again.kept, again.executed) == (KEYS, 0)


def test_what_cannot_be_sent_or_is_wrong_is_refused_at_once(started) -> None:
    stream = ROWS.to_reader()
    with pytest.raises(FunctionError, match=r"map_partitions.start: the argument 'data', a Record"):
        started(data=stream)
    lock = threading.Lock()
    with pytest.raises(FunctionError, match="'function', a function, cannot be sent"):
        started(lambda data, context: lock)
    with pytest.raises(InputError, match="on_existing_artifacts 'maybe'"):
        started(on_existing_artifacts="maybe")


def test_what_the_call_raises_comes_from_its_result(started) -> None:
    work = started(data=ROWS.rename_columns(["id", "value"]))
    with pytest.raises(ColumnError, match="'key'"):
        work.result()
    assert work.status is RunStatus.FAILURE

    def fail(data, context):
        raise ValueError("not this one")

    failed = started(fail, run_id="failed")
    with pytest.raises(RunFailedError, match="'failed' ended with FAILURE") as caught:
        failed.result()
    assert caught.value.run.counts == {"FAILED": KEYS}
    assert failed.status is RunStatus.FAILURE


@pytest.mark.parametrize("with_server", quick_and_slow({True}, [False, True]))
def test_a_cancelled_run_keeps_what_it_has(
    with_server, started, given, prefect_server, monkeypatch
) -> None:
    # Its process sees no more than the environment.
    monkeypatch.setenv("PREFECT_API_URL", prefect_server if with_server else "")
    work = started(run_id="r")
    wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
    progress = work.progress()
    assert progress is not None
    assert progress.total == KEYS
    assert sum(progress.counts.values()) == KEYS
    began = time.monotonic()
    assert work.cancel()
    assert work.cancel(), "a second one changes nothing"
    assert work.wait(END_S) is RunStatus.CANCELLED
    assert time.monotonic() - began < END_S
    check_cancelled("r", given["store"])
    with pytest.raises(RunCancelledError) as caught:
        work.result()
    assert caught.value.run.run_id == "r"
    document = caught.value.run.read_generation_document()
    assert (document.flow_run_id is not None) == with_server
    early = started(run_id="early")
    early.cancel()
    assert early.wait(END_S) is RunStatus.CANCELLED
    with pytest.raises(RunCancelledError, match="before anything was begun"):
        early.result()


@pytest.mark.parametrize(
    "where", quick_and_slow({"main thread"}, ["main thread", "thread", "with Prefect"])
)
def test_a_run_is_cancelled_by_its_store(where, given, prefect_server, monkeypatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    url = prefect_server if where == "with Prefect" else None
    errors: list[BaseException] = []
    asked: list[int] = []

    def call() -> None:
        with temporary_settings(updates={PREFECT_API_URL: url}):
            try:
                map_partitions(ROWS, "key", nap, **given, run_id="r")
            except RunCancelledError as error:
                errors.append(error)

    def cancel() -> None:
        wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
        asked.append(main(["runs", "cancel", "r", "--store", given["store"]]))

    other = threading.Thread(target=call if where == "thread" else cancel)
    other.start()
    (cancel if where == "thread" else call)()
    began = time.monotonic()
    other.join(END_S)
    assert not other.is_alive()
    assert time.monotonic() - began < END_S
    assert asked == [0]
    assert [type(error) for error in errors] == [RunCancelledError]
    check_cancelled("r", given["store"])
    # Nobody works on it any more.
    assert main(["runs", "cancel", "r", "--store", given["store"]]) == 1
    run = Run.open("r", given["store"])
    assert not run.cancel()
    assert run.wait() is RunStatus.CANCELLED


def test_a_called_flow_run_is_cancelled_in_the_ui(given, prefect_server) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Cancelling

    def at_server() -> Any:
        return temporary_settings(updates={PREFECT_API_URL: prefect_server})

    seen: list[Any] = []
    many = pa.table({"key": range(20 * KEYS), "value": [1.0] * (20 * KEYS)})

    def cancel() -> None:
        wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
        flow_run_id = Run.open("r", given["store"]).read_generation_document().flow_run_id
        with at_server(), get_client(sync_client=True) as client:
            # What its button does.
            client.set_flow_run_state(UUID(str(flow_run_id)), Cancelling())
            seen.append(time.monotonic())
            presser_ended.wait(60)
            seen.append(client.read_flow_run(UUID(str(flow_run_id))).state)

    presser_ended = threading.Event()
    presser = threading.Thread(target=cancel)
    presser.start()
    try:
        with at_server(), pytest.raises(RunCancelledError):
            # So many that a busy machine is not done with them before it has looked.
            map_partitions(many, "key", nap, **given, run_id="r")
        assert time.monotonic() - seen[0] < END_S
    finally:
        presser_ended.set()
        presser.join()
    check_cancelled("r", given["store"])
    assert seen[1].is_cancelled()


def test_a_flow_run_that_is_cancelled_in_the_ui_when_all_is_done_keeps_what_it_did(
    given, prefect_server, tmp_path, monkeypatch
) -> None:
    """Prefect takes no other end of it than this one: it stayed Cancelling, and the call raised."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    monkeypatch.setattr(ui_cancel, "LOOK_S", 1000.0)
    pressed = str(tmp_path / "pressed")

    def until_pressed(data, context):
        while not os.path.exists(pressed):
            time.sleep(0.02)

    def fail(data, context):
        until_pressed(data, context)
        raise ValueError("not today")

    def flow_run_id(run_id: str) -> UUID:
        return UUID(str(Run.open(run_id, given["store"]).read_generation_document().flow_run_id))

    def cancel(run_id: str) -> None:
        try:
            wait_for(lambda: has_begun(run_id), "it has not begun")
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(flow_run_id(run_id), Cancelling())
        finally:
            Path(pressed).touch()

    def has_begun(run_id: str) -> bool:
        with suppress(LookupError):
            return Run.open(run_id, given["store"]).generation > 0
        return False

    data, ends = ROWS.slice(0, 4), {}
    for run_id, function in {"done": until_pressed, "failed": fail}.items():
        Path(pressed).unlink(missing_ok=True)
        with ThreadPoolExecutor(1) as executor:
            pressing = executor.submit(contextvars.copy_context().run, cancel, run_id)
            try:
                ends[run_id] = map_partitions(data, "key", function, **given, run_id=run_id).status
            except RunFailedError as error:
                ends[run_id] = error.run.status
            pressing.result()
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id(run_id)).state
        assert state.is_cancelled()
        assert state.message.startswith("It had ended when it was cancelled.")
    assert ends == {"done": RunStatus.SUCCESS, "failed": RunStatus.FAILURE}


class OnlyHere(Exception):
    """It can be written and not read, as many of libraries: by Dask's help some of these can."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("odd error",)


@pytest.mark.parametrize(
    ("returned", "raised", "words"),
    [
        (threading.Lock(), None, "returned a lock, which cannot be sent"),
        (None, OnlyHere("odd error"), "OnlyHere: odd error"),
    ],
)
def test_no_outcome_is_lost_that_cannot_be_sent(returned, raised, words, tmp_path) -> None:
    _leave(tmp_path, returned, raised)
    _, error, _ = pickle.loads((tmp_path / OUTCOME).read_bytes())
    with pytest.raises(PartwiseError, match=words):
        raise pickle.loads(error)


def test_folders_that_were_left_go_after_a_week(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = {"of a caller that lives", "new", "of nobody", "of others", "empty"}
    for name in ("left", *kept):
        folder = tmp_path / f"partwise-started-{name}"
        folder.mkdir()
        if name == "empty":
            continue
        (folder / LOG).touch()
        if name != "of nobody":
            of_living = name == "of a caller that lives"
            (folder / PARENT).write_text(str(os.getpid() if of_living else ended.pid))
        old = time.time() - KEPT_S - (60 if name != "new" else -60)
        for path in folder.iterdir():
            os.utime(path, (old, old))
    (tmp_path / "partwise-started-of others").rename(tmp_path / "others-started-of others")
    _remove_old()
    assert {path.name.partition("started-")[2] for path in tmp_path.iterdir()} == kept


def test_a_run_that_has_ended_is_returned_when_its_report_is_interrupted(
    given, monkeypatch
) -> None:
    def interrupt(run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("partwise.tasks.publish_report.write_report", interrupt)
    params = {key: {"nap_s": 0.0} for key in range(KEYS)}
    run = map_partitions(ROWS, "key", nap, **given, run_id="r", params=params)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": KEYS})

    def fail(data, context):
        raise ValueError("not this one")

    with pytest.raises(RunFailedError, match="ended with FAILURE"):
        map_partitions(ROWS, "key", fail, **given, run_id="failed")


@pytest.mark.slow
def test_a_pipeline_ends_whose_stage_is_interrupted_at_its_end(given, monkeypatch) -> None:
    def interrupt(run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("partwise.tasks.publish_report.write_report", interrupt)
    x = [n / 40 for n in range(40)]
    rows = pa.table({"key": [n % 2 for n in range(40)], "x": x, "y": x})
    with pytest.raises(RunCancelledError):
        model_pipeline(rows, "key", Linear(label="y", features=["x"]), run_id="p", **given)
    assert Run.open("p-train", given["store"]).status is RunStatus.SUCCESS
    assert list_runs(given["store"]) == ["p-train"]


def test_a_run_is_waited_for_from_elsewhere(started, given, capfd) -> None:
    started(run_id="r", params={key: {"nap_s": 0.05} for key in range(KEYS)})
    wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
    run = Run.open("r", given["store"])
    assert run.wait(timeout_s=0.05) is RunStatus.IN_PROGRESS
    assert main(["runs", "wait", "r", "--store", given["store"]]) == 0
    assert f"{KEYS} DONE" in capfd.readouterr().out
    assert run.wait() is RunStatus.SUCCESS


def test_its_store_is_that_of_the_folder_it_was_started_in(started, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    work = started(lambda data, context: None, store="mine", run_id="moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert work.wait(60) is RunStatus.SUCCESS
    assert work.progress() is not None


def test_a_killed_process_is_said_to_be(started, given) -> None:
    work = started(run_id="r")
    wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
    os.kill(work._process.pid, signal.SIGKILL)
    assert work.wait(END_S) is RunStatus.FAILURE
    with pytest.raises(RunFailedError, match=r"ended by SIGKILL.*a resume goes on") as caught:
        work.result()
    assert caught.value.run.counts["DONE"] > 0
    # Nobody works on it, so nobody waits for ever.
    assert Run.open("r", given["store"]).wait() is RunStatus.IN_PROGRESS


@pytest.mark.slow
def test_a_coroutine_waits_and_ends_the_work_where_it_is_cancelled(started, given) -> None:
    async def both() -> None:
        quick = started(run_id="quick", params={key: {"nap_s": 0.0} for key in range(KEYS)})
        assert (await quick).status is RunStatus.SUCCESS
        slow = started(run_id="slow")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow, 0.1)
        assert slow.wait(END_S) is RunStatus.CANCELLED

    asyncio.run(both())


CALLER = """
import sys, time
import pyarrow as pa
from partwise.blocks import RemoteCluster
from partwise.flows import map_partitions

class OfMain:
    nap_s = 0.1

def nap(data, context):
    time.sleep(OfMain.nap_s)
    return {"twice": [2.0, 2.0]}

if __name__ == "__main__":
    rows = pa.table({"key": [n // 2 for n in range(80)], "value": [1.0] * 80})
    cluster = RemoteCluster(address=sys.argv[1], shares_filesystem=True)
    work = map_partitions.start(rows, "key", nap, run_id="r", store=sys.argv[2], cluster=cluster)
    if sys.argv[3] == "detach":
        print(work.detach(), flush=True)
    print(work._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow  # a Python that is killed
@pytest.mark.parametrize("how", ["ends", "detach"])
def test_the_work_of_a_killed_caller(how, given, tmp_path) -> None:
    script = tmp_path / "caller.py"
    script.write_text(textwrap.dedent(CALLER))
    words = [sys.executable, str(script), given["cluster"].address, given["store"], how]
    # The file of its lines stays, in the folder for temporary files.
    place = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=place) as caller:
        assert caller.stdout is not None
        log = Path(caller.stdout.readline().strip()) if how == "detach" else None
        work = psutil.Process(int(caller.stdout.readline()))
        wait_for(lambda: has_committed("r", given["store"]), "nothing is committed")
        caller.kill()
    work.wait(60 if log else END_S)
    run = Run.open("r", given["store"])
    if log is None:
        check_cancelled("r", given["store"])
    else:
        assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": KEYS})
        assert "How it ended" in log.read_text()
