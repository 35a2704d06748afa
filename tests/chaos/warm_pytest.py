"""A process that has imported other people's modules, and forks one run of pytest after the other.

To import them takes a run three times as long as its test. `partwise` and the tests are imported by
each run again, so that a run sees the code as it stands on the disk. Forks are safe since nothing
here has started a thread of Python.

A line of standard input has the words for a run as JSON, and the answer the code that it returned
and what it printed.
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import threading

import pytest
from _pytest.config import default_plugins

# First, since libraries read the environment that it makes.
from tests import conftest

MODULES = (
    *("numpy", "pandas", "pyarrow.dataset", "pyarrow.parquet"),
    # Not Prefect: two of the tests need it, and it delays each run that finds it there.
    *("distributed", "pydantic.main", "pydantic.networks", "pydantic.type_adapter"),
    # What pytest would import and rewrite at the beginning of each run.
    *("_hypothesis_pytestplugin", "anyio.pytest_plugin", "platformdirs.pytest_plugin"),
    *("pytest_timeout", "xdist.plugin", "xdist.looponfail"),
    *(f"_pytest.{name}" for name in default_plugins),
)
TIME_LIMIT_S = 300


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1
    assert "partwise" not in sys.modules
    # pytest collects garbage several times: not among these modules.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output:
            if not (pid := os.fork()):
                run(json.loads(line), output.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            output.seek(0)
            print(json.dumps([code, output.read()]), flush=True)


def run(words: list[str], output: int) -> None:
    """Run pytest in a process that was forked for it, and end it."""
    signal.alarm(TIME_LIMIT_S)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The run before has removed it.
    conftest.TEMP_DIR.mkdir(exist_ok=True)
    sys.exit(pytest.main(words))


if __name__ == "__main__":
    main()
