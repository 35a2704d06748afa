"""Thirty nights by the schedule of a real server: what becomes of each, who is told, what grows.

    python -m benchmarks.nights [--nights 30] [--seconds 20]

`partwise init` makes a project, `partwise up` starts its server and worker, and a schedule of so
many seconds trains and infers night by night, while the table gets a day more each time: where
nights are too short for the machine, some find it changing. Some nights are bad, as `TROUBLE`
says. Printed are a line for each night and for each message that the webhook of the notification
got, and at the end what grew. A night's predictions are of the models of that night, or of an
earlier one for stores whose training failed.

The artifact store is on a disk of its own, of 64 MB, where one may be mounted: as root.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from benchmarks.frame.processes import bytes_below, figures

FIRST_DAY = date(2025, 11, 1)
"""Of which the first night has no sales any more."""
BROKEN = ("store-003", "store-007", "store-011")
DISK = 64_000_000
PATIENCE_S = 300.0
"""What has no end by then is left as it is."""
RUN_ID = "nightly-{scheduled:%Y%m%dT%H%M%S}"
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
TROUBLE = {
    5: "three stores have sales below 0, which their objective refuses",
    6: "they still have",
    8: "the function is mended: it takes them for 0",
    11: "the table is not there yet",
    14: "the disk of the store is full",
    17: "an upgrade in the middle of the night: down and up",
    20: "worker and flow run are killed in the middle, and `up` is called in the morning",
    23: "the server is killed as well: up again",
}


@dataclass
class Inbox:
    """Whom the notification tells: a server on loopback that keeps the subjects."""

    subjects: list[str] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Give the URL that messages go to."""
        subjects = self.subjects

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subjects.append(str(said["subject"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()


@dataclass(frozen=True, kw_only=True)
class Project:
    """What `partwise init` made, with a server of its own.

    Args:
        folder: Of the project.
        rows: The table of all days.
        seconds: From night to night.
    """

    folder: Path
    rows: pa.Table
    seconds: float

    @property
    def store(self) -> Path:
        """Its artifact store."""
        return self.folder / "artifacts"

    def command(self, *words: str) -> str:
        """Call `partwise`, and return what it printed."""
        called = [sys.executable, "-m", "partwise.flows.cli.main", *words]
        done = subprocess.run(called, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"partwise {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def up(self) -> None:
        """Start what is not running, and say how to reach it."""
        self.command("up", "--port", "4310")
        secret = (self.folder / ".partwise" / "password").read_text().strip()
        os.environ |= {"PREFECT_API_URL": "http://127.0.0.1:4310/api"}
        os.environ |= {"PREFECT_API_AUTH_STRING": secret}

    def write_tables(self, night: int) -> None:
        """Write what is known before a night, and the week after it."""
        tonight = FIRST_DAY + timedelta(night)
        week = pa.scalar(tonight + timedelta(7))
        known = self.rows.filter(pc.less(self.rows["date"], pa.scalar(tonight)))
        if night in (5, 6):
            # Of a day that is trained on: the last four weeks are held out.
            is_bad = pc.equal(known["date"], pa.scalar(tonight - timedelta(60)))
            is_broken = pc.is_in(known["store"], pa.array(BROKEN))
            sales = pc.if_else(pc.and_(is_bad, is_broken), -1, known["sales"])
            place = known.schema.get_field_index("sales")
            known = known.set_column(place, "sales", sales.cast(known.schema.field(place).type))
        is_next = pc.and_(
            pc.greater_equal(self.rows["date"], pa.scalar(tonight)),
            pc.less(self.rows["date"], week),
        )
        for name, table in (("sales", known), ("days", self.rows.filter(is_next))):
            path = self.folder / "data" / f"{name}.parquet"
            pq.write_table(table, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)

    def schedule(self) -> None:
        """Have the schedules come every so many seconds, and the notification be on."""
        path = self.folder / "prefect.yaml"
        document = yaml.safe_load(path.read_text())
        document["notifications"][0] |= {"block": "custom-webhook/ops", "enabled": True}
        for each in document["deployments"]:
            name, parameters = each["name"].removeprefix("shop-"), each["parameters"]
            if name == "nightly":
                parameters["run_id"] = RUN_ID
            if name == "tidy":
                parameters |= {"keep_last": 3, "older_than_days": 0}
            if name == "after-training":
                parameters["data"] = "data/days.parquet"
            if name in ("nightly", "tidy"):
                interval = self.seconds * (4 if name == "tidy" else 1)
                each["schedules"] = [{"slug": name, "interval": interval, "active": True}]
        path.write_text(yaml.safe_dump(document))


def save_webhook(url: str) -> None:
    """Save the block that notifications are sent by."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    said = {"subject": "{{subject}}", "text": "{{body}}"}
    block = CustomWebhookNotificationBlock(name="ops", url=url, json_data=said)
    block.save("ops", overwrite=True)


def flow_runs() -> list[Any]:
    """Return the flow runs of the nightly training that are due, the oldest first."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["shop-nightly"])),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        )
    return [each for each in found if each.state_type.value != "SCHEDULED"]


def wait_for(found: Callable[[], Any], limit_s: float) -> Any:
    """Return what is found, as soon as it is; nothing after so many seconds."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(0.2)
    return None


def next_night(seen: set[Any], limit_s: float, *states: str) -> Any:
    """Return the first night that was not seen yet, once it is in one of these states."""

    def found() -> Any:
        new = [each for each in flow_runs() if each.id not in seen]
        return new[0] if new and new[0].state_type.value in states else None

    return wait_for(found, limit_s)


def middle_of(project: Project, seen: set[Any]) -> None:
    """Wait until a night has committed something."""
    assert next_night(seen, 120, "RUNNING", *ENDED) is not None
    known = set(project.store.glob("runs/nightly-*/ledger/*"))
    wait_for(lambda: set(project.store.glob("runs/nightly-*/ledger/*")) - known, 30)


def begin(project: Project, night: int, seen: set[Any]) -> None:
    """Do what comes before a night or happens in it."""
    from partwise.flows.operations.services import Services

    table = project.folder / "data" / "sales.parquet"
    project.write_tables(night)
    if night == 8:
        script = project.folder / "forecast.py"
        before = "data.to_numpy(LABEL)"
        text = script.read_text()
        assert before in text
        script.write_text(text.replace(before, f"np.maximum({before}, 0)"))
    if night == 11:
        table.rename(table.with_suffix(".late"))
    if night == 14:
        free = os.statvfs(project.store)
        left = free.f_bavail * free.f_frsize
        (project.store.parent / "artifacts" / "ballast").write_bytes(bytes(max(left - 100_000, 0)))
    if night == 15:
        (project.store / "ballast").unlink()
    if night == 17:
        middle_of(project, seen)
        project.command("down")
        project.up()
    if night in (20, 23):
        middle_of(project, seen)
        services = Services.read(project.folder)
        assert services is not None
        for role in ("worker", "reports", "server") if night == 23 else ("worker",):
            for process in services.processes(role):  # type: ignore[arg-type]
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        project.up()


def outcome_of(project: Project, night: Any) -> tuple[str, str]:
    """Return what became of a night's training, and of the inference that follows it."""
    from partwise.errors import PartwiseError
    from partwise.flows.orchestration.run_ids import fill_in
    from partwise.runs.run import Run

    run_id = fill_in(RUN_ID, night.expected_start_time)

    def look(name: str) -> Any:
        with suppress(PartwiseError):
            run = Run.open(name, project.store)
            return run if run.status.value != "IN_PROGRESS" else None

    trained = look(run_id)
    if trained is None:
        return "no run", ""
    said = f"{trained.status.value} {dict(trained.counts)}"
    if trained.status.value not in ("SUCCESS", "PARTIAL_FAILURE"):
        return said, ""
    used = wait_for(lambda: look(f"{run_id}-used"), 90)
    if used is None:
        return said, "NOT INFERRED"
    models = Counter(used.predictions(["model_run"])["model_run"].to_pylist())
    own = models.pop(run_id, 0)
    return said, f"{own} rows by its models, " + str(
        {name.removeprefix("nightly-"): count for name, count in models.items()} or "none by others"
    )


def measure(project: Project) -> Mapping[str, float]:
    """Measure what may grow from night to night."""
    from partwise.flows.operations.services import Services

    services = Services.read(project.folder)
    found: dict[str, float] = {}
    for role, pid in (services.pids if services else {}).items():
        with suppress(psutil.NoSuchProcess):
            one = figures([psutil.Process(pid)])
            found |= {f"{role} MB": one.memory_mb, f"{role} files": one.files}
    kept = project.folder / ".partwise"
    logs = sum(path.stat().st_size for path in kept.glob("*.log*")) / 1e6
    return found | {
        "store MB": bytes_below(project.store),
        "runs": float(len(list(project.store.glob("runs/*/run.json")))),
        "database MB": (kept / "prefect.db").stat().st_size / 1e6,
        "logs MB": logs,
    }


@contextmanager
def project_for(folder: Path, seconds: float) -> Iterator[Project]:
    """Make a project whose store is a disk of its own, and end all of it."""
    called = [sys.executable, "-m", "partwise.flows.cli.main", "init", "shop"]
    subprocess.run(called, cwd=folder, check=True, capture_output=True)
    shop = folder / "shop"
    rows = pq.read_table(shop / "data" / "sales.parquet")
    project = Project(folder=shop, rows=rows, seconds=seconds)
    project.store.mkdir()
    size = f"size={DISK}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "store", str(project.store)]
    is_disk = not subprocess.run(mount, check=False, capture_output=True).returncode
    if not is_disk:
        print("No disk can be mounted: the one of the store is never full.")
        del TROUBLE[14]
    try:
        yield project
    finally:
        with suppress(SystemExit):
            project.command("down")
        if is_disk:
            subprocess.run(["umount", "-l", str(project.store)], check=False)


def main() -> None:
    """Parse the command line, and let the nights come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    inbox, heard = Inbox(), 0
    with (
        tempfile.TemporaryDirectory(prefix="partwise-nights-") as made,
        project_for(Path(made), arguments.seconds) as project,
        inbox.listening() as url,
    ):
        project.write_tables(1)
        project.up()
        save_webhook(url)
        project.schedule()
        project.command("deploy")
        seen: set[Any] = set()
        first: Mapping[str, float] = {}
        for number in range(1, arguments.nights + 1):
            begin(project, number, seen)
            night = next_night(seen, PATIENCE_S, *ENDED)
            if night is None:
                # Told as it is: the next one may do well.
                [night, *_] = [each for each in flow_runs() if each.id not in seen]
                print(f"          no end after {PATIENCE_S:.0f} s:")
            seen.add(night.id)
            trained, inferred = outcome_of(project, night)
            now = measure(project)
            if number in TROUBLE:
                print(f"          {TROUBLE[number]}")
            print(f"night {number:3}  {night.state_name}: {trained}; {inferred}", flush=True)
            for subject in inbox.subjects[heard:]:
                print(f"          told: {subject}", flush=True)
            heard = len(inbox.subjects)
            if number == arguments.nights // 3:
                first = now
        time.sleep(5)
        for subject in inbox.subjects[heard:]:
            print(f"          told: {subject}")
        for name, value in measure(project).items():
            print(f"{name:14} {first.get(name, 0):8.1f} after a third, {value:8.1f} at the end")


if __name__ == "__main__":
    main()
