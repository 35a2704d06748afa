"""Imports that are written anew, with all else of a file as it was."""

import json
import re
import resource

import pytest

from partwise.errors import InputError
from partwise.migration import imports
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
    # Python ends a line at each of these.
    "x = 1\r\r\n# two\rimport snowflake.snowpark as sp\r\nfrom os import path\n": (
        "x = 1\r\r\n# two\rimport partwise.compat.snowflake.snowpark as sp\r\nfrom os import path\n"
    ),
    "!pip install é\r%time\rfrom snowflake.ml.data import DataConnector\rfrom os import path\r": (
        "!pip install é\r%time\rfrom partwise.compat.snowflake.ml.data import DataConnector\r"
        "from os import path\r"
    ),
    "from \\\r\n  snowflake.ml.data import \\\r\n  DataConnector\r\n": (
        "from \\\r\n  partwise.compat.snowflake.ml.data import \\\r\n  DataConnector\r\n"
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


@pytest.mark.parametrize("name", ["a.py", "a.ipynb"])
def test_a_byte_order_mark_stays(name, tmp_path):
    path = tmp_path / name
    text = notebook(indent=1) if path.suffix == ".ipynb" else f"from {DPF} import entities\n"
    path.write_text(f"\ufeff{text}")
    assert write_imports(path)
    expected = text.replace("from snowflake", "from partwise.compat.snowflake", 1)
    assert path.read_text() == f"\ufeff{expected}"


def test_cells_that_do_not_change_stay_to_the_byte(tmp_path):
    path = tmp_path / "a.ipynb"
    other = {"cell_type": "code", "source": ["half = '\ud83d'\n", "a = 'x\u2028y'"]}
    content = json.loads(notebook())
    content["cells"].append(other)
    path.write_text(text := json.dumps(content))
    assert write_imports(path) == ["DataConnector"]
    expected = text.replace("from snowflake.ml", "from partwise.compat.snowflake.ml", 1)
    assert path.read_text() == expected


def test_a_source_that_would_import_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(imports, "_LINE_END", re.compile(b"\n"))
    source = "x = 1\rfrom snowflake.ml.data import DataConnector\nfrom os import path\n"
    with pytest.raises(InputError, match=r"DataConnector cannot be found .* by hand"):
        with_own_imports(source)


def test_a_notebook_of_another_layout_stays_as_it_is(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(text := notebook(separators=(" , ", ":")))
    with pytest.raises(InputError, match="open and save it there"):
        write_imports(path)
    assert path.read_text() == text


def test_a_file_stays_as_it_is_on_a_full_disk_and_keeps_its_mode_otherwise(tmp_path):
    path, link = tmp_path / "a.py", tmp_path / "link.py"
    path.write_text(text := f"from {DPF} import entities\n{'#' * 4000}\n")
    path.chmod(0o755)
    link.symlink_to(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match="File too large"):
            write_imports(link)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == text
    assert write_imports(link)
    assert path.read_text() == f"from partwise.compat.{text.removeprefix('from ')}"
    assert (path.stat().st_mode & 0o777, link.is_symlink()) == (0o755, True)
    assert {each.name for each in tmp_path.iterdir()} == {"a.py", "link.py"}
