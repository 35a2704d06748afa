"""Another number of workers for a cluster that runs already, and nothing left where that fails."""

import shlex
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from distributed import Client
from distributed.deploy.local import LocalCluster as DaskCluster

from partwise.blocks import LocalCluster, RemoteCluster
from partwise.errors import ClusterError, InputError
from partwise.flows import scale_cluster
from partwise.flows.cli.main import main
from partwise.flows.running import cluster_size
from partwise.flows.running.cluster_size import set_cluster_size
from tests.own_cluster import wait_for

START = "import sys; from distributed.cli.dask_scheduler import main; main()"


REFUSED = """
import os, sys
os.environ["PREFECT_API_URL"] = ""
from partwise import LocalCluster, scale_cluster
for cluster in (LocalCluster(), 3, "nowhere"):
    try:
        scale_cluster(2, cluster=cluster)
    except ValueError:
        print(sorted({"dask", "distributed", "prefect"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def scheduler_of_all(tmp_path_factory) -> Iterator[str]:
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    file = tmp_path_factory.mktemp("scheduler") / "scheduler.json"
    with subprocess.Popen(
        [sys.executable, "-c", START, *words, "--scheduler-file", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for(file.exists, "the scheduler does not start", 60)
        with Client(scheduler_file=str(file)) as client:
            address = client.scheduler.address
        yield address
        process.terminate()


@pytest.fixture
def scheduler(scheduler_of_all: str) -> Iterator[str]:
    """The address of a scheduler that somebody else started, without workers.

    All tests have the same one, and those that a test leaves there are ended.
    """
    yield scheduler_of_all
    with Client(scheduler_of_all) as client:
        client.retire_workers(n=len(client.nthreads()))
    wait_for(lambda: not workers_of(scheduler_of_all), "workers go on", 10)


def workers_of(address: str) -> list[psutil.Process]:
    """Return the processes of this machine that were started as workers of a scheduler."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if address in words and "distributed.cli.dask_worker" in words:
            found.append(process)
    return found


def addresses(scheduler: str) -> set[str]:
    with Client(scheduler) as client:
        return set(client.nthreads())


def test_workers_come_and_go_on_this_machine(scheduler):
    block = RemoteCluster(address=scheduler)
    up = set_cluster_size(block, 2, timeout_s=60)
    assert (up.before, up.after) == (0, 2)
    assert len(workers_of(scheduler)) == 2
    with Client(scheduler) as client:
        assert client.submit(sum, [1, 2]).result() == 3

    same = set_cluster_size(block, 2, timeout_s=60)
    assert (same.before, same.after) == (2, 2)

    down = set_cluster_size(block, 1, timeout_s=60)
    assert (down.before, down.after) == (2, 1)


def test_workers_that_do_not_come_in_time_leave_nothing(scheduler):
    block = RemoteCluster(address=scheduler)
    with pytest.raises(ClusterError, match=r"has 0 of 2 workers after 0.2 s\. It was brought back"):
        set_cluster_size(block, 2, timeout_s=0.2)
    assert workers_of(scheduler) == []
    assert addresses(scheduler) == set()


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why_and_the_others_stay(scheduler, monkeypatch, tmp_path):
    block = RemoteCluster(address=scheduler)
    set_cluster_size(block, 1, timeout_s=60)
    before = addresses(scheduler)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(
        ClusterError, match=r"a worker .* ended with 3: no such module\. .* back to 1"
    ):
        set_cluster_size(block, 3, timeout_s=60)
    assert len(workers_of(scheduler)) == 1
    assert addresses(scheduler) == before


def test_a_command_brings_workers_and_is_called_to_bring_them_back(dask_client, tmp_path):
    """The command only writes down what it was asked for: no worker ever comes."""
    log = tmp_path / "asked"
    program = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' ')"
    command = shlex.join([sys.executable, "-c", program, str(log), "replicas={n}"])
    block = RemoteCluster(address=dask_client.scheduler.address)
    with pytest.raises(ClusterError, match=r"2 of 4 workers after 0.1 s. It was brought back to 2"):
        set_cluster_size(block, 4, timeout_s=0.1, command=command)
    assert log.read_text() == "replicas=4 replicas=2 "


