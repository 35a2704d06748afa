"""What the first release of the formats wrote is read by today's code, and its values are found.

A failure here says that a format or a hash changed: CONTRIBUTING.md says what to do then.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from partwise.datasets.dataset import Dataset, list_datasets
from partwise.models.signature import SIGNATURE_FILE, Signature
from partwise.outcomes import RunStatus
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import partition_id
from tests.reference.functions import KEYS, sales
from tests.reference.values import COLUMNS, NESTED, PLAIN, code, python, values
from tests.reference.write_v1 import described, expected_of, predictions_of_models

V1 = Path(__file__).parent / "v1"
EXPECTED: dict[str, Any] = json.loads((V1 / "expected.json").read_text())
VALUES: dict[str, Any] = json.loads((V1 / "values.json").read_text())
VALUES_2: dict[str, Any] = json.loads((V1.parent / "v2" / "values.json").read_text())
"""Since canonical bytes keep the order of dicts: those of code and params are others than in v1."""
RUNS = ("train", "infer", "export")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy, as opening may not write but resuming does."""
    path = tmp_path_factory.mktemp("v1") / "store"
    shutil.copytree(V1 / "store", path)
    return str(path)


def test_the_files_are_few() -> None:
    assert sum(path.stat().st_size for path in V1.rglob("*")) < 300_000


def test_runs_and_datasets_are_found(store: str) -> None:
    assert list_runs(Store.parse(store)) == sorted(RUNS)
    assert [dataset.reference for dataset in list_datasets(store)] == ["dataset://sales@1"]


@pytest.mark.parametrize("run_id", RUNS)
def test_a_run_is_read(store: str, run_id: str) -> None:
    run = Run.open(run_id, store)
    assert described(run) == EXPECTED["runs"][run_id]
    assert run.status is RunStatus.SUCCESS
    assert run.summary is not None
    assert run.read_generation_document().call is not None


def test_the_store_as_it_lies_in_the_repository_is_read_without_a_copy() -> None:
    before = sorted(V1.rglob("*"))
    assert Run.open("train", V1 / "store").counts == {"DONE": 3, "SKIPPED": 1}
    assert sorted(V1.rglob("*")) == before


def test_models_predict_the_same(store: str) -> None:
    assert predictions_of_models(Run.open("train", store)) == EXPECTED["models"]


def test_predictions_are_read(store: str) -> None:
    assert Run.open("infer", store).predictions().to_pydict() == EXPECTED["predictions"]


def test_an_export_is_read_and_predicts_as_its_model(store: str) -> None:
    export, train = Run.open("export", store), Run.open("train", store)
    content = export.artifact("north", SIGNATURE_FILE)
    signature = Signature.model_validate_json(content)
    assert signature.origin is not None
    assert signature.origin.training_run_id == "train"
    assert signature.origin.partition_id == train.partition_id("north")
    rows = sales().slice(0, 3).select(["day", "price"])
    found = export.model("north").predict(rows)
    assert found.tolist() == pytest.approx(EXPECTED["models"]["north"], rel=1e-5)


def test_a_dataset_is_read(store: str) -> None:
    dataset = Dataset.of("dataset://sales@1", store)
    assert expected_of(dataset) == EXPECTED["dataset"]
    rows = dataset.source()
    assert rows.schema.names == sales().column_names
    assert [row for batch in rows.batches() for row in batch.to_pylist()] == sales().to_pylist()


def test_partition_ids_are_those_of_the_ledger(store: str) -> None:
    run = Run.open("train", store)
    for row in EXPECTED["runs"]["train"]["partitions"]:
        assert partition_id(row["store"], run.key_columns) == row["partition_id"]


@pytest.mark.parametrize("name", COLUMNS)
def test_keys_have_the_hashes_ids_and_seeds_that_they_had(today: dict[str, Any], name: str) -> None:
    assert today["keys"][name] == VALUES["values"]["keys"][name]


@pytest.mark.parametrize("name", [*COLUMNS, *NESTED])
def test_rows_have_the_fingerprints_that_they_had(today: dict[str, Any], name: str) -> None:
    assert today["rows"][name] == VALUES["values"]["rows"][name]


@pytest.mark.parametrize("name", PLAIN)
def test_values_have_the_canonical_bytes_that_they_had(today: dict[str, Any], name: str) -> None:
    assert today["plain"][name] == VALUES_2["values"]["plain"][name]


def test_nothing_else_is_stored(today: dict[str, Any]) -> None:
    assert today == VALUES_2["values"]
    assert {**today, "plain": VALUES["values"]["plain"]} == VALUES["values"]
    assert {row["store"] for row in EXPECTED["runs"]["train"]["partitions"]} == set(KEYS)


def test_a_function_has_the_fingerprint_that_it_had() -> None:
    if python() not in VALUES_2["code"]:
        pytest.skip(f"each minor Python has instructions of its own, and {python()} is not stored")
    assert code() == VALUES_2["code"][python()]
    assert code() != VALUES["code"].get(python())


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values()))
    return found
