"""Real clusters: what they listen on, what they leave behind, what they refuse."""

import io
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import dask
import distributed
import psutil
import pytest
from distributed.security import Security

from partwise.blocks import CudaCluster, LocalCluster, RemoteCluster, cluster_start
from partwise.cluster_calls import known_workers
from partwise.errors import ClusterError, InputError
from partwise.flows.running.connections import connect, open_cluster
from tests.own_cluster import wait_for
from tests.strangers import strange_server


def test_a_local_cluster_has_one_thread_a_worker_and_our_settings():
    with LocalCluster(workers=2).client() as client:
        workers = known_workers(client).values()
        wanted = client.run(dask.config.get, "distributed.worker.memory.pause")
        allowed = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)

    assert [worker["nthreads"] for worker in workers] == [1, 1]
    assert set(wanted.values()) == {False}
    assert allowed == 10
    assert dask.config.get("distributed.scheduler.allowed-failures") == 3


def test_a_local_cluster_listens_on_the_loopback_address_only_and_leaves_nothing(monkeypatch):
    with LocalCluster(workers=1).client() as client:
        processes = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        listening = [
            connection.laddr
            for process in [*processes, psutil.Process()]
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        assert client.submit(sum, [1, 2]).result() == 3

    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert 8787 not in {address.port for address in listening}
    assert not any(process.is_running() for process in processes)


def test_ciphers_of_rsa_alone_may_be_configured():
    tls = {"ciphers": "ECDHE-RSA-AES128-GCM-SHA256", "max-version": 1.2}
    settings = {f"distributed.comm.tls.{name}": value for name, value in tls.items()}
    with dask.config.set(settings), LocalCluster(workers=1).client() as client:
        assert client.submit(sum, [1, 2]).result() == 3


BEGUN = """
import os, sys
from partwise.blocks import clusters


def begin():
    print(sorted({"dask", "distributed"} & set(sys.modules)), flush=True)
    os._exit(0)


clusters.begin_worker_server = begin
with clusters.LocalCluster().client():
    raise AssertionError("nothing was begun")
"""


def test_the_workers_server_begins_before_dask_is_imported():
    shown = subprocess.run([sys.executable, "-c", BEGUN], capture_output=True, text=True)
    assert (shown.stdout, shown.stderr) == ("[]\n", "")


def test_an_error_in_the_body_closes_the_cluster():
    pids = []

    def body():
        with LocalCluster(workers=1).client() as client:
            pids.append(client.submit(os.getpid).result())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()

    assert pids
    assert not psutil.pid_exists(pids[0])


def test_a_cluster_that_cannot_close_is_ended(monkeypatch):
    monkeypatch.setattr(cluster_start, "CLOSE_TIMEOUT_S", 0.5)
    with LocalCluster(workers=1).client() as client:
        pid = client.submit(os.getpid).result()
        os.kill(pid, signal.SIGSTOP)

    wait_for(lambda: not psutil.pid_exists(pid), "the worker goes on", 10)


@pytest.fixture
def no_other_cluster() -> Iterator[None]:
    """Loggers as they are where no cluster is at work: the tests' own one has silenced them."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    loggers = [logging.getLogger(name) for name in names]
    silenced = [logger for logger in loggers if logger.level == logging.CRITICAL]
    for logger in silenced:
        logger.setLevel(logging.INFO)
    yield
    for logger in silenced:
        logger.setLevel(logging.CRITICAL)


def test_a_close_that_is_interrupted_leaves_nothing_to_the_exit_of_the_process(monkeypatch):
    """There Dask would wait for workers and scheduler once more, for ten seconds."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    context = LocalCluster(workers=1).client()
    client = context.__enter__()
    cluster = client.cluster
    nannies = list(cluster.workers.values())
    workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
    monkeypatch.setattr(distributed.LocalCluster, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        context.__exit__(None, None, None)
    assert cluster.status is distributed.Status.closed
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    # The fork server tells them, and they log it: here, and not in the next test.
    closed = distributed.Status.closed
    wait_for(lambda: all(nanny.status is closed for nanny in nannies), "a nanny goes on", 10)


def test_dask_is_silent_unless_its_configuration_says_otherwise(no_other_cluster, caplog):
    caplog.set_level(logging.INFO)
    with LocalCluster(workers=1).client() as client:
        assert isinstance(client.submit(int, "x").exception(), ValueError)
    assert [record.name for record in caplog.records if record.name.startswith("distr")] == []

    with dask.config.set({"logging.distributed": "info"}), LocalCluster(workers=1).client():
        pass
    assert "distributed.scheduler" in {record.name for record in caplog.records}


def test_a_handler_that_dask_shares_with_others_stays_as_it_is():
    """A configuration of logging may name one handler for the root logger and for Dask's."""
    handler = logging.StreamHandler(told := io.StringIO())
    loggers = [logging.root, logging.getLogger("distributed"), logging.getLogger("bokeh")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with LocalCluster(workers=1).client():
            assert handler.level == logging.NOTSET
            logging.getLogger("of_a_user").warning("a word")
        assert all(handler in logger.handlers for logger in loggers)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    assert told.getvalue() == "a word\n"


INTERRUPTED = """
import time
from partwise.blocks import LocalCluster

if __name__ == "__main__":
    try:
        with LocalCluster(workers=1).client() as client:
            print("ready", flush=True)
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_of_the_whole_process_group_prints_no_traceback(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)

    assert output == "interrupted\n"
    assert process.returncode == 0


def test_a_remote_cluster_is_left_running(dask_client):
    address = dask_client.scheduler.address
    with RemoteCluster(address=f" {address}/ ").client() as client:
        assert client.submit(sum, [1, 2]).result() == 3

    assert client.status == "closed"
    assert dask_client.submit(sum, [3, 4]).result() == 7


def test_a_scheduler_that_does_not_answer_is_named():
    block = RemoteCluster(address="tcp://127.0.0.1:9", connect_timeout_s=0.3)
    with (
        pytest.raises(ConnectionError, match=r"No Dask scheduler answered at tcp://127.0.0.1:9"),
        block.client(),
    ):
        pass


def computed_by() -> Any:
    """By what Dask computes in this process."""
    return dask.config.get("scheduler", None), distributed.default_client().id


@pytest.mark.parametrize("kind", ["silent", "dripping", "talking", "a worker"])
def test_what_is_no_scheduler_is_told_in_time(kind: str, dask_client) -> None:
    """Dask's own client waits for ever for the greeting of a port that says nothing."""
    before, kept = computed_by(), []
    with ExitStack() as opened:
        address = next(iter(known_workers(dask_client)))
        if kind != "a worker":
            host, port = opened.enter_context(strange_server(kind))
            address = f"tcp://{host}:{port}"
        block = RemoteCluster(address=address, connect_timeout_s=1.0)
        with pytest.raises(ConnectionError, match="No Dask scheduler answered") as caught:
            opened.enter_context(block.client())
        # As a notebook keeps the last one, and all that its frames have.
        kept.append(caught.value)
    assert computed_by() == before


def test_a_client_that_was_interrupted_computes_nothing_later(
    monkeypatch: pytest.MonkeyPatch, dask_client
) -> None:
    """It would be Dask's default client of this process, for which everything waits for ever."""
    before = computed_by()
    # As if the scheduler had been stopped since.
    monkeypatch.setattr(cluster_start, "_greet", lambda *_: None)
    presser = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    with strange_server("silent") as (host, port):
        block = RemoteCluster(address=f"tcp://{host}:{port}")
        presser.start()
        with pytest.raises(KeyboardInterrupt) as caught, block.client():
            pass
    assert caught.value is not None
    assert computed_by() == before


def test_the_client_of_another_thread_stays_where_a_connection_fails(
    monkeypatch: pytest.MonkeyPatch, dask_client
) -> None:
    """It became the default one while ours was being made."""
    made, client = [], distributed.Client

    def fails(*_: Any, **__: Any) -> None:
        made.append(client(dask_client.scheduler.address))
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_start, "_greet", lambda *_: None)
    monkeypatch.setattr(distributed, "Client", fails)
    with pytest.raises(KeyboardInterrupt):
        cluster_start.new_client(dask_client.scheduler.address)
    assert made[0].status == "running"
    made[0].close()


@pytest.mark.parametrize("host", ["10.0.0.1", "scheduler.example.org", "[fe80::1]", "0.0.0.0"])
def test_plaintext_to_another_machine_is_refused(host):
    address = f"tcp://{host}:8786"
    with pytest.raises(InputError, match=r"is in plaintext: .* Give a tls:// address"):
        RemoteCluster(address=address)
    assert RemoteCluster(address=address, allow_plaintext=True).address == address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_plaintext_on_this_machine_is_allowed(host):
    assert RemoteCluster(address=f"tcp://{host}:8786").shares_filesystem is False


@pytest.mark.parametrize(
    "address", ["", "8786", "host:8786", "ucx://host:8786", "tls://host", "tls://:1", "tcp://h:x"]
)
def test_what_is_no_scheduler_address_is_refused(address):
    with pytest.raises(InputError, match="is not an address of a Dask scheduler: write tls"):
        RemoteCluster(address=address)


def test_tls_needs_its_three_files():
    with pytest.raises(InputError, match="needs tls_cert_file, tls_key_file as well"):
        RemoteCluster(address="tls://host:1", tls_ca_file="ca.pem")

    block = RemoteCluster(
        address="tls://host:1", tls_ca_file="/none.pem", tls_cert_file="c", tls_key_file="k"
    )
    with pytest.raises(FileNotFoundError, match=r"TLS file '/none.pem' .* correct"), block.client():
        pass


def test_a_remote_cluster_speaks_tls(tmp_path):
    security = Security.temporary()
    # One self-signed certificate is its own authority.
    (tmp_path / "cert.pem").write_text(security.tls_client_cert)
    (tmp_path / "key.pem").write_text(security.tls_client_key)
    with distributed.LocalCluster(
        n_workers=1, processes=False, security=security, dashboard_address="127.0.0.1:0"
    ) as cluster:
        block = RemoteCluster(
            address=cluster.scheduler_address,
            tls_ca_file=str(tmp_path / "cert.pem"),
            tls_cert_file=str(tmp_path / "cert.pem"),
            tls_key_file=str(tmp_path / "key.pem"),
        )
        assert block.address.startswith("tls://")
        with block.client() as client:
            assert client.submit(sum, [1, 2]).result() == 3


def test_a_cuda_cluster_without_a_gpu_says_so(monkeypatch):
    pytest.importorskip("dask_cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "no-such-device")
    with (
        pytest.raises(ConnectionError, match=r"CudaCluster cannot use GPUs on this machine .*nvid"),
        CudaCluster().client(),
    ):
        pass


def test_a_cuda_cluster_without_its_extra_names_it(monkeypatch):
    for name in ("dask_cuda", "dask_cuda.local_cuda_cluster"):
        monkeypatch.setitem(sys.modules, name, None)
    with (
        pytest.raises(ImportError, match=r"needs the extra 'cuda'.*pip install 'partwise\[cuda\]'"),
        CudaCluster().client(),
    ):
        pass


def test_names_of_gpus_are_checked():
    assert CudaCluster(devices="0, GPU-8f6c, MIG-1").devices == "0, GPU-8f6c, MIG-1"
    with pytest.raises(InputError, match="pattern"):
        CudaCluster(devices="0; rm")


def test_each_worker_of_a_cuda_cluster_has_a_gpu_of_its_own(monkeypatch):
    """dask-cuda itself, told of two GPUs; only what needs a driver is made up."""
    cluster = pytest.importorskip("dask_cuda.local_cuda_cluster")
    from dask_cuda import utils, worker_common

    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    monkeypatch.setattr(utils, "get_n_gpus", lambda: 2)
    monkeypatch.setattr(cluster, "nvml_device_index", lambda i, devices: i)
    monkeypatch.setattr(worker_common, "get_cpu_affinity", lambda i: os.sched_getaffinity(0))
    # Where there is one GPU, workers would ask the driver about the second.
    unasked = dask.config.set({"distributed.diagnostics.nvml": False})
    with unasked, CudaCluster().shared_by(3).client() as client:
        seen = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
        interrupts = client.run(signal.getsignal, signal.SIGINT)
        threads = client.nthreads()
        address = client.scheduler.address

    assert address.startswith("tls://")
    assert sorted(seen.values()) == ["0,1", "1,0"]
    assert set(interrupts.values()) == {signal.SIG_IGN}
    assert set(threads.values()) == {3}


def test_a_cuda_cluster_has_room_for_all_that_share_a_gpu():
    assert open_cluster(CudaCluster(), 0.25)._sharing == 4
    assert open_cluster(CudaCluster(), 1)._sharing == open_cluster(CudaCluster())._sharing == 1
    assert open_cluster(LocalCluster(workers=2), 0.25) == LocalCluster(workers=2)


def test_a_fork_of_a_process_that_worked_with_a_cluster_is_refused(dask_client):
    with connect(RemoteCluster(address=dask_client.scheduler.address)):
        pass
    assert open_cluster("local") == LocalCluster()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            open_cluster("local")
        except ClusterError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as said:
        assert "was forked from one that had worked with a cluster" in said.read()


@pytest.mark.usefixtures("gpu")
def test_a_cuda_cluster_gives_each_worker_its_own_gpu():
    with CudaCluster().client() as client:
        seen = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0])
    assert len(set(seen.values())) == len(seen)


def test_a_cluster_does_not_grow_to_fewer_workers_than_it_begins_with():
    with pytest.raises(InputError, match="max_workers is 2, and workers, the fewest, 3"):
        LocalCluster(workers=3, max_workers=2)
    assert LocalCluster(max_workers=2).workers == 0
