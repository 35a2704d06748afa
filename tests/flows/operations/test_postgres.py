"""PostgreSQL behind the server: twenty flow runs at once, of which none is lost."""

import time
from pathlib import Path

import pytest
from distributed import Client

from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.flows.operations.project import Production, Project
from tests.sql_server import postgres

FLOW_RUNS = 20
PATIENCE_S = 400.0
TRAINER = {"kind": "lightgbm", "label": "y", "features": ["x"], "rounds": 2, "min_rows": 1}


@pytest.mark.slow
@pytest.mark.alone
def test_twenty_flow_runs_at_once_on_postgresql(
    initdb: str, tmp_path: Path, dask_client: Client
) -> None:
    # Twenty clusters would take longer to start than all that is seen here.
    cluster = {"address": dask_client.scheduler.address, "shares_filesystem": True}
    common = {"trainer": TRAINER, "cluster": cluster}
    with postgres(initdb, auth="trust") as server:
        url = server.bare_uri.replace("postgresql", "postgresql+asyncpg")
        project = Project.create(tmp_path / "project", PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
        with Production.of(project) as production, production.known():
            assert not (project.folder / ".partwise" / "prefect.db").exists()
            began = time.monotonic()
            names = [f"concurrent-{i:02d}" for i in range(FLOW_RUNS)]
            flow_runs = [
                production.run("train-models/train", production.small(name, **common))
                for name in names
            ]
            ended = [production.wait(flow_run, PATIENCE_S) for flow_run in flow_runs]
            print(f"{FLOW_RUNS} flow runs took {time.monotonic() - began:.0f} s")
            assert [run.state_name for run in ended] == ["Completed"] * FLOW_RUNS
            assert sorted(run.name for run in ended) == names
            runs = [Run.open(name, production.store) for name in names]
            assert {run.status for run in runs} == {RunStatus.SUCCESS}
            assert [run.counts for run in runs] == [{"DONE": 8}] * FLOW_RUNS
