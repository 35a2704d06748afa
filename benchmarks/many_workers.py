"""What a Dask cluster of many workers costs driver and scheduler, with workers that do nothing.

    python -m benchmarks.many_workers [--workers 1000] [--shards 16000]

The scheduler is a process of its own, and so are each 250 of the workers: real ones of Dask's, with
our settings, whose tasks return at once. So the scheduler's own work and the messages are measured,
and not partwise's shards. Printed are the calls that a run makes of all workers, its look at the
cluster (which happens every `workers / 200` seconds), shards without any work, and memory. The
workers soon need more of the cores than the scheduler, which would hear of them from many machines:
what counts is the CPU time of the scheduler.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from typing import Any

import dask
import psutil
from distributed import Client, Scheduler, Worker, wait
from distributed.comm.utils import to_frames

from partwise.blocks.cluster_start import DASK_SETTINGS
from partwise.cluster_calls import ask_workers, known_workers

START_S = 600.0
OF_A_PROCESS = 250
"""Workers; of more, each waits for the others."""


def nothing(*_: Any) -> None:
    """Stand for a shard."""


async def schedule() -> None:
    """Be the scheduler, and print its address."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()


async def host(address: str, count: int) -> None:
    """Be so many workers."""
    started = [Worker(address, nthreads=1) for _ in range(count)]
    for some in range(0, count, 50):
        await asyncio.gather(*started[some : some + 50])
    await asyncio.gather(*(worker.finished() for worker in started))


def child(*words: str) -> subprocess.Popen[str]:
    """Start this script for another part."""
    command = [sys.executable, __file__, *words]
    # Dask writes a line for each of many workers.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


class Watch:
    """Prints how long something took, with the CPU time of scheduler and workers."""

    def __init__(self, scheduler: int, workers: list[int]) -> None:
        self._processes = [[psutil.Process(scheduler)], [psutil.Process(pid) for pid in workers]]
        print(f"{'seconds':>53} {'scheduler CPU':>14} {'workers CPU':>12}")

    def __call__(self, what: str, call: Any, *arguments: Any) -> Any:
        """Call something."""
        began, before = time.perf_counter(), self._spent()
        found = call(*arguments)
        taken = time.perf_counter() - began
        used = [now - then for now, then in zip(self._spent(), before, strict=True)]
        print(f"{what:44} {taken:8.2f} {used[0]:14.2f} {used[1]:12.2f}", flush=True)
        return found

    def _spent(self) -> list[float]:
        return [sum(sum(each.cpu_times()[:2]) for each in some) for some in self._processes]


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--shards", type=int, default=16_000)
    parser.add_argument("--part", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        name, *more = arguments.part
        dask.config.set(DASK_SETTINGS)
        asyncio.run(schedule() if name == "scheduler" else host(more[0], int(more[1])))
        return
    scheduler = child("--part", "scheduler")
    assert scheduler.stdout is not None
    address = scheduler.stdout.readline().strip()
    counts = [
        min(OF_A_PROCESS, arguments.workers - done)
        for done in range(0, arguments.workers, OF_A_PROCESS)
    ]
    workers = [child("--part", "workers", address, str(count)) for count in counts]
    timed = Watch(scheduler.pid, [each.pid for each in workers])
    try:
        with Client(address, timeout=START_S) as client:
            timed("workers come", client.wait_for_workers, arguments.workers, START_S)
            seen = timed("look at the cluster", known_workers, client)
            size = sum(len(frame) for frame in asyncio.run(to_frames(seen)))
            print(f"{'which is an answer of':44} {size / 1e6:8.2f} MB")
            timed("ask each worker something", ask_workers, client, nothing)
            futures = timed(
                f"put {arguments.shards:,} shards in line",
                client.map,
                nothing,
                range(arguments.shards),
            )
            timed("all done", wait, futures)
            timed("look at the cluster again", known_workers, client)
            for name, process in (("driver", None), ("scheduler", scheduler.pid)):
                memory = psutil.Process(process).memory_full_info().uss / 1e6
                print(f"{'memory of the ' + name:44} {memory:8.0f} MB")
    finally:
        for process in (*workers, scheduler):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
