"""Models exported and proved as a run, and used without the library that trained them."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import FunctionError, InputError, RunFailedError, RunNotFoundError
from partwise.evaluation import HoldoutByTime
from partwise.flows import export_models, run_inference, train_models, validate_exports
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.models.serdes import PickleSerde
from partwise.models.signature import SIGNATURE_FILE
from partwise.outcomes import RunStatus
from partwise.runs.layout import lay_out
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.trainers import LightGBMTrainer, XGBoostTrainer
from tests.flows.export_functions import (
    fit_in_two_ways,
    fit_net,
    fit_ridge,
    net_inputs,
    predict_net,
)

KEYS = ("a", "b", "c", "d", "e", "tiny")
SHARDS = ExecutionOptions(n_shards=2)
ONE = ExecutionOptions(n_shards=1)
"""All on one worker, as each one has to load the libraries first."""
TRAINERS = {
    "lightgbm": LightGBMTrainer(
        label="sales",
        categorical=("kind",),
        rounds=12,
        params={"num_leaves": 7, "min_data_in_leaf": 3},
        holdout=HoldoutByTime(column="day"),
    ),
    "xgboost": XGBoostTrainer(
        label="sales",
        categorical=("kind",),
        rounds=12,
        params={"max_depth": 3},
        holdout=HoldoutByTime(column="day"),
    ),
}

POISSON = XGBoostTrainer(
    label="sales", features=("price",), rounds=5, params={"objective": "count:poisson"}
)


def sales() -> pa.Table:
    chance = np.random.default_rng(5)
    keys = np.repeat(KEYS, [200, 160, 90, 90, 60, 4])
    n = len(keys)
    price = chance.normal(10, 3, n)
    price[chance.random(n) < 0.05] = np.nan
    seen = 1.7e9 + chance.random(n) * 1e6
    kind = np.array(["new", "old", "rare Ü"], dtype=object)[chance.integers(0, 3, n)]
    amount = 20 + np.nan_to_num(price) * 2 + (kind == "new") * 5 + (seen - 1.7e9) / 1e5
    return pa.table(
        {
            "store": keys,
            "day": np.arange(n),
            "price": price,
            "seen": seen,
            "kind": pa.array(kind, pa.string(), from_pandas=True),
            "sales": amount + chance.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def data(store: Path) -> Path:
    pq.write_table(sales(), store / "sales.parquet")
    return store / "sales.parquet"


Runs = Callable[[str], Run]
"""The run of a library, made when it is first asked for."""


@pytest.fixture(scope="module")
def trained(store, data, cluster) -> Runs:
    """The training run of a library."""
    shards = {"lightgbm": SHARDS, "xgboost": ONE}

    @cache
    def train(kind: str) -> Run:
        return train_models(
            data, "store", TRAINERS[kind], run_id=kind, execution=shards[kind],
            store=store, cluster=cluster,
        )  # fmt: skip

    return train


@pytest.fixture(scope="module")
def exports(trained, store: Path, cluster) -> Runs:
    """The export run of a library's training run."""

    @cache
    def export(kind: str) -> Run:
        run_id = f"{kind}-onnx"
        return export_models(trained(kind).run_id, run_id=run_id, store=store, cluster=cluster)

    return export


@pytest.fixture(scope="module")
def exported(exports) -> Run:
    return exports("lightgbm")


def rows_of(run: Run, status: str) -> list[dict[str, Any]]:
    table = run.partitions
    return table.filter(pc.equal(table["status"], status)).to_pylist()


# test_one_model.py exports one of XGBoost.
@pytest.mark.parametrize("kind", ["lightgbm", pytest.param("xgboost", marks=pytest.mark.slow)])
def test_each_model_is_exported_and_its_numbers_are_in_the_ledger(kind, exports):
    run = exports(kind)
    assert run.status is RunStatus.SUCCESS
    assert (run.kind, run.document.training_run_id) == ("export", kind)
    done, skipped = rows_of(run, "DONE"), rows_of(run, "SKIPPED")
    assert [row["store"] for row in skipped] == ["tiny"]
    assert "has no model for this partition" in skipped[0]["reason"]
    assert len(done) == 5
    for row in done:
        assert row["export_max_abs_diff"] <= (1e-10 if kind == "lightgbm" else 1e-3)
        assert row["export_rows"] > row["rows"] / 5, "the held-out rows and the adversarial ones"
        assert run.artifacts(row["store"])[:2] == [SIGNATURE_FILE, "model.onnx"]


