"""Versions of catalogs in MLflow: what is shown of them, and that it is shown once."""

import io
import json
import logging
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from partwise import Catalog, LocalCluster, Mean, train_models
from partwise.catalogs.rules import Everything
from partwise.errors import InputError, OutputError
from partwise.flows import promote_models
from partwise.flows.cli.main import main
from partwise.publishing import mlflow_view
from partwise.publishing.mlflow_model import CatalogModel, address_of
from partwise.publishing.mlflow_view import (
    champion_rows,
    check_mlflow,
    figures_of,
    show_in_mlflow,
    worst_rows,
)
from partwise.store.store import Store
from partwise.tables.keys.key_classes import KeyClass, KeyColumn
from tests.lazily import Lazily
from tests.one_catalog import promote, train, train_and_promote
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

mlflow = Lazily("mlflow")
NOWHERE = "http://127.0.0.1:1"


def test_a_version_in_numbers_and_rows(local_store) -> None:
    first = train_and_promote(
        local_store, "first", {f"shop-{number:03}": float(number) for number in range(100)}
    )
    train(local_store, "second", {"shop-001": 500.0, "new, one": 7.0})
    second = promote(local_store, "second", base=first).retire(["shop-002"])
    figures = figures_of(second)
    assert (figures["keys"], figures["retired"], figures["new_in_this_version"]) == (101, 1, 1)
    assert figures["value/median"] == 50.5
    assert figures["value/p05"] < figures["value/mean"] < figures["value/p95"]
    assert not any("quantile" in name or "margin" in name for name in figures)
    rows = champion_rows(second.table)
    assert rows.column_names[:3] == ["key", "key.key", "partition_id"]
    assert rows.num_rows == 101
    (row,) = rows.filter(pa.compute.equal(rows["key"], "new, one")).to_pylist()
    assert (row["run_id"], row["metrics.value"], row["retired"]) == ("second", 7.0, False)
    written = io.BytesIO()
    pa.csv.write_csv(rows, written)
    assert pa.csv.read_csv(io.BytesIO(written.getvalue())).num_rows == 101
    worst = worst_rows(second, rows)
    assert worst.num_rows == 20
    assert worst["key"].to_pylist()[:3] == ["shop-001", "shop-099", "shop-098"]
    assert json.loads(address_of(second))["catalog"] == "sales@3"


def test_names_of_metrics_are_those_that_mlflow_takes() -> None:
    assert mlflow_view._safe("pinball:0.9 (ä)") == "pinball_0.9 _ä_"


@dataclass
class Adding:
    """Adds to x; a model that says what it takes."""

    added: float
    signature: str = "x"

    def predict(self, rows: pa.Table) -> np.ndarray:
        if not rows.num_rows:
            raise ValueError("Found array with 0 sample(s)")
        return rows["x"].to_numpy() + self.added


@dataclass
class ByShop:
    """What the registered model asks of a catalog; the model of "b" adds 20."""

    key_columns: tuple[Any, ...] = (KeyColumn(name="shop", key_class=KeyClass.STRING),)

    def model(self, key: object) -> Adding:
        return Adding(20.0 if key in ("b", ("b",)) else 10.0)

    def categories(self, key: object) -> None:
        del key


def test_predictions_have_the_index_of_the_frame() -> None:
    model = CatalogModel(cast("Catalog", ByShop()))
    frame = pd.DataFrame({"shop": ["a", "b", "a", "b"], "x": [1.0, 2.0, 3.0, 4.0]})
    rows = frame.iloc[[3, 2, 0, 1]].copy()
    rows["p"] = model.predict(rows)
    assert rows["p"].to_dict() == {3: 24.0, 2: 13.0, 0: 11.0, 1: 22.0}
    some = frame[frame["shop"] == "b"].copy()
    some["p"] = model.predict(some, {"key": "b"})
    assert some["p"].to_dict() == {1: 22.0, 3: 24.0}
    named = frame.assign(day=[7, 7, 8, 8]).set_index("day")
    assert model.predict(named).index.tolist() == [7, 7, 8, 8]
    for dtype in (pl.String, pl.Categorical):
        columns = {"shop": pl.Series(["b", "a"], dtype=dtype), "x": [1.0, 2.0]}
        assert model.predict(pl.DataFrame(columns)).tolist() == [21.0, 12.0]


@pytest.mark.parametrize("params", [None, {"key": "b"}])
def test_no_rows_have_no_predictions(params) -> None:
    model = CatalogModel(cast("Catalog", ByShop()))
    frame = pd.DataFrame({"shop": pd.Series([], dtype=str), "x": pd.Series([], dtype=float)})
    predicted = model.predict(frame, params)
    assert (len(predicted), predicted.name, predicted.dtype) == (0, "prediction", np.float64)


