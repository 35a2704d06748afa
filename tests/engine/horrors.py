"""Functions that do their worst, apart from what starts flows: each child imports this file."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

MIB = 1 << 20


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("no way to pickle this")
        self.lock = multiprocessing.Lock()

    def __reduce__(self):
        raise TypeError("cannot pickle")


def hold_gil() -> None:
    ctypes.PyDLL(None).sleep(60)


def exhaust_memory() -> None:
    blocks = []
    while True:
        blocks.append(np.ones(32 * MIB // 8))


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


def recurse_without_limit() -> None:
    sys.setrecursionlimit(1 << 30)
    recurse()


def die_with_grandchild(directory: str) -> None:
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(directory, "grandchild").write_text(str(process.pid))
    os.kill(os.getpid(), signal.SIGKILL)


def redirect_and_wander() -> None:
    os.chdir("/")
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def square(number: int) -> int:
    return number * number


def fork_pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]


def loop() -> None:
    while True:
        # Without a pause it would keep a core busy that other tests could use.
        time.sleep(0.001)


def misbehave(key: int, directory: str) -> None:
    match key:
        case 10:
            os._exit(3)
        case 20:
            ctypes.string_at(0)
        case 30:
            loop()
        case 40:
            hold_gil()
        case 50:
            exhaust_memory()
        case 60:
            raise Unpicklable
        case 70:
            raise RuntimeError("x" * (1 << 30))
        case 80:
            sys.exit(4)
        case 90:
            raise KeyboardInterrupt
        case 100:
            os.closerange(0, 1 << 20)
        case 110:
            recurse_without_limit()
        case 120:
            die_with_grandchild(directory)
        case 130:
            redirect_and_wander()
        case 140:
            fork_pool()
        case 150:
            subprocess.run("echo from a shell", shell=True, check=True)
        case 160:
            recurse()
