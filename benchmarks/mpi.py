"""A program of MPI as the ranks of a gang, beside plain mpirun.

    python benchmarks/mpi.py [--steps 400] [--turns 5]

Two processes add 1 MB of float64 by allreduce after each step of work of their own, as training
does with gradients. By turns: mpirun, a gang of one node with two ranks, and a gang of two nodes
with a rank each, which Open MPI then takes for two machines (TCP in the place of shared memory).
Printed are medians: seconds of the whole, and of the program's loop alone. The gang's cluster is
there already.
"""

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import cloudpickle
from distributed import Client, LocalCluster

from partwise.gangs.driver import run_gang
from partwise.gangs.spec import GangSpec, Node
from partwise.gangs.work import GangPayload, TrainRankWork
from partwise.ranks.context import RankContext
from partwise.runs.documents import execution_token
from partwise.scripts.mpi import run_mpi
from partwise.scripts.open_mpi import AS_ROOT
from partwise.shuffle.shared_folder import StagedFile
from partwise.store.store import Store

PROGRAM = """
import sys, time
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
gradient, total = np.ones(125_000), np.empty(125_000)
matrix = np.random.default_rng(world.rank).standard_normal((300, 300))
world.Barrier()
began = time.perf_counter()
for _ in range(int(sys.argv[1])):
    for _ in range(10):
        matrix = np.tanh(matrix @ matrix)
    world.Allreduce(gradient, total)
if world.rank == 0:
    with open(sys.argv[2], "w") as told:
        told.write(str(time.perf_counter() - began))
"""


def work_of(words: list[str]) -> TrainRankWork:
    """Return what each rank does: run the program as its process of the job."""

    def work(context: RankContext) -> None:
        def run(variables: Mapping[str, str], started: Callable[[int], None]) -> int:
            program = subprocess.Popen(words, env=dict(variables))
            started(program.pid)
            return program.wait()

        if code := run_mpi(context, os.environ, run):
            raise RuntimeError(f"The program ended with {code}.")

    return TrainRankWork(function=work)


def make_gang(
    folder: Path, words: list[str], workers: list[str], ranks: tuple[int, ...]
) -> GangSpec:
    payload = Path(tempfile.mkstemp(dir=folder)[1])
    payload.write_bytes(cloudpickle.dumps(GangPayload(work=work_of(words))))
    nodes = [
        Node(worker=workers[number], first_rank=sum(ranks[:number]), ranks=of_node)
        for number, of_node in enumerate(ranks)
    ]
    return GangSpec(
        token=execution_token(1, secrets.token_hex(4)),
        run_id="mpi",
        generation=1,
        store=Store.parse(folder / "store"),
        payload=StagedFile(path=str(payload), where="disk"),
        nodes=tuple(nodes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        folder = Path(name)
        told = folder / "loop"
        words = [sys.executable, "-c", PROGRAM, str(arguments.steps), str(told)]
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])

        def plain() -> None:
            # Bound to no core, as the ranks of gangs are.
            mpirun = ["mpirun", "-n", "2", "-H", "localhost:2", "--bind-to", "none"]
            environment = {**os.environ, **AS_ROOT, "OMP_NUM_THREADS": "1"}
            subprocess.run([*mpirun, *words], env=environment, check=True)

        contestants: dict[str, Callable[[], object]] = {
            "mpirun": plain,
            "gang, one node": lambda: run_gang(client, make_gang(folder, words, workers, (2,))),
            "gang, two nodes": lambda: run_gang(client, make_gang(folder, words, workers, (1, 1))),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
        for _ in range(arguments.turns):
            for name, contestant in contestants.items():
                began = time.perf_counter()
                contestant()
                taken[name].append((time.perf_counter() - began, float(told.read_text())))
    for name, times in taken.items():
        whole, loop = (statistics.median(column) for column in zip(*times, strict=True))
        first_whole, first_loop = (
            statistics.median(column) for column in zip(*taken["mpirun"], strict=True)
        )
        print(
            f"{name:16} whole {whole:6.2f} s ({whole / first_whole:.3f}x)   "
            f"loop {loop:6.2f} s ({loop / first_loop:.3f}x)"
        )


if __name__ == "__main__":
    main()
