"""Inference by the ID of a training run; every form of data trains the same models."""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    ColumnError,
    InputError,
    KeyClassError,
    ModelNotFoundError,
    RunFailedError,
    RunIdError,
    RunNotFoundError,
    SerdeError,
)
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.runs.table_file import write_table_file
from partwise.trainers import LightGBMTrainer
from tests.flows.inference_functions import (
    LineSerde,
    fit_mean,
    predict_bounds,
    predict_mean,
    predict_oddly,
)

pytestmark = pytest.mark.usefixtures("single_shard")

ROWS = 40
ONE_SHARD = ExecutionOptions(n_shards=1, max_retries=0)


def sales(keys: int) -> pa.Table:
    chance = np.random.default_rng(7)
    key = np.tile(np.arange(keys), ROWS)
    x, z = chance.normal(size=(2, len(key)))
    return pa.table({"key": key, "x": x, "z": z, "value": 2 * x + key, "row": np.arange(len(key))})


def rows_of(run: Run, status: str) -> list[Any]:
    table = run.partitions
    return table.filter(pc.equal(table["status"], status)).to_pylist()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("inference")


@pytest.fixture(scope="module")
def trained(cluster, store) -> Run:
    trainer = LightGBMTrainer(
        label="value", features=["x", "z"], rounds=5, params={"min_data_in_leaf": 5}
    )
    return train_models(
        sales(5),
        "key",
        trainer,
        run_id="trained",
        store=store,
        execution=ExecutionOptions(n_shards=3),
        cluster=cluster,
    )


@pytest.fixture(scope="module")
def pickled(cluster, store) -> Run:
    """Three partitions with a model, one that was skipped and one that failed."""
    table = pa.table(
        {
            "shop": ["a", "a", "b", "c", "d"] * 3 + ["e"],
            "day": [1, None, 1, 1, 1] * 3 + [1],
            "value": [1.0, 2.0, 3.0, 4.0, None] * 3 + [5.0],
        }
    )
    return train_models(
        table,
        ["shop", "day"],
        fit_mean,
        run_id="pickled",
        store=store,
        serde=PickleSerde(),
        null_keys="keep",
        execution=ONE_SHARD,
        cluster=cluster,
    )


@pytest.fixture(scope="module")
def inferred(trained, cluster, store) -> Run:
    """Of six keys, the last was never trained; the key column is a narrower one."""
    data = sales(6)
    data = data.set_column(0, "key", data["key"].cast(pa.int16()))
    return run_inference(
        data,
        "key",
        training_run_id="trained",
        run_id="inferred",
        store=store,
        keep_columns=["row"],
        execution=ExecutionOptions(max_retries=2),
        cluster=cluster,
    )


def test_predictions_are_those_of_each_partitions_model(trained, inferred) -> None:
    found = inferred.predictions().to_pandas().sort_values("row")
    assert list(found.columns) == ["key", "row", "prediction"]
    frame = sales(6).to_pandas()
    for key, group in frame[frame.key < 5].groupby("key"):
        expected = trained.model(key).predict(group[["x", "z"]])
        assert found[found.key == key]["prediction"].tolist() == expected.tolist()
    assert len(found) == 5 * ROWS


def test_a_partition_without_model_fails_alone_and_at_once(inferred) -> None:
    assert inferred.counts == {"DONE": 5, "FAILED": 1}
    assert inferred.status is RunStatus.PARTIAL_FAILURE
    [failed] = rows_of(inferred, "FAILED")
    assert failed["key"] == 5
    assert failed["attempts"] == 1
    assert failed["error_type"].endswith("ModelNotFoundError")
    assert "'trained' has no model" in failed["error_message"]


def test_any_reader_reads_the_predictions(inferred) -> None:
    expected = inferred.predictions().to_pandas().sort_values("row", ignore_index=True)
    folder = Path(inferred.path, "predictions")
    dataset = pyarrow.dataset.dataset(folder).to_table().to_pandas()
    for found in (dataset, pd.read_parquet(folder), pl.read_parquet(folder / "*").to_pandas()):
        pd.testing.assert_frame_equal(
            found.sort_values("row", ignore_index=True), expected, check_dtype=False
        )


def test_an_inference_run_knows_its_training_run(inferred, store) -> None:
    opened = Run.open("inferred", store)
    assert opened.kind == "infer"
    assert opened.document.training_run_id == "trained"
    with pytest.raises(ModelNotFoundError, match="'inferred' is DONE and has no model"):
        opened.model(1)


