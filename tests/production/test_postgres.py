"""PostgreSQL behind the server: twenty flow runs at once, of which none is lost."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from partwise.tasks.partitions import RunStatus
from partwise.tasks.runs import Run
from tests.production.project import Production, Project, free_port, wait_until

FLOW_RUNS = 20
PATIENCE_S = 400.0
TRAINER = {"kind": "lightgbm", "label": "y", "features": ["x"], "rounds": 2, "min_rows": 1}


def binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: apt-get install postgresql")
    return str(found[-1]) if found else name


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server of our own on a loopback port; gives the URL of its database."""
    # Its user has to reach it, which pytest's own folders forbid.
    folder = Path(tempfile.mkdtemp(prefix="partwise-postgres-"))
    port = free_port()
    become: list[str] = []
    if os.geteuid() == 0:
        # PostgreSQL refuses to work for root.
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = str(folder / "data")
    initdb = [binary("initdb"), "-D", data, "-U", "partwise", "--auth=trust", "-E", "UTF8"]
    serve = [binary("postgres"), "-D", data, "-p", str(port), "-k", str(folder)]
    try:
        subprocess.run([*become, *initdb], cwd=folder, check=True, capture_output=True)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                [*become, *serve, "-c", "listen_addresses=127.0.0.1"],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                ready = [binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
                wait_until(lambda: subprocess.run(ready).returncode == 0, "PostgreSQL to start", 60)
                yield f"postgresql+asyncpg://partwise@127.0.0.1:{port}/postgres"
            finally:
                process.send_signal(signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_twenty_flow_runs_at_once_on_postgresql(tmp_path: Path) -> None:
    with postgres() as url:
        project = Project.create(tmp_path / "project", PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
        with Production.of(project) as production:
            assert not (project.folder / ".partwise" / "prefect.db").exists()
            began = time.monotonic()
            names = [f"concurrent-{i:02d}" for i in range(FLOW_RUNS)]
            flow_runs = [
                production.run("train-models/on-demand", production.small(name, trainer=TRAINER))
                for name in names
            ]
            ended = [production.wait(flow_run, PATIENCE_S) for flow_run in flow_runs]
            print(f"{FLOW_RUNS} flow runs took {time.monotonic() - began:.0f} s")
            assert [run.state_name for run in ended] == ["Completed"] * FLOW_RUNS
            assert sorted(run.name for run in ended) == names
            runs = [Run.open(name, production.store) for name in names]
            assert {run.status for run in runs} == {RunStatus.SUCCESS}
            assert [run.counts for run in runs] == [{"DONE": 8}] * FLOW_RUNS
