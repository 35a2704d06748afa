"""The notebook of examples/: run from its first cell to its last, as a reader does."""

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

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
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
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
    assert "off by" in look
    assert "50 trees" in look
    assert "of 8 stores" in compare
    assert "prediction" in infer
    assert "PARTIAL_FAILURE" in fail
    assert "rows are not enough" in fail
