"""A project folder with the shipped prefect.yaml, and a Prefect server and worker in it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from partwise.flows.operations.services import Services
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0
DEMO_STORES = 6
"""How many stores the table has that the nightly deployments train on."""
COMMAND = [sys.executable, "-m", "partwise.flows.cli.main"]

FUNCTIONS = '''
"""What the flow runs of the tests call."""
import time
from pathlib import Path

HERE = Path(__file__).parent


def first_row(data, context):
    return data.to_arrow().slice(0, 1).select(["y"])


def wait_for_word(data, context):
    """Partition 0 is done at once, the others when a file says so."""
    (HERE / "waiting").mkdir(exist_ok=True)
    (HERE / "waiting" / str(context.key)).touch()
    while context.key and not (HERE / "go").exists():
        time.sleep(0.05)
    return {"rows": [data.num_rows]}


def wait_as_ranks(context):
    """All ranks wait for a file."""
    wait_for_go(f"rank-{context.rank}")
    context.barrier()


def wait_as_trial(data, context):
    """The first trial is done at once, the others when a file says so."""
    from partwise import Result

    wait_for_go(f"trial-{context.key}", context.key == 0)
    return Result(dict(context.params), {"loss": context.params["x"]})


def wait_to_predict(data, model, context):
    """Partition 0 is done at once, the others when a file says so."""
    wait_for_go(f"predict-{context.key}", context.key == 0)
    return model.predict(data.to_pandas()[["x"]])


def wait_for_go(name, is_over=False):
    (HERE / "waiting").mkdir(exist_ok=True)
    (HERE / "waiting" / name).touch()
    while not is_over and not (HERE / "go").exists():
        time.sleep(0.05)
'''


def wait_until(
    true: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S, pause_s: float = 0.1
) -> Any:
    """Wait for something to be true, and return it.

    An answer of the server costs it some 40 ms, which whoever is waited for could have had: looks
    take a tenth of the time at most.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if seen := true():
            return seen
        now = time.monotonic()
        assert now < deadline, f"waited {timeout_s:.0f} s: {what}"
        time.sleep(max(pause_s, min(1.0, 10 * (now - began))))


