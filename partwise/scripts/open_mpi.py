"""Which Open MPI a machine has, and how it starts the ranks of a gang without ssh."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from partwise.cluster_calls import ask_workers
from partwise.errors import ClusterError, InputError

if TYPE_CHECKING:
    # Ranks import this module, and not Dask.
    from distributed import Client

LAUNCH_PROGRAM = "partwise-mpi-launch"
"""What Open MPI runs in the place of ssh; found by PATH, as its setting cannot hold blanks."""
JOIN = 'exec "$PARTWISE_MPI_PYTHON" -I -S "$PARTWISE_MPI_STUB" join'
"""What Open MPI runs on each node in the place of the program, by a shell."""
VERSION_S = 60.0
"""For so long `mpirun --version` may take; a worker is asked twice."""
_TESTED = "4"
# Of an Open MPI job, or of a scheduler, in which a worker itself was started: they would have Open
# MPI take us for a part of these.
_FOREIGN = re.compile(
    r"OMPI_(?!MCA_|ALLOW_)|OMPI_MCA_(orte_|ess|pmix)|PMIX_|PMI_|PRTE_|SLURM_|PBS_|LSB_|LSF_"
    r"|PE_HOSTFILE"
)
# A rank runs the user's code as root as well where its worker does; what Open MPI warns of is its
# own clearing up, and that happens in the rank's folder.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_OF_PROCESS = ("OMPI_", "PMIX_", "HFI_", "IPATH_")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMpi:
    """An Open MPI that was found."""

    mpirun: str
    """Path of its mpirun."""
    version: str
    """As "4.1.4"."""


def find_open_mpi(path: str | None = None) -> OpenMpi:
    """Return the Open MPI whose mpirun comes first in a PATH; None: that of this process."""
    mpirun = shutil.which("mpirun", path=path)
    if mpirun is None:
        raise InputError(
            "backend='mpi' needs Open MPI, and there is no mpirun in PATH "
            f"({os.environ.get('PATH', '') if path is None else path}): install openmpi-bin."
        )
    try:
        said = subprocess.run(  # noqa: S603 (what PATH names mpirun)
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **AS_ROOT},
            timeout=VERSION_S,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{mpirun} --version does not answer: {error}.") from error
    found = re.search(r"\(Open MPI\) (\d[\w.]*)", said)
    if found is None:
        first = said.strip().partition("\n")[0]
        raise InputError(
            f"backend='mpi' needs Open MPI, and {mpirun} is of something else: {first!r}. Put the "
            "mpirun of Open MPI first in PATH."
        )
    version = found[1]
    if version.partition(".")[0] != _TESTED:
        raise InputError(
            f"backend='mpi' knows Open MPI {_TESTED}, and {mpirun} is of Open MPI {version}."
        )
    return OpenMpi(mpirun=mpirun, version=version)


def check_open_mpi(client: "Client", workers: Sequence[str], path: str | None = None) -> OpenMpi:
    """Look for Open MPI on Dask workers, which answer while their slots are busy.

    `path` is the PATH of the program; None: the worker's own.
    """
    answers = ask_workers(client, _look, path, workers=list(workers), limit_s=VERSION_S)
    for worker in workers:
        if not isinstance(answers.get(worker), OpenMpi | str):
            raise ClusterError(
                f"The worker {worker} did not say within {VERSION_S:.0f} s which Open MPI it has: "
                f"{answers.get(worker, 'it does not answer')}."
            )
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, str):
            raise InputError(f"On the worker {worker}: {answer}")
    found = {one.version: worker for worker, one in answers.items() if isinstance(one, OpenMpi)}
    if len(found) > 1:
        of_each = ", ".join(f"{version} on {worker}" for version, worker in sorted(found.items()))
        raise InputError(
            f"Workers have several versions of Open MPI: {of_each}. Install the same on all."
        )
    return next(one for one in answers.values() if isinstance(one, OpenMpi))


def _look(path: str | None) -> OpenMpi | str:
    try:
        return find_open_mpi(path)
    except InputError as error:
        return str(error)


def mpirun_words(ranks_of_nodes: Sequence[int]) -> list[str]:
    """Return the command that starts a job.

    The first node is mpirun's own. The others have addresses that nobody has (240.0.0.0/4), so that
    they are neither looked up nor taken for this machine, and their numbers can be read from them.
    """
    hosts = [
        f"{node_host(node) if node else 'localhost'}:{ranks}"
        for node, ranks in enumerate(ranks_of_nodes)
    ]
    return [
        *("mpirun", "-n", str(sum(ranks_of_nodes)), "-H", ",".join(hosts)),
        # Ranks are numbered node by node, as in the gang. Each node may be one of several on its
        # machine, and would bind its ranks to the same cores as they do.
        *("--map-by", "slot", "--bind-to", "none"),
        # A folder that every machine has; each program is started in its own.
        *("--wdir", "/"),
        # So that a daemon is our child until it ends.
        "--leave-session-attached",
        *("--mca", "plm", "rsh", "--mca", "plm_rsh_agent", LAUNCH_PROGRAM),
        # Else daemons would start each other, and rank 0 would not hear their commands.
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("/bin/sh", "-c", JOIN),
    ]


def node_host(node: int) -> str:
    """Return the address that stands for a node."""
    return f"240.{node >> 16 & 0xFF}.{node >> 8 & 0xFF}.{node & 0xFF}"


def daemon_environment(
    environment: Mapping[str, str], address: str, folder: str, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of mpirun, and of the daemon of another node.

    `environment` is that of the program. `address` is where other nodes reach this one; empty:
    there are none. `folder` is for what they keep on disk, and gone with the rank.
    """
    own = {
        "PATH": f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "TMPDIR": folder,
        # Else mpirun's own, which are of its node, would be those of all.
        "OMPI_MCA_plm_rsh_pass_environ_mca_params": "0",
        **AS_ROOT,
        **variables,
    }
    return {**_without_foreign(environment), **_interfaces("oob", address, environment), **own}


