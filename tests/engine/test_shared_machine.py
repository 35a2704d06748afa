"""Shards share a machine, and one that asks for it has it alone."""

import secrets
import subprocess
import sys
import threading
import time

from partwise.engine.worker.machine_slots import SharedMachine

HOLDER = """
import sys, time
from partwise.engine.worker.machine_slots import SharedMachine
with SharedMachine(sys.argv[1], lambda: False):
    print("here", flush=True)
    time.sleep(60)
"""


def test_of_many_shards_one_at_a_time_is_alone() -> None:
    """Threads enter, leave and ask by chance; a count shows whoever is not alone."""
    token = secrets.token_hex(6)
    guard = threading.Lock()
    here: list[str] = []
    seen: list[list[str]] = []

    def work(number: int) -> None:
        with SharedMachine(token, lambda: False) as machine:
            with guard:
                here.append("beside")
            time.sleep(0.01 * (number % 3))
            with guard:
                here.remove("beside")
            if number % 2:
                with machine.alone():
                    with guard:
                        here.append("alone")
                        seen.append(list(here))
                    time.sleep(0.01)
                    with guard:
                        seen.append(list(here))
                        here.remove("alone")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [["alone"]] * 12


def test_whoever_is_killed_is_no_longer_there_and_other_runs_do_not_count() -> None:
    token = secrets.token_hex(6)
    words = [sys.executable, "-c", HOLDER, token]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"
        asked: list[bool] = []

        def is_stopped() -> bool:
            asked.append(True)
            if len(asked) == 4:
                process.kill()
                process.wait()
            return False

        with SharedMachine(f"{token}-other", is_stopped) as other, other.alone():
            assert len(asked) < 4
        asked.clear()
        with SharedMachine(token, is_stopped) as machine, machine.alone():
            assert len(asked) >= 4


def test_a_stopped_run_waits_for_nobody() -> None:
    token = secrets.token_hex(6)
    with (
        SharedMachine(token, lambda: False),
        SharedMachine(token, lambda: True) as stopped,
        stopped.alone(),
        SharedMachine(token, lambda: True),
    ):
        pass