def test_a_predict_function_of_ones_own_sees_data_model_and_context(
    trained, cluster, store
) -> None:
    run = run_inference(
        sales(3),
        "key",
        "trained",
        predict_bounds,
        store=store,
        run_id="bounds",
        keep_columns=["row", "x"],
        cluster=cluster,
    )
    assert run.counts == {"DONE": 3}
    rows = run.predictions()
    assert rows.column_names == ["key", "row", "x", "low", "high", "seen"]
    assert set(rows["seen"].to_pylist()) == {f"{key} bounds" for key in range(3)}
    assert run.partitions["trees"].to_pylist() == [5, 5, 5]
    assert np.allclose(pc.subtract(rows["high"], rows["low"]), 2)


@pytest.mark.slow
def test_predictions_of_every_form_become_rows(trained, cluster, store) -> None:
    run = run_inference(sales(5), "key", "trained", predict_oddly, store=store, cluster=cluster)
    assert run.counts == {"DONE": 3, "SKIPPED": 1, "FAILED": 1}
    rows = run.predictions().to_pandas()
    assert rows[rows.key == 0][["prediction_0", "prediction_1"]].eq(1).all(axis=None)
    assert (rows.key == 0).sum() == ROWS
    assert (rows.key == 1).sum() == 0
    assert rows[rows.key == 2]["z"].notna().sum() == ROWS
    assert rows["text"].dropna().str.len().sum() == ROWS * len("z")
    assert rows_of(run, "SKIPPED")[0]["reason"] == "nothing to say"
    assert "3 dimensions" in rows_of(run, "FAILED")[0]["error_message"]


def test_columns_are_chosen_by_name(inferred) -> None:
    assert inferred.predictions(["prediction"]).column_names == ["prediction"]
    with pytest.raises(ColumnError, match=r"'inferred' returned columns \['forecast'\]"):
        inferred.predictions(["key", "forecast"])


def test_columns_of_many_types_are_promoted_or_refused(cluster, store) -> None:
    def function(data, context):
        match context.key:
            case 0:
                return {"number": [1], "text": [None], "odd": [1]}
            case 1:
                return {"number": [0.5], "text": ["a"], "odd": ["b"]}
            case _:
                return {"number": [None]}

    run = map_partitions(
        pa.table({"key": [0, 1, 2]}),
        "key",
        function,
        store=store,
        execution=ONE_SHARD,
        cluster=cluster,
    )
    assert run.predictions(["key", "number", "text"]).sort_by("key").to_pydict() == {
        "key": [0, 1, 2],
        "number": [1.0, 0.5, None],
        "text": [None, "a", None],
    }
    with pytest.raises(ColumnError, match=r"odd.*iter_predictions") as caught:
        run.predictions()
    assert "\n" not in str(caught.value)
    assert sum(rows.num_rows for rows in run.iter_predictions()) == 3


def test_types_that_do_not_go_together_are_told_when_the_run_ends(cluster, store, caplog) -> None:
    caplog.set_level(logging.WARNING, logger="prefect.flow_runs")

    def function(data, context):
        return {"x": [1] if context.key < 2 else ["text"]}

    run = map_partitions(
        pa.table({"key": [0, 1, 2]}), "key", function, store=store, execution=ONE_SHARD,
        cluster=cluster,
    )  # fmt: skip
    told = "column 'x' is int64 in 2 partitions (0, 1) and string in 1 partition (2)"
    assert told in caplog.text
    with pytest.raises(ColumnError, match=re.escape(told)):
        run.predictions()
    with pytest.raises(ColumnError, match=re.escape(told)):
        write_table_file(run, "predictions", Path(store) / "rows.csv")
    assert {part.num_rows for part in run.iter_predictions()} == {1, 2}


@pytest.mark.slow
def test_a_column_to_keep_that_is_also_predicted_loses_nothing(trained, cluster, store) -> None:
    data = sales(1)
    data = data.append_column("prediction", pa.array(np.zeros(ROWS)))
    with pytest.raises(RunFailedError, match=r"'prediction'.*keep_columns"):
        run_inference(
            data,
            "key",
            "trained",
            store=store,
            keep_columns=["prediction"],
            cluster=cluster,
        )


def test_a_key_column_that_is_also_returned_loses_nothing(cluster, store) -> None:
    table = pa.table({"prediction": ["a", "a", "b"], "value": [1.0, 2.0, 3.0]})

    def function(data, context):
        frame = data.to_pandas()
        return frame if context.key == "a" else frame.assign(prediction=frame["value"] * 2)

    run = map_partitions(
        table, "prediction", function, store=store, execution=ONE_SHARD, cluster=cluster
    )
    assert run.predictions().to_pydict() == {"prediction": ["a", "a"], "value": [1.0, 2.0]}
    assert "'prediction' that differs" in rows_of(run, "FAILED")[0]["error_message"]


