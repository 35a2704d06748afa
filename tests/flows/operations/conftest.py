"""A Prefect server and a worker as people have them: started by `partwise up`, all deployed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from partwise.flows.demo.table import write_demo_table
from tests import prefect_database
from tests.flows.operations.project import DEMO_STORES, Production, Project
from tests.plain_cluster import plain_cluster


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project folder in which nothing was started yet."""
    made = Project.create(tmp_path / "project")
    yield made
    made.down()


_STARTED = ExitStack()
_AT_WORK: list[Production] = []


def _end() -> None:
    _AT_WORK.clear()
    _CLUSTERS.clear()
    _STARTED.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End the server after the last test here: it takes 3 % of a core without any work."""
    yield
    if nextitem is not None and not nextitem.path.is_relative_to(Path(__file__).parent):
        _end()


@pytest.fixture(scope="session")
def ended_at_last() -> Iterator[None]:
    """End the server with the session, where no other test comes after those here."""
    yield
    _end()


@pytest.fixture(scope="module")
def started_production(ended_at_last: None, tmp_path_factory: pytest.TempPathFactory) -> Production:
    """A server and a worker of a project folder, with all of prefect.yaml deployed."""
    if _AT_WORK:
        return _AT_WORK[0]
    folder = tmp_path_factory.mktemp("production")
    # The scheduler looks once a minute otherwise.
    made = Project.create(folder, PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2")
    (folder / "demo").mkdir()
    write_demo_table(folder / "demo" / "sales.parquet", stores=DEMO_STORES)
    # The migrations of a first start are half of its work; the pages of docs make them.
    prefect_database.copy_to(folder / ".partwise")
    _AT_WORK.append(_STARTED.enter_context(Production.of(made)))
    return _AT_WORK[0]


@pytest.fixture(scope="module")
def production(started_production: Production) -> Iterator[Production]:
    """The same server and worker, which Prefect's settings name until the module's last test."""
    with started_production.known():
        yield started_production


_CLUSTERS: list[dict[str, Any]] = []


@pytest.fixture
def shared_cluster(production: Production) -> dict[str, Any]:
    """A cluster of one worker that has the folder's functions, for flow runs at the same server.

    It is for those of which it does not matter where they work: to start one of their own, and the
    processes for its children, takes a third of a small run.
    """
    if not _CLUSTERS:
        first = f"import sys; sys.path.insert(0, {str(production.folder)!r})"
        client = _STARTED.enter_context(plain_cluster(1, first))
        address = client.scheduler.address  # type: ignore[union-attr]
        _CLUSTERS.append({"address": address, "shares_filesystem": True})
    return _CLUSTERS[0]


@pytest.fixture
def second(production: Production, tmp_path: Path) -> Iterator[Project]:
    """Another folder, with a deployment and a work pool of its own on the same server."""
    made = Project.create(tmp_path / "second", **production.access)
    (made.folder / "prefect.yaml").write_text(
        "deployments:\n"
        "  - {name: second, entrypoint: partwise.flows.map_partitions.map_partitions, "
        "tags: [partwise], work_pool: {name: second},\n"
        "     triggers: [{expect: [partwise.run.completed], match: {partwise.deployment: "
        "[map-partitions/map, map-partitions/secnd, 'train-models/*']}}]}\n"
    )
    yield made
    made.down()
