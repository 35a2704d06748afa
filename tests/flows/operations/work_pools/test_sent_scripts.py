"""Scripts that a real worker of a work pool runs, with files that only the caller has."""

import contextvars
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

from partwise.environments.environment import Environment
from partwise.errors import InputError, RunFailedError, StoreError
from partwise.flows import run_script
from partwise.outcomes import RunStatus
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.scripts.infrastructure import Infrastructure
from partwise.store.store import Store
from tests.environments.wheels import make_wheel
from tests.flows.operations.project import Production, Project, wait_until

pytestmark = pytest.mark.slow  # a Prefect server and a worker

SCRIPT = """
import argparse, json, os, pathlib
import helper
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--rows")
args = parser.parse_args()
folder = pathlib.Path(os.environ["PARTWISE_INPUT_FOLDER"])
try:
    import tiny_one
    value = tiny_one.VALUE
except ImportError:
    value = None
seen = {
    "epochs": args.epochs,
    "rows": pathlib.Path(args.rows).read_text(),
    "folder": {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")},
    "helper": helper.NAME,
    "value": value,
    "level": os.environ["LEVEL"],
}
pathlib.Path("outputs", "seen.json").write_text(json.dumps(seen))
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the caller, in which he works."""
    folder = tmp_path / "mine"
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "train.py").write_text(SCRIPT)
    (folder / "project" / "helper.py").write_text("NAME = 'of the caller'\n")
    (folder / "rows.csv").write_text("a,b\n1,2\n")
    (folder / "more" / "below").mkdir(parents=True)
    (folder / "more" / "one.txt").write_text("one")
    (folder / "more" / "below" / "two.txt").write_text("two")
    make_wheel(tmp_path / "wheels", "tiny-one", "1.5", "VALUE = 9\n")
    make_wheel(tmp_path / "wheels", "tiny-one", "1.7", "VALUE = 11\n")
    (folder / "requirements.txt").write_text("-r base.txt\n-c limits.txt\n--only-binary tiny-one\n")
    (folder / "base.txt").write_text(f"--no-index\n--find-links {tmp_path}/wheels\ntiny-one\n")
    (folder / "limits.txt").write_text("tiny-one<1.6\n")
    monkeypatch.chdir(folder)
    return folder


def send(production: Production, run_id: str, pool: str = "partwise", **more: Any) -> Run:
    arguments: dict[str, Any] = {
        "source_directory": "project",
        "arguments": {"epochs": 3, "rows": "{inputs.rows}"},
        "inputs": {"rows": "rows.csv", "folder": Path("more")},
        "store": production.store,
        "infrastructure": Infrastructure(environment_variables={"LEVEL": "7"}),
    }
    arguments |= more
    return run_script("train.py", run_id=run_id, cluster=f"work-pool/{pool}", **arguments)


def test_a_call_waits_for_a_worker_which_gets_files_that_only_the_caller_has(
    production: Production, second: Project, mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "prefect.flow_runs")
    (second.folder / "prefect.yaml").write_text(
        "deployments:\n"
        "  - {name: second, entrypoint: partwise.flows.run_script.run_script, "
        "tags: [partwise], work_pool: {name: second}}\n"
    )
    second.cli("deploy")
    ended: list[Run] = []

    def call() -> None:
        environment = Environment(requirements_file="requirements.txt")
        ended.append(send(production, "sent-script", "second", environment=environment))

    # Prefect's settings are those of the context.
    caller = threading.Thread(target=contextvars.copy_context().run, args=(call,))
    caller.start()
    store = Store.parse(production.store)
    wait_until(lambda: store.list("runs/sent-script/snapshots/"), "the source directory")
    named = FlowRunFilter(name=FlowRunFilterName(any_=["sent-script"]))
    # The caller's own, and the one that waits for a worker.
    wait_until(lambda: len(production.client.read_flow_runs(flow_run_filter=named)) == 2, "a call")
    wait_until(lambda: "no worker polls the work pool second" in caplog.text, "a line")
    shutil.rmtree(mine)
    second.cli("up")
    caller.join(180)
    (run,) = ended
    assert run.status is RunStatus.SUCCESS
    assert run.artifact(0, "outputs/seen.json") == {
        "epochs": 3,
        "rows": "a,b\n1,2\n",
        "folder": {"one.txt": "one", "below/two.txt": "two"},
        "helper": "of the caller",
        "value": 9,
        "level": "7",
    }
    assert run.counts == {"DONE": 1}
    assert collect_garbage(store, "sent-script", dry_run=True, grace_hours=0).files == []


def test_a_script_that_fails_there_fails_here_with_its_run(
    production: Production, mine: Path
) -> None:
    (mine / "project" / "train.py").write_text("print('so far'); raise SystemExit(3)")
    with pytest.raises(RunFailedError, match="exit status 3") as caught:
        send(production, "sent-fails")
    assert "so far" in caught.value.run.logs(0)
    assert caught.value.run.partitions["exit_code"].to_pylist() == [3]


REFUSED = [
    ({"pool": "nowhere"}, "no work pool 'nowhere'"),
    ({"inputs": {"rows": "gone.csv"}}, "'rows', gone.csv, is not on this machine.*file://gone.csv"),
    ({"inputs": {"rows": pa.table({"x": [1]})}}, "in the memory of this process"),
    ({"source_directory": "nowhere"}, "there is no such folder"),
    ({"command": "true"}, "give one of them; both are given"),
    ({"outputs": ["../x"]}, "give globs relative to the script's working folder"),
    (
        {"environment": Environment(requirements_file="with_password.txt")},
        "environment= holds a password",
    ),
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_cannot_be_sent_is_refused_before_anything_is_written(
    production: Production, mine: Path, place: int
) -> None:
    arguments, message = REFUSED[place]
    (mine / "with_password.txt").write_text("-i https://me:hunter2@example.com/\nx\n")
    with pytest.raises(InputError, match=message) as caught:
        send(production, "sent-refused", **arguments)
    assert "hunter2" not in str(caught.value)
    assert Store.parse(production.store).list("runs/sent-refused/") == []


def test_a_store_that_the_worker_cannot_reach_is_told_as_such(
    production: Production, mine: Path, s3_store_url: str
) -> None:
    elsewhere = Infrastructure(environment_variables={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    store = f"{s3_store_url}/runs"
    with pytest.raises(StoreError, match=r"Cannot .* s3://.*127\.0\.0\.1:9"):
        send(production, "sent-to-nowhere", store=store, infrastructure=elsewhere)
    # What was sent stays for a day, as a worker might have taken it late.
    opened = Store.parse(store)
    assert collect_garbage(opened, "sent-to-nowhere", dry_run=False).files == []
    sent = [path for path in opened.list("runs/sent-to-nowhere/") if "/lease/" not in path]
    assert sent
    found = collect_garbage(opened, "sent-to-nowhere", dry_run=False, grace_hours=0).files
    assert {path for path, _ in found} == set(sent)
    # What is announced to be deleted stays, so that no late collection deletes anything else.
    left = opened.list("runs/sent-to-nowhere/")
    assert left
    assert all("/lease/" in path for path in left)
