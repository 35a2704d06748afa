"""What releases of the formats before wrote is read by today's code, and their values are found.

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
from tests.reference.write_reference import described, expected_of, predictions_of_models

FOLDER = Path(__file__).parent
VERSIONS = ("v1", "v2", "v3", "v4")
VALUES: dict[str, Any] = json.loads((FOLDER / "v1" / "values.json").read_text())
VALUES_2: dict[str, Any] = json.loads((FOLDER / "v2" / "values.json").read_text())
"""Since canonical bytes keep the order of dicts: those of code and params are others than in v1."""
RUNS = ("train", "infer", "export")


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / version / "expected.json").read_text())
    return found


@pytest.fixture(scope="module")
def store(version: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy, as opening may not write but resuming does."""
    path = tmp_path_factory.mktemp(version) / "store"
    shutil.copytree(FOLDER / version / "store", path)
    return str(path)


def test_the_files_are_few(version: str) -> None:
    assert sum(path.stat().st_size for path in (FOLDER / version).rglob("*")) < 300_000


def test_each_is_of_its_own_version(version: str, store: str) -> None:
    number = int(version.removeprefix("v"))
    for run_id in RUNS:
        run = Run.open(run_id, store)
        documents = (run.document, run.read_generation_document(), run.summary)
        assert [document and document.format_version for document in documents] == [number] * 3


def test_runs_and_datasets_are_found(store: str) -> None:
    assert list_runs(Store.parse(store)) == sorted(RUNS)
    assert [dataset.reference for dataset in list_datasets(store)] == ["dataset://sales@1"]


@pytest.mark.parametrize("run_id", RUNS)
def test_a_run_is_read(expected: dict[str, Any], store: str, run_id: str) -> None:
    run = Run.open(run_id, store)
    assert described(run) == expected["runs"][run_id]
    assert run.status is RunStatus.SUCCESS
    assert run.summary is not None
    assert run.read_generation_document().call is not None


def test_the_store_as_it_lies_in_the_repository_is_read_without_a_copy(version: str) -> None:
    before = sorted((FOLDER / version).rglob("*"))
    run = Run.open("train", FOLDER / version / "store")
    assert run.counts == {"DONE": 3, "SKIPPED": 1}
    assert sorted((FOLDER / version).rglob("*")) == before


def test_models_predict_the_same(expected: dict[str, Any], store: str) -> None:
    assert predictions_of_models(Run.open("train", store)) == expected["models"]


def test_predictions_are_read(expected: dict[str, Any], store: str) -> None:
    assert Run.open("infer", store).predictions().to_pydict() == expected["predictions"]


def test_an_export_is_read_and_predicts_as_its_model(expected: dict[str, Any], store: str) -> None:
    export, train = Run.open("export", store), Run.open("train", store)
    signature = Signature.model_validate(export.artifact("north", SIGNATURE_FILE))
    assert signature.origin is not None
    assert signature.origin.training_run_id == "train"
    assert signature.origin.partition_id == train.partition_id("north")
    rows = sales().slice(0, 3).select(["day", "price"])
    found = export.model("north").predict(rows)
    assert found.tolist() == pytest.approx(expected["models"]["north"], rel=1e-5)


def test_a_dataset_is_read(expected: dict[str, Any], store: str) -> None:
    dataset = Dataset.of("dataset://sales@1", store)
    assert expected_of(dataset) == expected["dataset"]
    rows = dataset.source()
    assert rows.schema.names == sales().column_names
    assert [row for batch in rows.batches() for row in batch.to_pylist()] == sales().to_pylist()


def test_partition_ids_are_those_of_the_ledger(expected: dict[str, Any], store: str) -> None:
    run = Run.open("train", store)
    for row in expected["runs"]["train"]["partitions"]:
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


def test_nothing_else_is_stored(today: dict[str, Any], expected: dict[str, Any]) -> None:
    assert today == VALUES_2["values"]
    assert {**today, "plain": VALUES["values"]["plain"]} == VALUES["values"]
    assert {row["store"] for row in expected["runs"]["train"]["partitions"]} == set(KEYS)


def test_a_function_has_the_fingerprint_that_it_had() -> None:
    if python() not in VALUES_2["code"]:
        pytest.skip(f"each minor Python has instructions of its own, and {python()} is not stored")
    assert code() == VALUES_2["code"][python()]
    assert code() != VALUES["code"].get(python())


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(values()))
    return found
