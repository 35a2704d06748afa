"""Runs and datasets that earlier versions of the formats wrote, read whole."""

import json
import shutil
from pathlib import Path

import pytest

from partwise.datasets.dataset import Dataset
from partwise.runs.run import Run
from tests.chaos.conftest import Experiment
from tests.reference.write_reference import described, expected_of, predictions_of_models

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[1] / "reference"


def test_all_reference_runs_are_read(experiment: Experiment, tmp_path: Path) -> None:
    versions = sorted(path.parent for path in FOLDER.glob("v*/store"))
    tried, lost = 0, 0
    for version in versions:
        store = tmp_path / version.name
        shutil.copytree(version / "store", store)
        expected = json.loads((version / "expected.json").read_text())
        runs = expected["runs"]
        checks = [described(Run.open(run_id, store)) == runs[run_id] for run_id in runs]
        checks += [
            predictions_of_models(Run.open("train", store)) == expected["models"],
            Run.open("infer", store).predictions().to_pydict() == expected["predictions"],
            expected_of(Dataset.of("dataset://sales@1", str(store))) == expected["dataset"],
        ]
        tried += len(checks)
        lost += checks.count(False)
    names = ", ".join(version.name for version in versions)
    experiment.tell(
        "G17", tried=tried, lost=lost, what=f"runs, models, predictions, a dataset of {names}"
    )