def test_partitions_without_model_are_skipped_on_request(pickled, cluster, store) -> None:
    assert pickled.counts == {"DONE": 4, "SKIPPED": 1, "FAILED": 1}
    data = pa.table(
        {"shop": ["e", "d", "c", "a", "a", "new"], "day": [1, 1, 1, None, 1, 1], "row": range(6)}
    )
    run = run_inference(
        data,
        ["shop", "day"],
        "pickled",
        predict_mean,
        store=store,
        serde=PickleSerde(),
        null_keys="keep",
        on_missing_model="skip",
        execution=ONE_SHARD,
        cluster=cluster,
    )
    assert run.counts == {"DONE": 3, "SKIPPED": 3}
    assert run.status is RunStatus.SUCCESS
    skipped = rows_of(run, "SKIPPED")
    assert {row["shop"] for row in skipped} == {"e", "d", "new"}
    assert all("'pickled' has no model" in row["reason"] for row in skipped)
    rows = run.predictions().sort_by([("shop", "ascending"), ("day", "ascending")]).to_pylist()
    assert rows == [
        {"shop": "a", "day": 1, "prediction": 1.0},
        {"shop": "a", "day": None, "prediction": 2.0},
        {"shop": "c", "day": 1, "prediction": 4.0},
    ]


def float_keys() -> pa.Table:
    data = sales(3)
    return data.set_column(0, "key", data["key"].cast(pa.float64()))


PAIRS = pa.table({"shop": ["a"], "day": [1], "value": [1.0]})
REFUSED = {
    "a key that became double": (
        (float_keys(), "key", "trained"), {}, KeyClassError, "'key'.*float"
    ),
    "a key that became null": (
        (pa.table({"key": pa.nulls(3), "x": [1.0] * 3, "z": [1.0] * 3}), "key", "trained"),
        {"null_keys": "keep"}, KeyClassError, "'key'",
    ),
    "another column": ((sales(2), "row", "trained"), {}, InputError, r"\['row'\].*\['key'\]"),
    "another order": (
        (PAIRS, ["day", "shop"], "pickled"), {"serde": PickleSerde()}, InputError, "same order"
    ),
    "a pickle without PickleSerde": (
        (PAIRS, ["shop", "day"], "pickled", predict_mean), {}, SerdeError, r"serde=PickleSerde\(\)"
    ),
    "a pickle with another serde": (
        (PAIRS, ["shop", "day"], "pickled", predict_mean),
        {"serde": LineSerde()}, SerdeError, r"LineSerde.*serde=PickleSerde\(\)",
    ),
    "a missing column to keep": (
        (sales(2), "key", "trained"), {"keep_columns": ["date"]}, ColumnError, "'date'"
    ),
    "an unknown run": ((sales(2), "key", "trainde"), {}, RunNotFoundError, "'trainde'.*trained"),
    "a malformed run": ((sales(2), "key", "../trained"), {}, RunIdError, "'../trained'"),
    "a run of another kind": ((sales(2), "key", "inferred"), {}, InputError, "'infer'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_any_work(
    trained, pickled, inferred, cluster, store, case
) -> None:
    arguments, options, error, match = REFUSED[case]
    before = sorted(store.rglob("*"))
    with pytest.raises(error, match=match) as caught:
        run_inference(*arguments, run_id="refused", store=store, cluster=cluster, **options)
    assert "\n" not in str(caught.value)
    assert sorted(store.rglob("*")) == before


@pytest.mark.slow
def test_a_serde_of_ones_own_is_asked_for_by_name(cluster, store) -> None:
    options = {"store": store, "execution": ONE_SHARD, "cluster": cluster}
    train_models(sales(2), "key", fit_mean, run_id="lines", serde=LineSerde(), **options)
    with pytest.raises(SerdeError, match="LineSerde"):
        run_inference(sales(2), "key", "lines", predict_mean, **options)
    run = run_inference(sales(2), "key", "lines", predict_mean, serde=LineSerde(), **options)
    assert run.counts == {"DONE": 2}


def test_a_run_that_was_stopped_serves_what_it_has(cluster, store) -> None:
    data = sales(4).to_pandas()
    data.loc[data.key == 2, "value"] = np.nan
    options = {"store": store, "cluster": cluster}
    with pytest.raises(RunFailedError):
        train_models(
            data,
            "key",
            fit_mean,
            run_id="stopped",
            serde=PickleSerde(),
            execution=ExecutionOptions(n_shards=1, max_retries=0, fail_fast=True),
            **options,
        )
    training = Run.open("stopped", store)
    done = {row["key"] for row in rows_of(training, "DONE")}
    assert {0, 1} <= done
    run = run_inference(
        data, "key", "stopped", predict_mean, serde=PickleSerde(), execution=ONE_SHARD, **options
    )
    assert {row["key"] for row in rows_of(run, "DONE")} == done


@pytest.mark.slow
def test_a_run_whose_process_was_killed_serves_what_it_has(trained, cluster, tmp_path) -> None:
    shutil.copytree(trained.path, tmp_path / "runs" / "trained")
    for name in ("0001.summary.json", "0001.ledger.parquet"):
        (tmp_path / "runs" / "trained" / "generations" / name).unlink()
    segments = sorted((tmp_path / "runs" / "trained" / "ledger").iterdir())
    segments[0].unlink()
    left = Run.open("trained", tmp_path)
    assert left.status is RunStatus.IN_PROGRESS
    run = run_inference(
        sales(5), "key", "trained", store=tmp_path, on_missing_model="skip", cluster=cluster
    )
    assert 0 < len(rows_of(run, "DONE")) < 5
    assert len(rows_of(run, "DONE")) == left.counts["DONE"]


def test_a_damaged_model_fails_its_partition_alone(pickled, cluster, tmp_path) -> None:
    shutil.copytree(pickled.path, tmp_path / "runs" / "pickled")
    [bundle] = (tmp_path / "runs" / "pickled" / "bundles").iterdir()
    stored = pickled.stored_artifacts(pickled.partition_id(("b", 1)))
    place = next(each.offset for each in stored if each.serde)
    content = bytearray(bundle.read_bytes())
    content[place + 5] ^= 1
    bundle.write_bytes(content)
    data = pa.table({"shop": ["a", "b", "c"], "day": [1, 1, 1]})
    run = run_inference(
        data,
        ["shop", "day"],
        "pickled",
        predict_mean,
        store=tmp_path,
        serde=PickleSerde(),
        execution=ExecutionOptions(max_retries=0),
        cluster=cluster,
    )
    [failed] = rows_of(run, "FAILED")
    assert failed["shop"] == "b"
    assert "differs from its checksum" in failed["error_message"]
    assert run.counts == {"DONE": 2, "FAILED": 1}


def table_of_all_types() -> pa.Table:
    numbers = np.arange(60)
    return pa.table(
        {
            "shop": [f"shop {number % 4}" for number in numbers],
            "value": numbers / 7,
            "amount": numbers,
            "moment": pa.array(numbers * 86_400, pa.timestamp("s")),
            "note": [None if number % 5 == 0 else f"n{number}" for number in numbers],
        }
    )


def parts(table: pa.Table) -> list[pa.Table]:
    return [table.slice(0, 25), table.slice(25, 1), table.slice(26)]


def write_parts(table: pa.Table, folder: Path) -> Path:
    folder.mkdir()
    for number, part in enumerate(parts(table)):
        pq.write_table(part, folder / f"part-{number}.parquet")
    return folder


def write_parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "rows.parquet", row_group_size=17)
    return folder / "rows.parquet"


