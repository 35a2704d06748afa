"""The notebook of examples/: run from its first cell to its last, as a reader does."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from partwise.outcomes import RunStatus
from partwise.runs.run import Run

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "first_models.ipynb"


def shown(cell: Any) -> str:
    """What a reader sees below a cell: lines and tables."""
    texts = [
        output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"]
        for output in cell.outputs
    ]
    return "\n".join(texts)


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow  # a kernel, and four runs with a cluster each
def test_the_notebook_runs_and_shows_its_runs(tmp_path, monkeypatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place)

    client.execute()

    _, train, look, compare, infer, fail = [
        shown(cell) for cell in notebook.cells if cell.cell_type == "code"
    ]
    assert "few-features" in train
    assert "<table" in train
    assert "8 DONE" in train
    # A line that follows the run and how it ended, and no line of the log for each shard.
    assert "few-features: 8 of 8 partitions" in train
    assert "How it ended" in train
    assert " shard " not in train
    assert "running without a Prefect server" not in train
    assert "off by" in look
    assert "50 trees" in look
    assert "of 8 stores" in compare
    assert "prediction" in infer
    assert "PARTIAL_FAILURE" in fail
    assert "rows are not enough" in fail


CELLS = [
    """
import os, time
open("kernel", "w").write(str(os.getpgid(0)))
import pyarrow as pa
from partwise import LocalCluster, map_partitions

class Nap:
    seconds = 0.2

def nap(data, context):
    time.sleep(Nap.seconds)
    return {"key": context.key}

rows = pa.table({"key": list(range(20))})
given = {"store": "store", "cluster": LocalCluster(workers=1)}
""",
    'work = map_partitions.start(rows, "key", nap, run_id="started", **given)\nwork',
    # The line's last state may come just after the end; nbclient drops what is between cells.
    "work.wait(); time.sleep(1); work.status.value",
    """
try:
    map_partitions(rows, "key", nap, run_id="called", **given)
except BaseException as error:
    print(type(error).__name__, error)
""",
]


@pytest.mark.slow  # a kernel, and two runs with a cluster each
def test_a_notebook_follows_a_run_and_interrupts_one(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    place = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place)

    def interrupt_later() -> None:
        while not list(tmp_path.glob("store/runs/called/ledger/*")):
            time.sleep(0.1)
        # As Jupyter does it: to all processes of the kernel's group.
        os.killpg(int((tmp_path / "kernel").read_text()), signal.SIGINT)

    presser = threading.Thread(target=interrupt_later, daemon=True)
    presser.start()
    client.execute()

    _, live, waited, called = [shown(cell) for cell in notebook.cells]
    # The line is the one that stood there last: it ended with the run.
    assert live == "started: SUCCESS"
    assert "SUCCESS" in waited
    assert "RunCancelledError" in called
    store = tmp_path / "store"
    assert Run.open("started", store).counts == {"DONE": 20}
    assert Run.open("called", store).status is RunStatus.CANCELLED
