"""Imports that are written anew, with all else of a file as it was."""

import json

import pytest

from partwise.errors import InputError
from partwise.migration.imports import with_own_imports, write_imports

DPF = "snowflake.ml.modeling.distributors.distributed_partition_function"
CHANGES = {
    f"from {DPF}.entities import RunStatus  # how it ends\n": (
        f"from partwise.compat.{DPF}.entities import RunStatus  # how it ends\n"
    ),
    f"if True:\n    from {DPF}.dpf_run import DPFRun as Run\n": (
        f"if True:\n    from partwise.compat.{DPF}.dpf_run import DPFRun as Run\n"
    ),
    f"from {DPF}.entities import (\n    # theirs\n    RunStatus as Status,\n    RunStatus,\n)\n": (
        f"from partwise.compat.{DPF}.entities import (\n"
        "    # theirs\n    RunStatus as Status,\n    RunStatus,\n)\n"
    ),
    "é = 1; from snowflake.ml.data import DataConnector; from re import sub\r\n": (
        "é = 1; from partwise.compat.snowflake.ml.data import DataConnector; from re import sub\r\n"
    ),
    "from snowflake.ml.modeling import tune\nimport snowflake.snowpark as sp\n": (
        "from partwise.compat.snowflake.ml.modeling import tune\n"
        "import partwise.compat.snowflake.snowpark as sp\n"
    ),
    "from azureml.core import Experiment, Workspace\n": (
        "from partwise.compat.azureml.core import Experiment, Workspace\n"
    ),
    # It imports what stays theirs as well.
    "from snowflake.ml.data import DataConnector, DataSource\n": None,
    "from snowflake.ml.registry import Registry\nfrom snowflake.snowpark import *\n": None,
    # A program says it as `snowflake.snowpark.Session`.
    "import snowflake.snowpark\n": None,
    "from . import snowflake\nimport numpy as np\n": None,
    "SELECT 1 FROM A\n": None,
}


@pytest.mark.parametrize("source", CHANGES)
def test_what_the_layer_has_is_imported_from_there_and_nothing_else_changes(source):
    expected = CHANGES[source] or source
    assert with_own_imports(source)[0] == expected
    assert with_own_imports(expected) == (expected, [])


def notebook(**layout) -> str:
    lines = ["!pip install é\n", "from snowflake.ml.data import DataConnector"]
    cells = [{"cell_type": "code", "source": lines}, {"cell_type": "markdown", "source": lines}]
    return json.dumps({"cells": cells, "nbformat": 4}, **layout) + "\n"


@pytest.mark.parametrize("layout", [{"indent": 1, "ensure_ascii": False}, {}])
def test_a_notebook_keeps_its_layout(layout, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(**layout))
    assert write_imports(path) == ["DataConnector"]
    expected = notebook(**layout).replace(
        "from snowflake.ml", "from partwise.compat.snowflake.ml", 1
    )
    assert path.read_text() == expected


def test_a_notebook_of_another_layout_stays_as_it_is(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(text := notebook(separators=(" , ", ":")))
    with pytest.raises(InputError, match="open and save it there"):
        write_imports(path)
    assert path.read_text() == text
