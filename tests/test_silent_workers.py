"""A worker that is stopped while it is asked something: the call ends with a sentence, in time."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from distributed import Client

from partwise.engine.driver import packages
from partwise.engine.driver.cluster_watch import ClusterWatch
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ClusterError
from partwise.flows.operations import doctor
from partwise.scripts import open_mpi
from tests.own_cluster import OwnCluster, own_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnCluster, str]]:
    """A cluster whose only worker has been stopped, and the address of that."""
    with own_cluster(tmp_path_factory.mktemp("cluster"), workers=1, nanny=False) as cluster:
        with Client(cluster.address) as client:
            client.wait_for_workers(1)
            (address,) = client.scheduler_info(n_workers=-1)["workers"]
        (worker,) = cluster.workers()
        worker.suspend()
        yield cluster, address
        worker.resume()


@pytest.fixture
def client(stopped: tuple[OwnCluster, str]) -> Iterator[Client]:
    with Client(stopped[0].address) as client:
        yield client


def test_open_mpi_is_not_waited_for(
    client: Client, stopped: tuple[OwnCluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_mpi, "VERSION_S", 0.5)
    with pytest.raises(
        ClusterError, match=r"did not say within 0 s which Open MPI it has: it does"
    ):
        open_mpi.check_open_mpi(client, [stopped[1]])


def test_the_doctor_says_so(
    stopped: tuple[OwnCluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ANSWER_S", 0.5)
    (finding,) = doctor._cluster(stopped[0].block, None)
    assert finding.verdict == "bad"
    assert "None of its workers has answered" in finding.text


def test_no_environment_is_waited_for(
    client: Client, stopped: tuple[OwnCluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = stopped
    found = [SimpleNamespace(host="here", address=address)]
    monkeypatch.setattr(packages, "cluster_workers", lambda _: found)
    monkeypatch.setattr(packages, "SILENCE_S", 1.0)
    resolved = ResolvedEnvironment(name="ours", python="3.13", platform="linux")
    with (
        ClusterWatch(client, "run", silence_s=None) as watch,
        pytest.raises(ClusterError, match=rf"ours was not built on the worker {address}: "),
    ):
        packages.build_on_workers(client, resolved, watch)
