"""Imports that are written anew, with all else of a file as it was."""

import json

import pytest

from partwise.errors import InputError
from partwise.migration.imports import with_own_imports, write_imports
from partwise.migration.names import known_names

DPF = "snowflake.ml.modeling.distributors.distributed_partition_function"
CHANGES = {
    f"from {DPF}.entities import RunStatus  # how it ends\n": (
        "from partwise import RunStatus  # how it ends\n"
    ),
    f"if True:\n    from {DPF}.dpf_run import DPFRun\n": None,
    f"from {DPF}.entities import (\n    # theirs\n    RunStatus as Status,\n    RunStatus,\n)\n": (
        "from partwise import (\n    # theirs\n    RunStatus as Status,\n    RunStatus,\n)\n"
    ),
    "é = 1; from snowflake.ml.data import DataConnector; from re import sub\r\n": (
        "é = 1; from partwise import DataConnector; from re import sub\r\n"
    ),
    # It imports what stays theirs as well.
    "from snowflake.ml.data import DataConnector, DataSource\n": None,
    "SELECT 1 FROM A\n": None,
}


@pytest.mark.parametrize("source", CHANGES)
def test_only_what_is_the_same_is_imported_from_partwise(source):
    expected = CHANGES[source] or source
    assert with_own_imports(source, known_names())[0] == expected
    assert with_own_imports(expected, known_names()) == (expected, [])


def notebook(**layout) -> str:
    lines = ["!pip install é\n", "from snowflake.ml.data import DataConnector"]
    cells = [{"cell_type": "code", "source": lines}, {"cell_type": "markdown", "source": lines}]
    return json.dumps({"cells": cells, "nbformat": 4}, **layout) + "\n"


@pytest.mark.parametrize("layout", [{"indent": 1, "ensure_ascii": False}, {}])
def test_a_notebook_keeps_its_layout(layout, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(**layout))
    assert write_imports(path, known_names()) == ["DataConnector"]
    expected = notebook(**layout).replace(
        "from snowflake.ml.data import", "from partwise import", 1
    )
    assert path.read_text() == expected


def test_a_notebook_of_another_layout_stays_as_it_is(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(text := notebook(separators=(" , ", ":")))
    with pytest.raises(InputError, match="open and save it there"):
        write_imports(path, known_names())
    assert path.read_text() == text
