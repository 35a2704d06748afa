"""The contracts as a user meets them: in a project of its own, through `partwise.testing` only."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

OWN = """
import json
import uuid

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.store.store import Store
from partwise.testing import ExporterContract, SerdeContract, SourceContract, StoreContract


class JsonSerde:
    name = "json"
    filename = "numbers.json"

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 1

    def write(self, model, path):
        with open(path, "w") as file:
            json.dump(model, file)

    def read(self, path):
        with open(path) as file:
            return json.load(file)


class TestJsonSerde(SerdeContract):
    serde = JsonSerde()

    def model(self):
        return [1.5, 2.5]

    def predictions(self, model):
        return np.array(model) * 2


class TestExporter(ExporterContract):
    exporter = LightGBMOnnxExporter()
    form = "onnx"

    def rows(self):
        return pa.table({"x": np.arange(40.0), "z": np.arange(40.0) % 7})

    def model(self):
        matrix = np.column_stack([np.arange(40.0), np.arange(40.0) % 7])
        rows = lightgbm.Dataset(matrix, matrix.sum(axis=1), feature_name=["x", "z"])
        return lightgbm.train({"num_threads": 1, "verbosity": -1, "min_data_in_leaf": 3}, rows, 3)


class TestParquet(SourceContract):
    def data(self, table, folder):
        pq.write_table(table, folder / "x.parquet")
        return folder


class TestFolder(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return Store.parse(tmp_path / uuid.uuid4().hex)
"""
WRONG = {
    "serde": """
import numpy as np
from partwise.testing import SerdeContract


class Rounding:
    filename = "number.txt"

    def write(self, model, path):
        open(path, "w").write(f"{model:.1f}")

    def read(self, path):
        return float(open(path).read())


class TestRounding(SerdeContract):
    serde = Rounding()

    def model(self):
        return 0.25

    def predictions(self, model):
        return np.array([model, 2 * model])
""",
    "source": """
from partwise.testing import SourceContract


class TestOneRowLess(SourceContract):
    def data(self, table, folder):
        return table.slice(1)
""",
    "store": """
import pytest
from partwise.store.store import Store
from partwise.testing import StoreContract


class Replacing(Store):
    def create(self, path, data):
        self.write(path, data)


class TestReplacing(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return Replacing(url=str(tmp_path / "store"))
""",
}
FOUND = {
    "serde": "test_predictions_are_equal_to_the_last_bit",
    "source": "test_all_rows_come_in_their_order_with_the_schema_promised",
    "store": "test_creates_only_once",
}
CODE = "import sys; from partwise.testing import StoreContract; print(*sorted(sys.modules))"


def run_pytest(folder: Path, **contents: str) -> subprocess.CompletedProcess[str]:
    for name, content in contents.items():
        (folder / f"test_{name}.py").write_text(content)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_all_four_are_inherited_by_a_project_of_its_own(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, own=OWN)
    assert done.returncode == 0, done.stdout
    for name in ("failed", "error", "skipped"):
        assert name not in done.stdout.splitlines()[-1]


def test_what_breaks_a_promise_is_found(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, **WRONG)
    assert done.returncode == 1, done.stdout
    for kind, found in FOUND.items():
        failed = rf"^FAILED test_{kind}\.py::\w+::{found}\b"
        assert re.search(failed, done.stdout, re.MULTILINE), done.stdout


def test_one_contract_imports_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "partwise.testing.store" in modules
    assert not {"partwise.testing.exporter", "prefect", "onnxruntime", "lightgbm"} & set(modules)


def test_partwise_itself_needs_no_pytest() -> None:
    code = "import sys, partwise, partwise.runs.run; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_name_is_no_contract() -> None:
    import partwise.testing

    with pytest.raises(AttributeError, match="has no attribute 'TrainerContract'"):
        _ = partwise.testing.TrainerContract
