"""Slots of a machine: never held twice, given back by a death, not waited for in a stopped run."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from partwise.engine.worker.machine_slots import (
    gpu_variables,
    hold_slot,
    thread_variables,
    without_gpu_caps,
)

HOLDER = """
import sys, time
from partwise.engine.worker.machine_slots import hold_slot
with hold_slot(sys.argv[1], ((),), lambda: False):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def token() -> str:
    return secrets.token_hex(6)


def test_a_slot_is_held_once_at_a_time(token):
    held: Counter[tuple[str, ...]] = Counter()
    most: Counter[tuple[str, ...]] = Counter()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(5):
            with hold_slot(token, (("0",), ("1",)), lambda: False) as gpus:
                with lock:
                    held[gpus] += 1
                    most[gpus] = max(most[gpus], held[gpus])
                time.sleep(0.002)
                with lock:
                    held[gpus] -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == {("0",): 1, ("1",): 1}


def test_other_executions_have_slots_of_their_own(token):
    with (
        hold_slot(token, ((),), lambda: False),
        hold_slot(token + "-other", ((),), lambda: False),
    ):
        pass


def test_a_stopped_run_waits_for_no_slot(token):
    with hold_slot(token, ((),), lambda: False), hold_slot(token, ((),), lambda: True):
        pass


def test_an_error_of_the_shard_is_its_own_and_frees_the_slot(token):
    with contextlib.suppress(KeyError), hold_slot(token, ((),), lambda: False):
        raise KeyError("mine")
    with hold_slot(token, ((),), lambda: False):
        pass


def test_a_process_that_is_killed_gives_its_slot_back(token):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, token], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        asked: list[int] = []

        def is_stopped() -> bool:
            asked.append(1)
            if len(asked) == 3:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            return False

        with hold_slot(token, ((),), is_stopped):
            assert len(asked) >= 3


def test_what_was_set_stays_where_nobody_asks_for_threads():
    assert thread_variables(1, {"OMP_NUM_THREADS": "8"})["POLARS_MAX_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in thread_variables(1, {"OMP_NUM_THREADS": "8"})
    assert thread_variables(4, {"OMP_NUM_THREADS": "8"})["OMP_NUM_THREADS"] == "4"


def test_no_gpus_hide_all():
    assert gpu_variables(()) == {"CUDA_VISIBLE_DEVICES": ""}
    assert gpu_variables(("1", "GPU-a")) == {"CUDA_VISIBLE_DEVICES": "1,GPU-a"}


def test_of_a_shared_gpu_libraries_take_their_part_but_for_what_was_said():
    shared = gpu_variables(("1",), 0.25, {})
    assert shared == {
        "CUDA_VISIBLE_DEVICES": "1",
        "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.2000",
        "CUPY_GPU_MEMORY_LIMIT": "20.00%",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2000",
    }
    said = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512", "CUPY_GPU_MEMORY_LIMIT": "1%"}
    assert gpu_variables(("1",), 0.25, said).keys() == {
        "CUDA_VISIBLE_DEVICES",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
    }
    assert without_gpu_caps(shared) == gpu_variables(("1",), 1, {}) == gpu_variables(("1",), 2, {})