def test_an_export_says_what_it_takes_and_where_it_comes_from(exported):
    signature = exported.model("a").signature
    said = exported.artifact("a", SIGNATURE_FILE)
    assert said == json.loads(signature.to_json())
    assert [feature["name"] for feature in said["features"]] == ["price", "seen", "kind"]
    assert said["features"][2]["categories"] == ["new", "old", "rare Ü"]
    assert said["origin"]["training_run_id"] == "lightgbm"
    assert said["origin"]["partition_id"] == exported.partition_id("a")


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINERS)
def test_inference_with_exports_is_inference_with_models(kind, exports, data, store, cluster):
    settings = {"store": store, "keep_columns": ["day"], "cluster": cluster}
    settings |= {"on_missing_model": "skip"}
    exported = exports(kind)
    native = run_inference(data, "store", kind, **settings)
    onnx = run_inference(data, "store", kind, format="onnx", **settings)
    assert onnx.document.training_run_id == exported.run_id
    expected = native.predictions().sort_by("day")
    found = onnx.predictions().sort_by("day")
    assert found.num_rows == 600
    assert found["day"].equals(expected["day"])
    np.testing.assert_allclose(
        found["prediction"].to_numpy(),
        expected["prediction"].to_numpy(),
        rtol=1e-5,
        atol=1e-12 if kind == "lightgbm" else 1e-4,
    )


def test_a_run_is_laid_out_one_folder_per_partition(exported, tmp_path):
    target = Store.parse(tmp_path / "served")
    assert lay_out(exported, target) == 5
    index = json.loads((tmp_path / "served" / "index.json").read_text())
    assert [entry["key"] for entry in index["partitions"]] == [{"store": k} for k in KEYS[:5]]
    assert [entry["key"] for entry in index["left_out"]] == [{"store": "tiny"}]
    for entry in index["partitions"]:
        assert entry["model"] == f"{entry['partition_id']}/model.onnx"
        content = (tmp_path / "served" / entry["model"]).read_bytes()
        assert content == exported.artifact(entry["key"]["store"], "model.onnx")
    (tmp_path / "served" / "mine.txt").write_text("not ours")
    index["partitions"].append({"files": [{"path": "gone/model.onnx"}]})
    (tmp_path / "served" / "index.json").write_text(json.dumps(index))
    (tmp_path / "served" / "gone").mkdir()
    (tmp_path / "served" / "gone" / "model.onnx").write_bytes(b"of an earlier layout")
    assert lay_out(exported, target) == 5
    assert not (tmp_path / "served" / "gone" / "model.onnx").exists()
    assert (tmp_path / "served" / "mine.txt").exists()


def test_an_export_is_proved_again_from_the_store(exported, data, store, cluster):
    later = pq.read_table(data).filter(pc.field("day") >= 100)
    run = validate_exports(exported.run_id, data=later, store=store, cluster=cluster)
    assert (run.kind, run.status) == ("validate", RunStatus.SUCCESS)
    assert {row["store"] for row in rows_of(run, "SKIPPED")} == {"tiny"}
    assert len(rows_of(run, "DONE")) == 5


def test_a_resume_exports_only_what_has_changed(exported, store, cluster):
    before = exported.artifact("b", "model.onnx")
    again = export_models(
        "lightgbm",
        run_id=exported.run_id,
        on_existing_artifacts="resume",
        store=store,
        cluster=cluster,
    )
    assert (again.executed, again.kept) == (1, 5), "what was skipped is looked at again"
    assert again.artifact("b", "model.onnx") == before


@pytest.mark.slow
def test_a_model_that_was_trained_anew_is_no_longer_what_was_exported(
    exported, data, store, tmp_path, cluster
):
    shutil.copytree(store, tmp_path, dirs_exist_ok=True)
    settings = {"store": tmp_path, "cluster": cluster}
    other = TRAINERS["lightgbm"].model_copy(update={"rounds": 5})
    train_models(
        data, "store", other, run_id="lightgbm", on_existing_artifacts="overwrite", **settings
    )
    with pytest.raises(RunFailedError, match="'lightgbm' has another model now"):
        validate_exports(exported.run_id, **settings)


def test_models_without_rows_to_be_compared_on_are_refused(trained, data, store, cluster):
    few = pq.read_table(data).filter(pc.field("store") != "c")
    with pytest.raises(InputError, match=r"no rows for 1 of the 5 models .*such as c-"):
        export_models(trained("lightgbm").run_id, data=few, store=store, cluster=cluster)


def test_what_no_one_exported_is_not_inferred_with(trained, data, store, cluster):
    run_id, used = trained("lightgbm").run_id, {"store": store, "cluster": cluster}
    with pytest.raises(RunNotFoundError, match=r"export_models\('lightgbm', 'pt2'\)"):
        run_inference(data, "store", run_id, format="pt2", **used)


@pytest.mark.slow
def test_a_model_that_would_come_out_wrong_is_refused_by_name(store, data, cluster):
    settings = {"store": store, "cluster": cluster}

    def fit(rows, context):
        """Of a script: no other process can import it, but where the rows are is known."""
        return fit_in_two_ways(rows, context)

    train_models(data, "store", fit, run_id="two", execution=ONE, **settings)
    run = export_models("two", run_id="two-onnx", **settings)
    assert run.status is RunStatus.PARTIAL_FAILURE
    assert [row["store"] for row in rows_of(run, "DONE")] == ["tiny"], "its trees have no split"
    failed = rows_of(run, "FAILED")
    assert len(failed) == 5
    assert all("takes zeros of the feature" in row["error_message"] for row in failed)
    assert all(row["error_type"].endswith("ExportRefusedError") for row in failed)
    assert {row["attempts"] for row in failed} == {1}
    assert run.artifacts("a") == ["log.txt"]
    native = export_models("two", "native", run_id="two-native", **settings)
    assert native.status is RunStatus.SUCCESS