@dataclass
class Registry:
    """What a version asks of a client of MLflow, in memory."""

    runs: list[Any] = field(default_factory=list)
    versions: list[Any] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def search_registered_models(self, wanted: str) -> list[Any]:
        self.asked.add(wanted)
        if not self.versions:
            return []
        tags = {mlflow_view.STORE: self.runs[0].data.tags[mlflow_view.STORE]}
        return [SimpleNamespace(tags=tags, aliases=self.aliases)]

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name)

    def search_runs(self, experiments: list[str], wanted: str) -> list[Any]:
        del experiments
        self.asked.add(wanted)
        return [each for each in self.runs if each.info.status == "FINISHED"]

    def add_run(self, _: object, catalog: Catalog, experiment: str, reference: str) -> str:
        del experiment
        tags = {mlflow_view.TAG: reference, mlflow_view.STORE: catalog.store.url}
        info = SimpleNamespace(run_id=f"run-{len(self.runs)}", status="RUNNING")
        self.runs.append(SimpleNamespace(info=info, data=SimpleNamespace(tags=tags)))
        return info.run_id

    def set_terminated(self, run_id: str, status: str, at: int) -> None:
        del at
        next(each for each in self.runs if each.info.run_id == run_id).info.status = status

    def create_registered_model(self, *_: object) -> None:
        pass

    def search_model_versions(self, wanted: str) -> list[Any]:
        self.asked.add(wanted)
        return self.versions

    def create_model_version(self, name: str, source: str, run_id: str, tags: Any, **_: Any) -> Any:
        del name, source
        made = SimpleNamespace(version=len(self.versions) + 1, run_id=run_id, tags=tags)
        self.versions.append(made)
        return made

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
        del name
        self.aliases[alias] = version


def test_a_version_whose_run_was_deleted_in_mlflow_is_shown_again(local_store, monkeypatch) -> None:
    registry = Registry()
    monkeypatch.setattr(mlflow_view, "_new_run", registry.add_run)
    monkeypatch.setattr(mlflow_view, "_log", lambda *_: None)
    catalog = train_and_promote(local_store, "first", {"a": 1.0})
    shown = [mlflow_view._show(registry, catalog, "sales", "o'neil") for _ in range(2)]
    assert [(each.model_version, each.is_new) for each in shown] == [("1", True), ("1", False)]
    registry.runs[0].info.status = "DELETED"
    again = mlflow_view._show(registry, catalog, "sales", "o'neil")
    assert (again.run_id, again.model_version, again.is_new) == ("run-1", "2", True)
    assert registry.aliases == {"champion": "2"}
    # A filter of MLflow's has no escapes.
    assert registry.asked == {'name = "o\'neil"', "tags.`partwise.catalog` = 'sales@1'"}
    with pytest.raises(InputError, match="quotes of both kinds"):
        mlflow_view._show(registry, catalog, "sales", 'o\'neil "x"')


def test_what_cannot_work_is_refused_before_a_promotion(local_store, monkeypatch) -> None:
    train(local_store, "first", {"a": 1.0})
    monkeypatch.setattr(mlflow_view, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"install partwise\[mlflow\]"):
        promote_models(
            "sales", models="first", rule=Everything(), store=local_store.url, mlflow=NOWHERE
        )
    assert local_store.list("catalogs/") == []
    monkeypatch.setattr(mlflow_view, "find_spec", lambda _: "there")
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD"):
        check_mlflow("https://me:opensesame@mlflow.example.org")


def test_mlflow_that_is_down_is_a_warning(local_store, monkeypatch, caplog) -> None:
    flow = sys.modules["partwise.flows.promote_models"]

    def refuse(catalog: Catalog, tracking_uri: str) -> None:
        raise OutputError(f"{catalog.reference} cannot be shown in MLflow at {tracking_uri}")

    monkeypatch.setattr(flow, "check_mlflow", lambda _: None)
    monkeypatch.setattr(flow, "show_in_mlflow", refuse)
    caplog.set_level(logging.WARNING)
    train(local_store, "first", {"a": 1.0})
    done = promote_models(
        "sales", models="first", rule=Everything(), store=local_store.url, mlflow=NOWHERE
    )
    assert done.catalog is not None
    assert done.catalog.version == 1
    assert f"catalog://sales@1 cannot be shown in MLflow at {NOWHERE}" in caplog.text


