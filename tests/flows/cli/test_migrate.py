"""`partwise migrate`: what it prints of programs, and the code it ends with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from partwise.flows.cli.main import main

SCRIPT = """\
from snowflake.ml.data import DataConnector
from snowflake.ml.registry import Registry

def fit(data: DataConnector, other: DataConnector):
    return Registry
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "source": "SELECT 1 FROM A"},
        {"cell_type": "code", "source": "from mmf_sa import run_forecast as f\n\nf(freq='D')"},
    ]
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fit.py").write_text(SCRIPT)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.ipynb").write_text(json.dumps(NOTEBOOK))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "not_looked_at.py").write_text(SCRIPT)
    return tmp_path


def test_each_use_has_its_place_and_what_to_write(folder, capsys):
    assert main(["migrate", str(folder)]) == 1
    lines = [line.removeprefix(f"{folder}/") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "fit.py:4: DataConnector: same: DataConnector"
    assert lines[1] == "fit.py:4: DataConnector: same"
    assert lines[2].startswith("fit.py:5: Registry: none: run.model(key) finds a model")
    assert lines[3].startswith("sub/a.ipynb: cell 2:3: run_forecast: differs: train_models(data=")
    assert lines[4].startswith("sub/a.ipynb: cell 2:3: run_forecast(freq=): differs: the horizon")
    assert lines[5] == "sub/a.ipynb: cell 1: passed over, as it is no Python"
    assert lines[6] == (
        "2 programs, 5 uses of another system's names: 2 same, 2 differs, 1 none; "
        "1 cell passed over"
    )


def test_a_folder_is_gone_through_although_a_file_of_it_cannot_be(folder, capsys):
    (folder / "b.ipynb").write_text("[]")
    (folder / "deep.py").write_text(f"import ray\nray.init({'+'.join(['a'] * 2000)})")
    assert main(["migrate", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "4 programs, 5 uses" in out
    assert "3 cells passed over" in out
    assert "b.ipynb is passed over. " in err
    assert "deep.py is passed over. It is nested too deeply" in err


def test_imports_are_written_where_it_is_asked_for(folder, capsys):
    assert main(["migrate", str(folder / "sub"), "--write"]) == 0
    assert main(["migrate", str(folder), "--write"]) == 1
    assert (
        capsys.readouterr().err
        == f"{folder}/fit.py: imports from partwise.compat now: DataConnector\n"
    )
    assert (folder / "fit.py").read_text() == SCRIPT.replace(
        "snowflake.ml.data", "partwise.compat.snowflake.ml.data"
    )


def test_an_import_that_stays_although_a_part_of_it_is_there_is_named(tmp_path, capsys):
    """What runs as it is is not there, where its import is of the other system still."""
    (tmp_path / "a.py").write_text(
        "from azureml.core import Dataset, Run, Workspace\n"
        "import snowflake.snowpark\n"
        "from snowflake.snowpark import *\n"
        "from snowflake.ml.registry import Registry\n"
        "from azureml.core import Environment\n"
        "Run.get_context()\n"
    )
    assert main(["migrate", str(tmp_path), "--write"]) == 0
    out, err = capsys.readouterr()
    assert [line.removeprefix(f"{tmp_path}/") for line in err.splitlines()] == [
        "a.py: imports from partwise.compat now: Environment",
        ("a.py:1: this import stays: have an import of their own for Dataset, and run this again."),
        (
            "a.py:2: this import stays: write it alone, as import snowflake.snowpark as NAME, "
            "and run this again."
        ),
        "a.py:3: this import stays: name what it imports, in place of *, and run this again.",
    ]
    assert out.endswith("run as they are by partwise.compat\n")


def test_a_folder_is_written_although_a_file_of_it_cannot_be(folder, capsys, monkeypatch):
    (folder / "a.py").write_text(SCRIPT)
    write_bytes = Path.write_bytes

    def refuse_one(path, content):
        if "a.py" in path.name:
            raise PermissionError(13, "Permission denied")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", refuse_one)
    (folder / "deep.ipynb").write_text("[" * 100_000)
    assert main(["migrate", str(folder), "--write"]) == 1
    told = capsys.readouterr().err
    assert "a.py stays as it is. It cannot be read or written: PermissionError" in told
    assert "deep.ipynb is passed over. " in told
    assert "fit.py: imports from partwise.compat now: DataConnector" in told


def test_for_programs_it_prints_json_and_starts_without_what_runs_need(folder):
    code = (
        "import sys; from partwise.flows.cli.main import main; main(sys.argv[1:]);"
        "print(*{'pyarrow', 'dask', 'distributed', 'prefect', 'pandas'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, "migrate", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    *objects, loaded = done.stdout.splitlines()
    assert loaded == ""
    uses = [json.loads(line) for line in objects]
    assert uses[0] == {
        "file": str(folder / "fit.py"),
        "cell": None,
        "line": 4,
        "column": 14,
        "name": "DataConnector",
        "verdict": "same",
        "here": "DataConnector",
        "kept": True,
        "text": "DataConnector",
    }
    assert uses[-2] == {"file": str(folder / "sub" / "a.ipynb"), "cell": 1, "passed_over": True}
    assert uses[-1]["uses"] == {
        "same": 2,
        "other name": 0,
        "differs": 2,
        "needs the session": 0,
        "none": 1,
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty/a.txt", "", "There is no script"),
        ("a.ipynb", "[]", "a.ipynb cannot be read: TypeError"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, name, content, message, capsys):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    assert main(["migrate", str(path if path.suffix == ".ipynb" else path.parent)]) == 2
    assert message in capsys.readouterr().err