@pytest.mark.slow
def test_models_of_ones_own_kind_take_ones_own_exporter(store, data, cluster):
    settings = {"serde": PickleSerde(), "store": store, "cluster": cluster}
    few = {"run_id": "ridge", "filter": [("store", "in", ["a", "b"])], "execution": ONE}
    train_models(data, "store", fit_ridge, **few, **settings)
    with pytest.raises(RunFailedError, match="Ridge cannot be exported to onnx: pass exporter="):
        export_models("ridge", **settings)
    exporter = "tests.exports.ridge_exporter:make"
    run = export_models("ridge", exporter=exporter, run_id="ridge-onnx", **settings)
    assert run.status is RunStatus.SUCCESS
    proved = validate_exports("ridge-onnx", **settings)
    assert proved.status is RunStatus.SUCCESS
    with pytest.raises(FunctionError, match="lacks describe, write or predict"):
        export_models("ridge", exporter="time:time", **settings)


@pytest.mark.slow
def test_a_mismatch_fails_its_partition_and_publishes_nothing(data, store, cluster):
    train_models(
        data, "store", POISSON, run_id="poisson", execution=ONE, store=store, cluster=cluster
    )
    exporter = "tests.exports.beside_exporter:make"
    with pytest.raises(RunFailedError) as caught:
        export_models("poisson", exporter=exporter, store=store, cluster=cluster)
    run = caught.value.run
    failed = rows_of(run, "FAILED")
    assert len(failed) == 5
    assert all(row["error_type"].endswith("ExportMismatchError") for row in failed)
    assert all(0 < row["export_max_abs_diff"] < 1e-3 for row in failed)
    assert "prediction" in failed[0]["error_message"]
    assert run.artifacts("a") == ["log.txt"]


@pytest.fixture(scope="module")
def net(store: Path, data: Path, cluster) -> Run:
    few = pq.read_table(data).filter(pc.field("store").isin(["a", "b"]))
    pq.write_table(few, store / "few.parquet")
    settings = {"store": store, "cluster": cluster, "execution": ONE}
    return train_models(store / "few.parquet", "store", fit_net, run_id="net", **settings)


@pytest.fixture(scope="module")
def of_net(net: Run, store: Path, cluster) -> pa.Table:
    """What the nets themselves predict."""
    return infer_with_nets(net.run_id, "native", store, cluster)


def infer_with_nets(run_id: str, form: str, store: Path, cluster) -> pa.Table:
    kept = {"format": form, "keep_columns": ["day"], "store": store, "cluster": cluster}
    run = run_inference(store / "few.parquet", "store", run_id, predict_net, **kept)
    return run.predictions().sort_by("day")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "torchscript", "pt2"])
def test_torch_modules_are_exported_with_their_inputs(form, store, cluster, net, of_net):
    settings = {"example_inputs": net_inputs, "store": store, "cluster": cluster}
    run = export_models(net.run_id, form, run_id=f"net-{form}", **settings)
    assert run.status is RunStatus.SUCCESS
    found = infer_with_nets(net.run_id, form, store, cluster)
    np.testing.assert_allclose(
        found["prediction"].to_numpy(), of_net["prediction"].to_numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_less_precision_is_judged_by_how_well_it_predicts(store, cluster, net):
    settings = {"example_inputs": net_inputs, "store": store, "cluster": cluster}
    settings |= {"options": ExportOptions(precision="int8")}
    # int8 moves these nets by a hundredth of what they give, on some processors by a bit less.
    strict = ValidationOptions(max_metric_loss=0.001)
    with pytest.raises(RunFailedError, match="predicts the held-out rows worse than its model"):
        export_models(net.run_id, validation=strict, **settings)
    lenient = ValidationOptions(max_metric_loss=0.5)
    run = export_models(net.run_id, validation=lenient, **settings)
    assert run.status is RunStatus.SUCCESS
    assert run.model("a").signature.options.precision == "int8"


@pytest.mark.slow
def test_weights_may_stand_beside_the_model(store, cluster, net, of_net):
    settings = {"example_inputs": net_inputs, "store": store, "cluster": cluster}
    options = ExportOptions(embedded_bytes=0)
    run = export_models(net.run_id, options=options, run_id="net-beside", **settings)
    assert "model.onnx.data" in run.artifacts("a")
    assert run.model("a").signature.layout == "custom"
    found = infer_with_nets(run.run_id, "onnx", store, cluster)
    np.testing.assert_allclose(
        found["prediction"].to_numpy(), of_net["prediction"].to_numpy(), rtol=1e-4, atol=1e-5
    )
    assert validate_exports(run.run_id, **settings).status is RunStatus.SUCCESS