@pytest.fixture(scope="module")
def server(mlflow_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An MLflow server on SQLite."""
    folder: Path = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [mlflow_server, "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "files"), "--workers", "1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"MLflow does not answer: {(folder / 'log').read_text()}")
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def aliased(client: Any, name: str) -> str:
    return str(client.get_model_version_by_alias(name, "champion").tags["partwise.catalog"])


@pytest.mark.slow  # a server of MLflow's takes half a minute to begin
@pytest.mark.filterwarnings("ignore")
def test_versions_are_shown_once_and_the_newest_is_the_champion(
    server, local_store, tmp_path
) -> None:
    elsewhere = Store.parse(tmp_path / "elsewhere")
    client = mlflow.MlflowClient(tracking_uri=server)
    first = train_and_promote(local_store, "first", {"a": 1.0, "b": 2.0})
    shown = show_in_mlflow(first, server)
    assert shown.is_new
    assert show_in_mlflow(first, server) == mlflow_view.Shown(
        run_id=shown.run_id,
        experiment_id=shown.experiment_id,
        model_version=shown.model_version,
        is_new=False,
    )
    run = client.get_run(shown.run_id)
    assert (run.data.metrics["keys"], run.data.metrics["value/mean"]) == (2.0, 1.5)
    assert run.data.tags["partwise.catalog"] == "sales@1"
    files = {each.path for each in client.list_artifacts(shown.run_id)}
    assert files == {"champions.csv", "champions.parquet", "worst.csv", "model"}
    table = pq.read_table(client.download_artifacts(shown.run_id, "champions.parquet"))
    assert table["key"].to_pylist() == ["a", "b"]
    second, third = first.pin(["a"]), first.pin(["a"]).retire(["b"])
    with redirect_stdout(io.StringIO()) as out:
        words = ["--tracking-uri", server, "--store", local_store.url, "--json"]
        assert main(["catalog", "mlflow", "sales", *words]) == 0
    assert json.loads(out.getvalue())["reference"] == third.reference
    assert aliased(client, "sales") == "sales@3"
    # One that was missed is shown later, and the champion stays.
    assert show_in_mlflow(second, server).is_new
    assert aliased(client, "sales") == "sales@3"
    assert len(client.search_model_versions("name = 'sales'")) == 3
    assert client.get_experiment(shown.experiment_id).name == "sales"
    train(elsewhere, "first", {"a": 1.0})
    with pytest.raises(OutputError, match="give another --experiment and --model"):
        show_in_mlflow(promote(elsewhere, "first"), server)
    # A process that was killed has left a run that it did not end.
    client.set_terminated(shown.run_id, "FAILED")
    repaired = show_in_mlflow(first, server)
    assert (repaired.run_id, repaired.is_new) == (shown.run_id, True)
    assert client.get_run(shown.run_id).info.status == "FINISHED"
    # One that was deleted there takes its version with it.
    newest = show_in_mlflow(third, server)
    client.delete_run(newest.run_id)
    renewed = show_in_mlflow(third, server)
    assert renewed.run_id != newest.run_id
    assert client.get_model_version_by_alias("sales", "champion").run_id == renewed.run_id


@pytest.mark.slow  # a server of MLflow's takes half a minute to begin
@pytest.mark.filterwarnings("ignore")
def test_names_with_an_apostrophe_are_shown(server, tmp_path) -> None:
    store = Store.parse(tmp_path / "o'neil")
    first = train_and_promote(store, "first", {"a": 1.0})
    assert show_in_mlflow(first, server, experiment="o'neil", model="o'neil").is_new
    assert not show_in_mlflow(first, server, experiment="o'neil", model="o'neil").is_new


@pytest.mark.slow  # a server of MLflow's takes half a minute to begin
@pytest.mark.filterwarnings("ignore")
def test_the_registered_model_predicts_by_key(server, tmp_path, monkeypatch) -> None:
    store = Store.parse(tmp_path / "store")
    rows = pa.table(
        {"region": ["n", "n", "s"] * 4, "shop": [1, 2, 1] * 4, "y": [1.0, 2.0, 3.0] * 4}
    )
    by = ["region", "shop"]
    train_models(
        rows, by, Mean(label="y"), run_id="one", store=store.url, cluster=LocalCluster(workers=1)
    )
    promote_models("shops", models="one", rule=Everything(), store=store.url, mlflow=server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    pyfunc = __import__("mlflow.pyfunc").pyfunc
    model = pyfunc.load_model("models:/shops@champion")
    frame = rows.slice(0, 3).to_pandas().iloc[[2, 0, 1]]
    assert model.predict(frame).to_dict() == {2: 3.0, 0: 1.0, 1: 2.0}
    assert model.predict(frame[["y"]], params={"key": "n,2"}).tolist() == [2.0] * 3
    with pytest.raises(InputError, match="lack the key column 'region'"):
        model.predict(frame[["y"]])


@pytest.mark.slow  # a server of MLflow's takes half a minute to begin
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_champions_take_seconds(server, local_store) -> None:
    train(local_store, "many", {f"shop-{number:05}": float(number) for number in range(10_000)})
    catalog = promote(local_store, "many", "many")
    show_in_mlflow(promote(local_store, "many", "warm"), server)
    began = time.monotonic()
    assert show_in_mlflow(catalog, server).is_new
    assert time.monotonic() - began < 5


@pytest.mark.slow  # MLflow's client takes seconds to give up
@pytest.mark.usefixtures("mlflow_server")
def test_a_server_that_is_not_there_is_said_in_a_sentence(local_store) -> None:
    catalog = train_and_promote(local_store, "first", {"a": 1.0})
    with pytest.raises(OutputError, match=r"sales@1 cannot be shown in MLflow .*repeat partwise"):
        show_in_mlflow(catalog, NOWHERE)
