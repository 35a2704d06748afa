"""Functions with packages of their own: before the workers' packages, and part of what a resume
compares."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from partwise import (
    Environment,
    EnvironmentBuildError,
    PackageError,
    PickleSerde,
    Result,
    Run,
    RunFailed,
    map_partitions,
    run_inference,
    train_models,
)
from partwise.environments.cache import environments_folder
from tests.environments.wheels import make_wheel

ROWS = pa.table({"key": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]})


@pytest.fixture
def wheels(tmp_path) -> Path:
    folder = tmp_path / "wheels"
    make_wheel(folder, "shop", "1.0", "def main():\n    print('open')\n", script="shop")
    make_wheel(folder, "shop", "2.0", "def main():\n    print('open')\n", script="shop")
    return folder


@pytest.fixture
def call(tmp_path, wheels, cluster):
    def map_rows(function, *packages, **options):
        asked = Environment(packages=packages, find_links=(str(wheels),), no_index=True)
        options = {"run_id": "run", "cluster": cluster, "store": tmp_path / "store"} | options
        return map_partitions(ROWS, "key", function, environment=asked, **options)

    return map_rows


def look(data, context):
    """Tell which packages a partition has."""
    import shop

    program = subprocess.run(["shop"], capture_output=True, text=True).stdout.strip()
    import numpy

    return pa.table(
        {
            "shop": [shop.__version__],
            "program": [program],
            "numpy": [numpy.__version__],
            "place": [shop.__file__],
            "pid": [os.getpid()],
        }
    )


def test_a_function_has_its_packages_before_those_of_the_workers(call, tmp_path) -> None:
    run = call(look, "shop")
    rows = run.predictions().to_pylist()
    assert {(row["shop"], row["program"]) for row in rows} == {("2.0", "open")}
    assert rows[0]["place"].startswith(str(environments_folder()))
    assert run.read_generation_document().environment["shop"].startswith("2.0 (")