def program_environment(
    environment: Mapping[str, str],
    of_process: Mapping[str, str],
    address: str,
    folder: str,
    *,
    is_crowded: bool,
) -> dict[str, str]:
    """Return the variables of a program.

    `of_process` is what Open MPI has given to the stub that stands for it. `address` is where other
    nodes reach this one; empty: there are none. `folder`, on this machine's disk, is for what it
    shares with its neighbours; `is_crowded`: fewer cores than ranks.
    """
    # Open MPI names these files after the number of a rank on its node, so that two nodes on one
    # machine would overwrite each other's in /dev/shm; and of a process that is killed they stay.
    backing = dict.fromkeys(
        ("btl_vader_backing_directory", "osc_sm_backing_directory", "osc_rdma_backing_directory"),
        folder,
    )
    if is_crowded:
        # One that waits for another is to leave it the core.
        backing["mpi_yield_when_idle"] = "1"
    given = {f"OMPI_MCA_{name}": value for name, value in backing.items()}
    of_process = {
        name: value
        for name, value in of_process.items()
        # These two are the stub's words.
        if name.startswith(_OF_PROCESS) and name not in ("OMPI_COMMAND", "OMPI_ARGV")
    }
    return {
        **given,
        **_interfaces("btl", address, environment),
        **of_process,
        **_without_foreign(environment),
    }


def _without_foreign(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not _FOREIGN.match(name)}


def _interfaces(layer: str, address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that has a layer of Open MPI use the gang's own network alone.

    Otherwise it takes all interfaces, and where two machines have the same address on one of them,
    such as that of docker0, it waits for itself for ever.
    """
    names = f"OMPI_MCA_{layer}_tcp_if_include", f"OMPI_MCA_{layer}_tcp_if_exclude"
    if any(name in environment for name in names):
        return {}
    address = address or "127.0.0.1"
    # An address by which others reach this machine need not be one that it knows of.
    for interface, own in psutil.net_if_addrs().items():
        if any(one.family == socket.AF_INET and one.address == address for one in own):
            # Not as "address/32": Open MPI shifts by 32 bits then, and all interfaces fit.
            return {names[0]: interface, "OMPI_MCA_oob_tcp_disable_ipv6_family": "1"}
    return {}
