"""A training run of a script, its processes, and what it left in its store."""

import hashlib
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import RunNotFoundError
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import key_bytes, key_columns, partition_seed
from tests.chaos.script import model_of

SCRIPT = Path(__file__).with_name("script.py")
MARK = "CHAOS_TRAINING"
ROWS = 12
"""Of each partition."""


def rows_of(partitions: int) -> pa.Table:
    """Return the rows of so many partitions."""
    keys = np.repeat(np.arange(partitions), ROWS)
    x = np.random.default_rng(0).normal(size=len(keys))
    return pa.table({"key": keys, "x": x, "y": x * keys})


def expected_digest(partitions: int) -> str:
    """Return the hash of all models as a loop makes them, without any run."""
    rows, digest = rows_of(partitions), hashlib.sha256()
    columns = key_columns(rows.schema, ["key"])
    for key in range(partitions):
        own = rows.slice(key * ROWS, ROWS)
        seed = partition_seed(0, key_bytes(key, columns))
        model = model_of(own["x"].to_numpy(), own["y"].to_numpy(), seed)
        digest.update(model.model_to_string().encode())
    return digest.hexdigest()


class Training:
    """A run that may be started, killed and started again.

    Args:
        folder: An empty folder of its own.
        run_id: Of the run.
        partitions: How many models it trains.
    """

    def __init__(self, folder: Path, run_id: str, partitions: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.run_id, self.partitions = folder, run_id, partitions
        self.mark = uuid.uuid4().hex
        pq.write_table(rows_of(partitions), folder / "rows.parquet")

    def start(
        self, *, address: str = "", nap_s: float = 0.02, **environment: str
    ) -> subprocess.Popen[str]:
        """Start or resume the run, on a cluster of its own or the one at an address."""
        return subprocess.Popen(
            [
                *(sys.executable, str(SCRIPT), str(self.folder / "rows.parquet")),
                *(str(self.folder / "store"), self.run_id, address),
            ],
            env=os.environ
            | {
                MARK: self.mark,
                "CHAOS_CALLS": str(self.folder / "calls"),
                "CHAOS_NAP_S": str(nap_s),
            }
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
        )

    def finish(self, **options: float) -> None:
        """Start or resume the run, and wait for its end."""
        process = self.start(**options)  # type: ignore[arg-type]
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output

    @property
    def calls(self) -> Counter[str]:
        """How often the function was called for each key, as it wrote down itself."""
        path = self.folder / "calls"
        return Counter(path.read_text().split() if path.exists() else ())

    @property
    def run(self) -> Run:
        """The run."""
        return Run.open(self.run_id, self.folder / "store")

    def committed(self) -> set[str]:
        """Return the keys whose models a resume has to keep."""
        try:
            rows = self.run.newest.partitions
        except RunNotFoundError:
            return set()
        status = rows["status"].to_pylist()
        return {
            str(key)
            for key, one in zip(rows["key"].to_pylist(), status, strict=True)
            if one == "DONE"
        }

    def digest(self) -> str:
        """Return a hash of all models, and see that each partition is there exactly once."""
        run = self.run
        assert run.status is RunStatus.SUCCESS, run
        keys = run.partitions["key"].to_pylist()
        assert keys == list(range(self.partitions))
        digest = hashlib.sha256()
        for key in keys:
            digest.update(run.model(key).model_to_string().encode())
        return digest.hexdigest()

    def processes(self) -> list[psutil.Process]:
        """Return all processes that the script has started, and their children."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def kill_family(process: subprocess.Popen[str]) -> None:
    """Kill a process with -9 and wait for it; what it has started has to end by itself."""
    process.kill()
    process.communicate()


def wait_for(condition: Callable[[], bool], timeout_s: float = 240) -> bool:
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