@dataclass(kw_only=True)
class Project:
    """A project folder, and the environment of somebody who works in it."""

    folder: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_port)

    @classmethod
    def create(cls, folder: Path, **settings: str) -> "Project":
        """A folder with the shipped prefect.yaml, a small table and functions."""
        folder.mkdir(exist_ok=True)
        shutil.copy(ROOT / "prefect.yaml", folder)
        rows = {"k": [i // 30 for i in range(240)], "x": [float(i % 7) for i in range(240)]}
        rows["y"] = [2 * x for x in rows["x"]]
        pq.write_table(pa.table(rows), folder / "rows.parquet")
        (folder / "mine.py").write_text(FUNCTIONS)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        environment = {**kept, "PREFECT_HOME": str(folder / "home"), "COLUMNS": "200", **settings}
        return cls(folder=folder, environment=environment)

    def cli(self, *words: str, code: int = 0, **environment: str) -> str:
        """Run a `partwise` command in the folder, and return all that it printed."""
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stdout
        assert "Traceback" not in done.stdout or code, done.stdout
        return done.stdout

    def up(self, **environment: str) -> str:
        return self.cli("up", "--port", str(self.port), **environment)

    def down(self) -> str:
        return self.cli("down")

    def services(self) -> Services:
        found = Services.read(self.folder)
        assert found is not None
        return found

    @property
    def password(self) -> str:
        return (self.folder / ".partwise" / "password").read_text().strip()

    def log(self, name: str) -> str:
        return (self.folder / ".partwise" / f"{name}.log").read_text()

    def kill_worker(self) -> None:
        os.kill(self.services().pids["worker"], signal.SIGKILL)

    def forget_words(self) -> None:
        """Have the next functions that wait for a word wait for a new one."""
        shutil.rmtree(self.folder / "waiting", ignore_errors=True)
        (self.folder / "go").unlink(missing_ok=True)


@dataclass(kw_only=True)
class Production:
    """A server and a worker at work."""

    project: Project
    client: SyncPrefectClient
    folder: Path
    api_url: str
    ui_url: str

    @classmethod
    @contextmanager
    def of(cls, project: Project) -> Iterator["Production"]:
        """Start it, and end it with the block."""
        api_url = f"http://127.0.0.1:{project.port}/api"
        with ExitStack() as stack:
            stack.callback(project.down)
            project.up()
            with _known(api_url, project.password):
                client = get_client(sync_client=True)
            stack.enter_context(client)
            yield cls(
                project=project,
                client=client,
                folder=project.folder,
                api_url=api_url,
                ui_url=api_url.removesuffix("/api"),
            )

    def known(self) -> AbstractContextManager[Any]:
        """Prefect's settings of this process name this server, and no longer."""
        return _known(self.api_url, self.project.password)

    @property
    def access(self) -> dict[str, str]:
        """What others need to have in their environment."""
        return {
            "PREFECT_API_URL": self.api_url,
            "PREFECT_API_AUTH_STRING": self.project.password,
        }

    @contextmanager
    def browser(self, name: str) -> Iterator[httpx.Client]:
        """A client that asks once, as browsers do, with all that the server wants of them."""
        user, secret = self.project.password.split(":")
        with httpx.Client(base_url=self.api_url, auth=(user, secret), timeout=PATIENCE_S) as client:
            token = client.get("/csrf-token", params={"client": name}).json()["token"]
            client.headers.update({"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": name})
            yield client

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    def post(self, path: str, content: Mapping[str, Any]) -> Any:
        """What the server answers to a question, with everything that it asks of who asks."""
        return self.client._client.post(path, json=content).json()

    def run(
        self, deployment: str, parameters: Mapping[str, Any] | None = None, **options: Any
    ) -> UUID:
        """Ask for a flow run, and return its ID."""
        found = self.client.read_deployment_by_name(deployment)
        run = self.client.create_flow_run_from_deployment(
            found.id, parameters=dict(parameters or {}), **options
        )
        return run.id

    def state(self, flow_run_id: UUID) -> str:
        """The name of a flow run's state."""
        state = self.client.read_flow_run(flow_run_id).state
        return state.name if state is not None else ""

    def cancel(self, flow_run_id: UUID) -> None:
        """Cancel a flow run as the UI does."""
        wanted = State(type=StateType.CANCELLING)
        self.client.set_flow_run_state(flow_run_id, wanted, force=True)

    def wait(
        self, flow_run_id: UUID, timeout_s: float = PATIENCE_S, pause_s: float = 0.5
    ) -> FlowRun:
        """Wait for a flow run's end."""

        def ended() -> FlowRun | None:
            run = self.client.read_flow_run(flow_run_id)
            return run if run.state is not None and run.state.is_final() else None

        return wait_until(ended, f"flow run {flow_run_id} to end", timeout_s, pause_s)

    def lines_of(self, flow_run_id: UUID) -> list[str]:
        """What the UI shows as the log of a flow run."""
        chosen = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id]))
        return [log.message for log in self.client.read_logs(log_filter=chosen)]

    def small(self, run_id: str, **more: Any) -> dict[str, Any]:
        """The parameters of a small run on the folder's table."""
        return {
            "data": "rows.parquet",
            "partition_by": "k",
            "run_id": run_id,
            "store": "store",
            "cluster": {"workers": 1},
            "execution": {"n_shards": 1, "max_retries": 0},
            **more,
        }

    def await_words(self, keys: int) -> None:
        """Wait until partitions of `mine:wait_for_word` are at work."""
        waiting = self.folder / "waiting"
        wait_until(
            lambda: waiting.exists() and len(list(waiting.iterdir())) >= keys,
            f"{keys} partitions to begin",
        )

    def forget_words(self) -> None:
        self.project.forget_words()


def processes_of(flow_run_id: UUID) -> list[psutil.Process]:
    """Whatever was started for a flow run and is still there."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT__FLOW_RUN_ID") == str(flow_run_id):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def _known(api_url: str, password: str) -> Iterator[None]:
    names = {PREFECT_API_URL: api_url, PREFECT_API_AUTH_STRING: password}
    with temporary_settings(updates=names):
        yield
    # It has the settings of its first event, and would send those of later tests here as well. On a
    # thread without a loop (Playwright's runs on this one) it waits until all are sent.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(EventsWorker.drain_all).result(PATIENCE_S)
