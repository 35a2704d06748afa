"""A function of a partition or rank that leaves what multiprocessing makes in shared memory."""

import multiprocessing
import os
import signal
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Lock
from multiprocessing.util import get_temp_dir
from pathlib import Path


def make_files(listed: Path) -> None:
    """Have each kind of file that multiprocessing makes, also in a process that it starts.

    Args:
        listed: Where the four paths are written, one on each line.
    """
    global kept
    context = multiprocessing.get_context("spawn")
    kept = [context.Lock(), SharedMemory(create=True, size=1000)]
    ended = context.Process(target=make_a_lock_and_end, args=(listed,))
    ended.start()
    ended.join()
    lock, memory = kept
    with listed.open("a") as file:
        file.write(f"{path_of(lock)}\n/dev/shm/{memory.name}\n{get_temp_dir()}\n")


def make_a_lock_and_end(listed: Path) -> None:
    lock = multiprocessing.get_context("spawn").Lock()
    with listed.open("a") as file:
        file.write(f"{path_of(lock)}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def path_of(lock: Lock) -> str:
    return f"/dev/shm/sem.{lock._semlock.name.removeprefix('/')}"
