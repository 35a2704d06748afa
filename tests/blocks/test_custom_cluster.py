"""Clusters of a class that the caller names: what is called, when it is closed, what is refused."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import dask
import psutil
import pyarrow as pa
import pytest

from partwise.blocks import CustomCluster, custom_cluster
from partwise.errors import ClusterError, InputError
from partwise.flows import map_partitions
from partwise.flows.running.connections import connect
from tests.blocks.other_clusters import HangsAtItsEnd, Late, Small

OTHERS = "tests.blocks.other_clusters"


@pytest.fixture(autouse=True)
def closed(monkeypatch) -> Iterator[list[str]]:
    monkeypatch.setattr(Small, "closed", [])
    yield Small.closed
    # Dask sets the levels of its loggers back as a cluster ends, in whatever test that is.
    for thread in threading.enumerate():
        if thread.name == "custom cluster":
            thread.join(30)


def of(name: str, **options) -> CustomCluster:
    return CustomCluster(cluster_class=f"{OTHERS}.{name}", **options)


def connecting(block: CustomCluster):
    """The error of a call that cannot connect, in whose body nothing is done."""
    with pytest.raises(ClusterError) as error, connect(block):
        raise AssertionError("it is connected")
    return str(error.value)


@pytest.mark.parametrize("name", ["distributed:LocalCluster", " distributed.LocalCluster "])
def test_a_class_is_called_with_its_arguments_and_closed(name):
    arguments = {"n_workers": 1, "threads_per_worker": 3, "processes": False}
    block = CustomCluster(
        cluster_class=name, arguments=arguments | {"dashboard_address": "127.0.0.1:0"}
    )
    with block.client() as client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert list(client.nthreads().values()) == [3]
        allowed = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)
        cluster = client.cluster
    assert allowed == 10
    assert dask.config.get("distributed.scheduler.allowed-failures") == 3
    assert client.status == "closed"
    assert cluster.status.name == "closed"


def test_it_is_scaled_to_its_workers_and_closed_when_the_body_raises(closed):
    workers = []

    def body():
        with of("Small", workers=3).client() as client:
            workers.extend(client.scheduler_info(n_workers=-1)["workers"])
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()
    assert len(workers) == 3
    assert len(closed) == 1


def test_it_grows_between_its_numbers():
    with of("Small", arguments={"n_workers": 0}, workers=2, max_workers=4).client() as client:
        adaptive = client.cluster._adaptive
        assert (adaptive.minimum, adaptive.maximum) == (2, 4)
        assert len(client.scheduler_info(n_workers=-1)["workers"]) >= 2


def test_a_class_that_is_not_there_is_named():
    missing = CustomCluster(cluster_class="dask_nowhere.SlowCluster")
    assert "dask_nowhere.SlowCluster cannot be imported (No module" in connecting(missing)
    assert f"{OTHERS}.Smal is not there: give one" in connecting(of("Smal"))


@pytest.mark.parametrize("name", ["NoCluster", "NOT_A_CLASS", "threading"])
def test_what_is_no_cluster_is_not_called(name):
    assert f"{OTHERS}.{name} is not a class of Dask clusters: give one" in connecting(of(name))


@pytest.mark.parametrize("name", ["", "SLURMCluster", "a b.C", "os;C", "../x.C", "dask:C.D", "a.1"])
def test_what_names_no_class_is_refused(name):
    with pytest.raises(InputError, match="does not name a class: write package"):
        CustomCluster(cluster_class=name)


def test_options_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="max_workers is 2, and workers, the fewest, 3"):
        of("Small", workers=3, max_workers=2)
    with pytest.raises(InputError, match="argument asynchronous cannot be given"):
        of("Small", arguments={"asynchronous": True})


def test_arguments_that_the_class_refuses_are_named():
    said = connecting(of("NoAccount", arguments={"zone": "a"}))
    assert "NoAccount could not be started (TypeError: NoAccount.__init__() got an unex" in said
    assert said.endswith("it was given zone.")
    assert "(PermissionError: no account in x)" in connecting(
        of("NoAccount", arguments={"region": "x"})
    )


def test_a_cluster_that_cannot_be_scaled_is_closed(closed):
    assert "(NotImplementedError: no more machines)" in connecting(of("CannotScale", workers=2))
    assert len(closed) == 1


def test_plaintext_on_a_network_is_refused_and_closed(closed):
    said = connecting(of("OnTheNetwork"))
    assert "listens at tcp://192.0.2.1:8786, in plaintext: anyone on the way" in said
    assert len(closed) == 1


@pytest.mark.parametrize("scheme", ["tcp", "ws", "ucx", "ucxx"])
def test_what_is_plaintext_is_known_by_its_protocol(scheme):
    address = f"{scheme}://192.0.2.1:8786"
    with pytest.raises(ConnectionError, match="in plaintext: anyone on the way"):
        of("Small")._check_encryption(address)
    of("Small", allow_plaintext=True)._check_encryption(address)


@pytest.fixture
def starts_at_once(monkeypatch):
    """However long a start takes on this machine, time is measured for the workers only."""

    def call(_name, function):
        future = Future()
        future.set_result(function())
        return future

    monkeypatch.setattr(custom_cluster, "on_thread", call)


def test_workers_that_never_come_are_a_sentence(closed, starts_at_once):
    block = of("NoQueue", arguments={"n_workers": 0}, start_timeout_s=0.2)
    assert "No worker of the tests.blocks.other_clusters.NoQueue came within 0.2 s: set wo" in (
        connecting(block)
    )
    said = connecting(block.model_copy(update={"workers": 2}))
    assert "0.2 s: see in its queue and in the workers' logs" in said
    assert len(closed) == 2


def test_ctrl_c_stays_ours_whatever_a_package_sets_as_it_is_imported():
    sys.modules.pop("dask_jobqueue.runner", None)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    said = connecting(CustomCluster(cluster_class="dask_jobqueue.runner.Role"))
    assert "is not a class of Dask clusters" in said
    assert "dask_jobqueue.runner" in sys.modules
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_job_that_is_not_taken_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = {"cores": 1, "memory": "1GB", "interface": "lo", "log_directory": str(tmp_path)}
    arguments["scheduler_options"] = {"dashboard_address": "127.0.0.1:0"}
    block = CustomCluster(
        cluster_class="dask_jobqueue.SLURMCluster", arguments=arguments, workers=1
    )
    said = connecting(block)
    assert "No worker of the dask_jobqueue.SLURMCluster could be started (FileNotFound" in said
    assert "sbatch" in said


def test_with_some_of_the_workers_the_run_begins(caplog, starts_at_once):
    block = of("NoQueue", workers=2, start_timeout_s=0.2)
    with block.client() as client:
        assert client.submit(sum, [1, 2]).result() == 3
    [message] = [r.getMessage() for r in caplog.records if r.name == custom_cluster.__name__]
    assert "1 of 2 workers" in message
    assert "the run begins with them" in message


def test_a_start_that_hangs_ends_in_time_and_what_comes_later_is_closed(closed, monkeypatch):
    monkeypatch.setattr(custom_cluster, "GIVE_UP_S", 0.1)
    said = connecting(of("Late", start_timeout_s=0.2))
    assert "Late did not start within 0.2 s: see what it waits for" in said
    assert not Late.let.is_set()
    Late.let.set()
    for thread in threading.enumerate():
        if thread.name == "custom cluster":
            thread.join(60)
    assert len(closed) == 1


def test_a_close_that_hangs_is_said_and_not_waited_for(closed, caplog, monkeypatch):
    monkeypatch.setattr(custom_cluster, "CLOSE_TIMEOUT_S", 0.3)
    caplog.set_level(logging.WARNING)
    with of("HangsAtItsEnd").client():
        pass
    assert not closed
    HangsAtItsEnd.let.set()
    [message] = [r.getMessage() for r in caplog.records if r.name == custom_cluster.__name__]
    assert "could not be closed (no answer within 0.3 s): see whether its" in message


def test_an_error_without_a_word_at_the_close_is_said_by_its_name(closed, caplog):
    with of("FailsAtItsEnd").client():
        pass
    assert "could not be closed (TimeoutError): see whether its" in caplog.text


def count(data, context):
    return {"rows": [data.num_rows]}


@pytest.mark.slow  # jobs, each a worker that starts from nothing
# dask-jobqueue does not close the pipes of its local jobs.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_by_jobs_of_dask_jobqueue(tmp_path, prefect_server):
    """Its class for jobs on this machine shares all code with those for batch systems."""
    block = CustomCluster(
        cluster_class="dask_jobqueue.local.LocalCluster",
        arguments={
            "cores": 1,
            "processes": 1,
            "memory": "1GB",
            "security": True,
            "interface": "lo",
            "log_directory": str(tmp_path),
            "shared_temp_directory": str(tmp_path),
            "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
        },
        workers=2,
        shares_filesystem=True,
    )
    rows = pa.table({"key": [i % 5 for i in range(50)]})
    run = map_partitions(rows, "key", count, store=tmp_path / "store", cluster=block)
    assert run.counts == {"DONE": 5}
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(p.info["cmdline"])]
    assert left == []
    # Files that dask-jobqueue leaves open are to be found here, and not in another test.
    gc.collect()
