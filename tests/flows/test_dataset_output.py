"""Rows of a run as a version of a dataset: once, however often the flow is called."""

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.datasets.dataset import Dataset, list_datasets
from partwise.datasets.registration import register_dataset
from partwise.errors import InputError, OutputError
from partwise.flows import map_partitions
from partwise.publishing.dataset_output import DatasetOutput, register_output
from partwise.publishing.sql_output import Table
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tasks.publish_rows import publish_rows

ROWS = pa.table({"store": ["a", "b", "b", "c"], "x": [1, 2, 3, 4]})


def twice(data, context):
    return {"twice": 2 * data.to_numpy("x")}


def call(cluster, store, **arguments) -> Run:
    arguments = {"run_id": "doubled", "output": "dataset://twice", **arguments}
    return map_partitions(ROWS, "store", twice, store=store, cluster=cluster, **arguments)


@pytest.mark.slow
def test_rows_become_a_version_once(cluster, tmp_path) -> None:
    run = call(cluster, tmp_path)
    store = Store.parse(tmp_path)
    found = pa.Table.from_batches(Dataset.open("twice", 1, store).source().batches())
    assert sorted(found["twice"].to_pylist()) == [2, 4, 6, 8]
    assert run.counts == {"DONE": 3}
    again = call(cluster, tmp_path, on_existing_artifacts="resume")
    assert again.executed == 0
    assert [dataset.version for dataset in list_datasets(store)] == [1]
    call(cluster, tmp_path, on_existing_artifacts="overwrite")
    assert Dataset.open("twice", None, store).version == 2
    used = map_partitions(
        "dataset://twice@1", "store", twice_more, store=tmp_path, cluster=cluster, run_id="used"
    )
    assert sorted(used.predictions()["y"].to_pylist()) == [2, 4, 6, 8]
    call_of = used.read_generation_document().call or {}
    assert call_of.get("data", {}).get("paths") == ["dataset://twice@1"]


def none_of_them(data, context):
    return {"twice": data.to_numpy("x")[:0]}


def test_a_night_without_rows_makes_no_version_and_no_table(cluster, tmp_path) -> None:
    output = DatasetOutput("twice")
    run = map_partitions(
        ROWS, "store", none_of_them, run_id="none", store=tmp_path, cluster=cluster, output=output
    )
    assert run.counts == {"DONE": 3}
    said = publish_rows.fn(run, output)
    assert said == "no new version of dataset://twice, since there are no rows"
    assert list_datasets(run.store) == []
    with pytest.raises(InputError, match="has no rows to register"):
        register_output("twice", run)
    table = Table("twice", str(tmp_path / "out.db"))
    assert publish_rows.fn(run, table) == "no rows to append to twice"
    with closing(sqlite3.connect(table.uri)) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []


def twice_more(data, context):
    return {"y": data.to_numpy("twice")}


def test_a_dataset_that_cannot_be_written_leaves_the_run_complete(
    cluster, tmp_path, monkeypatch
) -> None:
    (tmp_path / "datasets").write_text("in the way")
    with pytest.raises(OutputError, match=r"'doubled' is complete \(SUCCESS\).*dataset://twice"):
        call(cluster, tmp_path)
    (tmp_path / "datasets").unlink()
    assert Run.open("doubled", tmp_path).counts == {"DONE": 3}
    assert call(cluster, tmp_path, on_existing_artifacts="resume").executed == 0
    assert Dataset.open("twice", 1, Store.parse(tmp_path)).rows == 4


@pytest.mark.parametrize(
    ("output", "match"),
    [("dataset://twice@3", "versions never change"), ("dataset://../x", "not a safe name")],
)
def test_what_names_no_dataset_is_refused(cluster, tmp_path, output, match) -> None:
    with pytest.raises(InputError, match=match):
        call(cluster, tmp_path, output=output)
    assert not (tmp_path / "runs").exists()


def test_a_connector_reads_a_dataset(tmp_path) -> None:
    register_dataset("sales", ROWS, store=tmp_path, exclude=["x"])
    register_dataset("sales", ROWS, store=tmp_path)
    assert DataConnector.from_dataset("sales", 1, tmp_path).column_names == ["store"]
    assert DataConnector.from_dataset("sales", store=tmp_path).to_arrow().equals(ROWS)