def test_a_command_that_fails_is_named_with_what_it_said(dask_client, monkeypatch):
    block = RemoteCluster(address=dask_client.scheduler.address)
    program = "import sys; sys.exit('no such group')"
    command = shlex.join([sys.executable, "-c", program, "{n}"])
    with pytest.raises(ClusterError, match=r"ended with 1: no such group\. It could not"):
        set_cluster_size(block, 4, timeout_s=5, command=command)
    with pytest.raises(ClusterError, match=r"'/no/such/program' cannot be run"):
        set_cluster_size(block, 4, timeout_s=5, command="/no/such/program {n}")
    monkeypatch.setattr(cluster_size, "COMMAND_S", 0.2)
    with pytest.raises(ClusterError, match=r"sleep 60 4' did not end within 0\.2 s\. It could not"):
        set_cluster_size(block, 4, timeout_s=0.1, command="sleep 60 {n}")


def test_a_command_without_the_number_is_refused_before_dask_is_asked(monkeypatch):
    # Its import would be an error.
    monkeypatch.setitem(sys.modules, "partwise.flows.running.cluster_size", None)
    for cluster in ("tcp://127.0.0.1:1", "remote-cluster/none"):
        with pytest.raises(InputError, match=r"does not say how many workers: write \{n\} in"):
            scale_cluster(4, cluster=cluster, command="kubectl scale")
    with pytest.raises(InputError, match="cannot be read: No closing quotation"):
        scale_cluster(4, cluster="tcp://127.0.0.1:1", command="kubectl 'scale {n}")


@pytest.mark.parametrize("command", ["kubectl scale", "kubectl 'scale {n}"])
def test_the_command_line_refuses_such_a_command_too(command, capsys):
    words = ["scale", "4", "--address", "tcp://127.0.0.1:1", "--command", command]
    assert main(words) == 2
    assert f"error: The command {command!r} " in capsys.readouterr().err


def test_a_cluster_object_of_dask_scales_itself(prefect_server):
    with DaskCluster(
        n_workers=1, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0
    ) as cluster:
        assert scale_cluster(2, cluster=cluster) == 2
        assert scale_cluster(1, cluster=cluster) == 1


def test_a_cluster_object_that_is_closed_is_said():
    with DaskCluster(
        n_workers=0, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0
    ) as cluster:
        pass
    with pytest.raises(ClusterError, match=r"The LocalCluster cannot be reached: .*closed"):
        set_cluster_size(cluster, 2, timeout_s=5)


@pytest.mark.slow
def test_the_flow_takes_an_address_and_the_command_line_too(prefect_server, scheduler, capsys):
    assert scale_cluster(1, cluster=scheduler, timeout_s=60) == 1
    assert main(["scale", "0", "--address", scheduler]) == 0
    assert capsys.readouterr().out == f"{scheduler} has 0 workers; it had 1\n"
    assert main(["scale", "1"]) == 2
    assert "Give the scheduler's --address" in capsys.readouterr().err


def test_a_refusal_needs_no_dask() -> None:
    ended = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    assert (ended.stdout.splitlines(), ended.stderr) == (["[]"] * 3, "")


def test_what_cannot_be_scaled_is_said(prefect_server, monkeypatch, dask_client):
    with pytest.raises(InputError, match="A LocalCluster is started for each run"):
        scale_cluster(2, cluster=LocalCluster())
    monkeypatch.setattr("partwise.flows.running.cluster_size._is_here", lambda _: False)
    block = RemoteCluster(address=dask_client.scheduler.address)
    with pytest.raises(InputError, match="runs on another machine, and cannot start workers"):
        set_cluster_size(block, 3, timeout_s=1)


@pytest.mark.slow
def test_an_interrupted_call_brings_the_cluster_back(scheduler, monkeypatch):
    looks: list[int] = []
    real = cluster_size.known_workers

    def interrupted(client):
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt
        return real(client)

    monkeypatch.setattr(cluster_size, "known_workers", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        set_cluster_size(RemoteCluster(address=scheduler), 2, timeout_s=60)
    assert caught.value.__notes__ == ["It was brought back to 0."]
    assert workers_of(scheduler) == []