def write_csv(table: pa.Table, folder: Path) -> str:
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    return str(folder / "rows.csv")


def write_ipc(table: pa.Table, folder: Path) -> Path:
    pyarrow.feather.write_feather(table, folder / "rows.arrow", compression="lz4")
    return folder / "rows.arrow"


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "parquet": write_parquet,
    "directory": lambda table, folder: write_parts(table, folder / "parts"),
    "glob": lambda table, folder: f"{write_parts(table, folder / 'parts')}/part-*.parquet",
    "csv": write_csv,
    "arrow ipc": write_ipc,
    "arrow": lambda table, folder: table,
    "pandas": lambda table, folder: table.to_pandas(),
    "polars": lambda table, folder: pl.from_arrow(table),
    "list of pandas": lambda table, folder: [part.to_pandas() for part in parts(table)],
}


@pytest.fixture(scope="module")
def models_by_form(cluster, tmp_path_factory) -> dict[str, dict[str, str]]:
    """The checksum of each partition's model, by the form in which the rows were given."""

    def fit(data, context):
        rows = data.to_arrow()
        return {
            "sum": float(data.to_numpy("value").sum()),
            "amounts": rows["amount"].to_pylist(),
            "moments": [str(moment) for moment in rows["moment"].to_pylist()],
            # In a CSV file, no text is an empty text.
            "notes": [note or "" for note in rows["note"].to_pylist()],
            "seed": context.seed,
        }

    found = {}
    for form, give in FORMS.items():
        folder = tmp_path_factory.mktemp("form")
        run = train_models(
            give(table_of_all_types(), folder),
            "shop",
            fit,
            store=folder / "store",
            serde=PickleSerde(),
            execution=ONE_SHARD,
            cluster=cluster,
        )
        assert run.counts == {"DONE": 4}
        found[form] = {
            row["partition_id"]: artifact["sha256"]
            for row in run.ledger.select(["partition_id", "artifacts"]).to_pylist()
            for artifact in row["artifacts"]
        }
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_trains_the_same_models(models_by_form, form) -> None:
    assert models_by_form[form] == models_by_form["parquet"]
