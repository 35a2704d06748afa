"""Which Open MPI is found, and what it is told; without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import InputError
from partwise.scripts import mpi_stub
from partwise.scripts.mpi import _listen
from partwise.scripts.open_mpi import (
    check_open_mpi,
    daemon_environment,
    find_open_mpi,
    mpirun_words,
    node_host,
    program_environment,
)


def make_mpirun(folder: Path, answer: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o700)
    return str(folder)


def test_open_mpi_is_found_by_its_own_words(tmp_path):
    path = make_mpirun(tmp_path / "bin", "mpirun (Open MPI) 4.1.4")
    found = find_open_mpi(os.pathsep.join(["/nowhere", path]))
    assert (found.mpirun, found.version) == (f"{path}/mpirun", "4.1.4")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("HYDRA build details:", r"is of something else: 'HYDRA build details:'\. Put the mpirun"),
        ("", "is of something else: ''"),
        ("mpirun (Open MPI) 5.0.3", r"knows Open MPI 4, and .* is of Open MPI 5\.0\.3"),
    ],
)
def test_another_mpi_is_refused(tmp_path, answer, message):
    with pytest.raises(InputError, match=message):
        find_open_mpi(make_mpirun(tmp_path / "bin", answer))


def test_a_machine_without_mpi_is_told(tmp_path):
    with pytest.raises(InputError, match=r"there is no mpirun in PATH .* install openmpi-bin"):
        find_open_mpi(str(tmp_path))
    broken = make_mpirun(tmp_path / "bin", "")
    Path(broken, "mpirun").write_text("#!/no/such/interpreter\n")
    with pytest.raises(InputError, match="does not answer"):
        find_open_mpi(broken)


def test_workers_are_asked_before_a_slot_is_taken(dask_client, tmp_path):
    workers = sorted(dask_client.scheduler_info(n_workers=-1)["workers"])
    good = make_mpirun(tmp_path / "bin", "mpirun (Open MPI) 4.1.4")
    assert check_open_mpi(dask_client, workers, good).version == "4.1.4"
    with pytest.raises(InputError, match=f"On the worker {workers[0]}: .* there is no mpirun"):
        check_open_mpi(dask_client, workers, str(tmp_path))
    # Each answers with a version of its own.
    Path(good, "mpirun").write_text("#!/bin/sh\necho '(Open MPI) 4.1.'$PPID\n")
    with pytest.raises(InputError, match=r"several versions of Open MPI: 4\.1\.\d+ on"):
        check_open_mpi(dask_client, workers, good)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=300))
def test_every_node_has_a_name_of_its_own(ranks_of_nodes):
    words = mpirun_words(ranks_of_nodes)
    hosts = [host.rpartition(":") for host in words[words.index("-H") + 1].split(",")]
    assert [int(ranks) for _, _, ranks in hosts] == ranks_of_nodes
    assert len({host for host, _, _ in hosts}) == len(ranks_of_nodes)
    assert words[words.index("-n") + 1] == str(sum(ranks_of_nodes))
    assert [host for host, _, _ in hosts[1:]] == [node_host(n) for n in range(1, len(hosts))]


FOREIGN = {
    "OMPI_COMM_WORLD_RANK": "7",
    "OMPI_MCA_ess": "^singleton",
    "OMPI_MCA_orte_hnp_uri": "1.0;tcp://192.0.2.1:1",
    "PMIX_NAMESPACE": "7",
    "SLURM_JOB_ID": "7",
}


def test_nothing_of_another_job_reaches_open_mpi_and_settings_do():
    """Workers may have been started by mpirun, or by a scheduler, themselves."""
    given_variables = {"A": "b", "PATH": "/bin", "OMPI_MCA_btl": "self", **FOREIGN}
    daemon = daemon_environment(given_variables, "", "/folder", {"STUB": "s"})
    assert not set(daemon) & set(FOREIGN)
    assert daemon["PATH"] == "/folder:/bin"
    assert (daemon["A"], daemon["OMPI_MCA_btl"], daemon["STUB"]) == ("b", "self", "s")
    assert daemon["OMPI_MCA_oob_tcp_if_include"] == "lo"

    of_process = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "x", "A": "c", "OMPI_ARGV": "-c"}
    program = program_environment(given_variables, of_process, "", "/folder", is_crowded=False)
    assert program["OMPI_COMM_WORLD_RANK"] == "1"
    assert program["PMIX_NAMESPACE"] == "x"
    assert (program["A"], program["PATH"], program["OMPI_MCA_btl"]) == ("b", "/bin", "self")
    assert not {"SLURM_JOB_ID", "OMPI_ARGV", "OMPI_MCA_mpi_yield_when_idle"} & set(program)


@pytest.mark.parametrize("name", ["OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude"])
def test_interfaces_that_the_caller_chose_are_left(name):
    daemon = daemon_environment({name: "eth7"}, "127.0.0.1", "/folder", {})
    assert {key: value for key, value in daemon.items() if "oob_tcp_if" in key} == {name: "eth7"}


@pytest.mark.parametrize("address", ["203.0.113.7", "fd00::77", "worker.example"])
def test_an_address_that_is_no_interface_of_the_machine_limits_nothing(address):
    """Behind a translation of addresses a machine does not know its own."""
    daemon = daemon_environment({}, address, "/folder", {})
    assert not any("if_include" in name for name in daemon)


def test_the_stub_ends_as_the_program_has(tmp_path):
    """Its socket may lie deeper than the address of a socket may be long."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    words = [sys.executable, "-I", "-S", mpi_stub.__file__, "join"]
    environment = {
        "OMPI_COMM_WORLD_RANK": "5",
        mpi_stub.RANKS_VARIABLE: json.dumps({"5": f"{folder}/rank"}),
    }
    with _listen(str(folder)) as listener:
        listener.settimeout(20)
        for code, status in ((0, 0), (3, 3), (-9, -9), (-15, -15), (None, mpi_stub.NO_RANK)):
            stub = subprocess.Popen(words, env=environment)
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                assert b'"OMPI_COMM_WORLD_RANK": "5"' in lines.readline()
                if code == 3:
                    stub.terminate()
                    assert lines.readline() == b"abort\n"
                if code is not None:
                    connection.sendall(b"%d\n" % code)
            assert stub.wait() == status
        others = {**environment, "OMPI_COMM_WORLD_RANK": "6"}
        told = subprocess.run(words, env=others, capture_output=True, check=False)
        assert told.returncode == mpi_stub.NO_RANK
        assert b"started rank 6 on a node that does not have it" in told.stderr
