"""What partwise adds to a script: its gang beside plain torchrun, on the same machine.

    python benchmarks/scripts.py [--epochs 50] [--steps 100] [--rows 20000] [--turns 5]

The script is examples/scripts/train_ddp.py with two gloo ranks on this machine, which prints a line
for each epoch. It is run by turns: by torchrun, and by the whole flow on a Dask cluster that is
there, of which the stage "gang" is also given. Printed are medians of the whole time, and their
ratio to torchrun's. With --steps 1 --epochs 20000 --rows 256 it prints 500 lines a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gangs import dask_cluster
from partwise import RemoteCluster, run_script

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "scripts"
SCRIPT = "train_ddp.py"


def by_torchrun(folder: Path, params: dict[str, int], _: str) -> dict[str, float]:
    """Run the script as a user of PyTorch does."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(EXAMPLES / SCRIPT)]
    command += [word for name, value in params.items() for word in (f"--{name}", str(value))]
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return {"whole": time.perf_counter() - began}


def by_partwise(folder: Path, params: dict[str, int], address: str) -> dict[str, float]:
    """Run the script by the flow, and take its stage "gang" for what torchrun does."""
    began = time.perf_counter()
    run = run_script(
        SCRIPT,
        source_directory=str(EXAMPLES),
        arguments=params,
        ranks_per_node=2,
        backend="gloo",
        store=str(folder / "store"),
        cluster=RemoteCluster(address=address, shares_filesystem=True),
    )
    stages = {} if run.summary is None else run.summary.stages
    return {"whole": time.perf_counter() - began, "gang": stages["gang"]}


CONTESTANTS: dict[str, Callable[[Path, dict[str, int], str], dict[str, float]]] = {
    "torchrun": by_torchrun,
    "partwise": by_partwise,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    params = {name: getattr(arguments, name) for name in ("epochs", "steps", "rows")}
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as made, dask_cluster(2, 1) as client:
        address = client.scheduler.address
        # The first flow of a process starts Prefect's server.
        by_partwise(Path(made), {"epochs": 1}, address)
        for turn in range(arguments.turns):
            # By turns in both orders, as the machine has other work too.
            names = list(CONTESTANTS) if turn % 2 else list(CONTESTANTS)[::-1]
            for name in names:
                for part, seconds in CONTESTANTS[name](Path(made), params, address).items():
                    measured.setdefault(f"{name} {part}", []).append(seconds)
    base = statistics.median(measured["torchrun whole"])
    medians = {name: statistics.median(seconds) for name, seconds in sorted(measured.items())}
    for name, median in medians.items():
        each = ", ".join(f"{one:.2f}" for one in measured[name])
        print(f"{name:18} {median:7.2f} s  {median / base:5.2f} x torchrun  ({each})")
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
