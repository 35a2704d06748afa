"""Inference by the champions of a catalog: of many runs, as they stood when they were promoted."""

import logging

import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.commit import commit_version
from partwise.catalogs.documents import Origin
from partwise.catalogs.rows import champions_of, replaced
from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    CatalogNotFoundError,
    InputError,
    KeyClassError,
    PartitionNotFoundError,
)
from partwise.flows import run_inference, train_models
from partwise.publishing.mlflow_model import CatalogModel
from partwise.runs.documents import run_path
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.store.store import Store
from partwise.trainers import Mean

KEYS = ["a", "b", "c", "d"]
CATALOG = "catalog://sales"


def rows_of(keys: list[str], y: float = 0.0) -> pa.Table:
    return pa.table({"key": keys, "row": range(len(keys)), "y": [y] * len(keys)})


@pytest.fixture
def train(local_store: Store, cluster):
    def train(run_id: str, keys: list[str], y: float, n_shards: int = 3) -> Run:
        return train_models(
            rows_of(keys, y), "key", Mean(label="y"), run_id=run_id, store=local_store.url,
            cluster=cluster, on_existing_artifacts="overwrite",
            execution=ExecutionOptions(n_shards=n_shards),
        )  # fmt: skip

    return train


@pytest.fixture
def infer(local_store: Store, cluster):
    def infer(rows: pa.Table | None = None, **changes) -> Run:
        given = {
            "models": CATALOG, "run_id": "infer", "execution": ExecutionOptions(max_retries=0),
            "store": local_store.url, "cluster": cluster, "keep_columns": ["row"],
            "on_existing_artifacts": "resume", "on_missing_model": "skip",
        }  # fmt: skip
        return run_inference(rows_of(KEYS) if rows is None else rows, "key", **given | changes)

    return infer


def promote(run: Run, base: Catalog | None = None) -> Catalog:
    champions = champions_of(run)
    rows = champions if base is None else replaced(base.table, champions)
    origin = Origin(action="promote", rule={"run": run.run_id})
    return commit_version(run.store, "sales", base=base, champions=rows, origin=origin)


def answers(run: Run) -> list[tuple[object, ...]]:
    rows = run.predictions().sort_by("row")
    names = ("key", "prediction", "model_run", "model_key", "model_level")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def test_each_key_is_inferred_by_the_run_that_its_champion_is_of(train, infer) -> None:
    first = promote(train("one", KEYS[:3], 1.0, n_shards=7))
    second = promote(train("two", ["b"], 2.0, n_shards=2), first)
    run = infer()
    assert answers(run) == [
        ("a", 1.0, "one", "a", 0),
        ("b", 2.0, "two", "b", 0),
        ("c", 1.0, "one", "c", 0),
    ]
    assert run.document.models == (CATALOG,)
    call = run.read_generation_document().call_known
    assert call is not None
    assert call["arguments"]["models"] == second.reference
    # As MLflow asks for it: by row, or all rows by one.
    model = CatalogModel(second)
    assert model.predict(rows_of(["c", "b", "a", "b"])).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert model.predict({"y": [0.0, 0.0]}, {"key": "b"}).tolist() == [2.0, 2.0]
    with pytest.raises(InputError, match="lack the key column 'key'"):
        model.predict({"y": [0.0]})
    with pytest.raises(PartitionNotFoundError):
        model.predict(rows_of(["nowhere"]))
    for key, value, run_id, _, _ in answers(run):
        assert Run.open(run_id, run.store).model(key).predict(rows_of([key]))[0] == value


def test_a_resume_goes_on_with_its_version_until_another_one_is_named(train, infer, caplog) -> None:
    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    first = promote(train("one", KEYS, 1.0))
    infer()
    promote(train("two", ["b"], 2.0), first)
    assert "is there" not in caplog.text
    kept = infer()
    assert "goes on with catalog://sales@1, and catalog://sales@2 is there" in caplog.text
    assert (kept.executed, [row[1] for row in answers(kept)]) == (0, [1.0] * 4)
    named = infer(models="catalog://sales@2")
    assert (named.executed, [row[1] for row in answers(named)]) == (1, [1.0, 2.0, 1.0, 1.0])


def test_champions_outlive_that_their_run_is_overwritten_and_tidied_up(
    train, infer, local_store
) -> None:
    promote(train("one", KEYS, 1.0))
    train("one", KEYS, 9.0)
    collect_garbage(local_store, "one", dry_run=False, grace_hours=0)
    assert [row[1] for row in answers(infer())] == [1.0] * 4


def test_a_retired_key_is_answered_by_the_next_level(train, infer) -> None:
    promote(train("one", KEYS, 1.0)).retire(["c"])
    run = infer(fallback=[-1])
    assert [row[1] for row in answers(run)] == [1.0, 1.0, -1.0, 1.0]
    assert run.document.models == (CATALOG,)


def test_keys_of_another_class_and_versions_that_are_not_there_are_refused(
    train, infer, local_store
) -> None:
    promote(train("one", KEYS, 1.0))
    numbers = pa.table({"key": [1, 2], "row": [0, 1]})
    with pytest.raises(KeyClassError, match="the catalog 'sales@1'"):
        infer(numbers)
    with pytest.raises(CatalogNotFoundError, match="1"):
        infer(models="catalog://sales@3")
    with pytest.raises(InputError, match="a catalog has models as they were trained"):
        infer(format="pt2")
    assert not local_store.exists(run_path("infer", "run.json"))


def test_files_are_read_with_the_values_that_a_training_has_read(
    train, infer, local_store, tmp_path, cluster
) -> None:
    """A decimal comma that is forgotten makes 4057 of 4,057."""
    path = tmp_path / "sales.csv"
    path.write_text("key;row;y\na;0;4,057\nb;1;2,5\n")
    files = Files(str(path), csv=CsvOptions(decimal=",", thousands="."))
    run = train_models(
        files, "key", Mean(label="y"), run_id="texts", store=local_store.url, cluster=cluster
    )
    promote(run)
    path.write_text("key;row;y\na;0;4.057\nb;1;2,5\n")
    found = infer(str(path), keep_columns=["row", "y"])
    assert found.predictions().sort_by("row")["y"].to_pylist() == [4057.0, 2.5]
