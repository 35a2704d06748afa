"""What a predictor answers is what an inference has predicted, and the model itself, to the bit."""

import datetime as dt
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.rules import Everything
from partwise.errors import ColumnError
from partwise.flows import export_models, promote_models, run_inference, train_models
from partwise.runs.run import Run
from partwise.serving.served import PredictorOptions
from partwise.trainers import LightGBMTrainer, XGBoostTrainer
from tests.flows.served_functions import fit_dense, fit_torch
from tests.thoroughness import quick_and_slow

pytestmark = pytest.mark.usefixtures("single_shard")

KEYS = ["region", "store"]
NUMBERS = ["price", "count"]


def rows_of(seed: int, per_key: int = 40) -> pa.Table:
    chance = np.random.default_rng(seed)
    pairs = [("n", 1), ("n", 2), ("s", 1), (None, 2)]  # null is a key
    n = per_key * len(pairs)
    price = chance.normal(10, 3, n)
    price[::7] = np.nan
    kind = np.array(["a", "b", "c", "never"])[chance.integers(0, 3 + (seed > 1), n)]
    day = [dt.datetime(2026, 1, 1) + dt.timedelta(hours=7 * i) for i in range(n)]  # noqa: DTZ001
    count = pa.array(chance.integers(0, 2**40, n), mask=chance.random(n) < 0.1)
    label = np.nan_to_num(price) + 3 * (kind == "b") + chance.normal(size=n)
    return pa.table(
        {
            "region": pa.array([region for region, _ in pairs for _ in range(per_key)]),
            "store": pa.array([store for _, store in pairs for _ in range(per_key)]),
            "price": pa.array(price, from_pandas=True),
            "count": count,
            "kind": pa.array(kind),
            "sold": pa.array(day),
            "size": chance.normal(size=n),
            "is_open": pa.array(chance.random(n) < 0.5),
            "y": label,
        }
    )


def json_rows(table: pa.Table) -> list[dict]:
    rows = table.to_pylist()
    for row in rows:
        row["sold"] = row["sold"].isoformat()
    return rows


def served_and_inferred(trainer, name: str, folder: Path, cluster, formats) -> None:
    """Train, export, promote and infer; the predictor has to say the same in each way."""
    settings = {"store": folder, "cluster": cluster}
    train_models(rows_of(1), KEYS, trainer, run_id=name, null_keys="keep", **settings)
    if "onnx" in formats:
        export_models(name, data=rows_of(1), run_id=f"{name}-onnx", **settings)
    exports = f"{name}-onnx" if "onnx" in formats else ""
    promote_models(name, models=name, rule=Everything(), exports=exports, store=folder)
    table = rows_of(2).drop_columns("y")
    catalog = Catalog.open(name, folder)
    for form in formats:
        reference = f"catalog://{name}"
        run = run_inference(
            table, KEYS, models=reference, format=form, run_id=f"{name}-{form}-infer",
            keep_columns=["sold"], null_keys="keep", **settings,
        )  # fmt: skip
        inferred = run.predictions()
        wanted = {
            tuple(row[key] for key in (*KEYS, "sold")): row["prediction"]
            for row in inferred.to_pylist()
        }
        expected = [wanted[tuple(row[key] for key in (*KEYS, "sold"))] for row in table.to_pylist()]
        predictor = catalog.predictor(PredictorOptions(format=form))
        predict = partial(predictor.predict, extra="ignore")
        found = predict(table)
        assert found["prediction"].to_pylist() == expected
        assert found["prediction"].type == inferred["prediction"].type
        assert found["status"].unique().to_pylist() == ["ok"]
        assert predict(json_rows(table)).equals(found)
        # Each key by itself, and each row.
        for key in dict.fromkeys(zip(*(table[name].to_pylist() for name in KEYS), strict=True)):
            at = [
                i for i, row in enumerate(table.select(KEYS).to_pylist()) if (*row.values(),) == key
            ]
            own, wanted_here = table.take(at).drop_columns(KEYS), [expected[i] for i in at]
            assert predict(own, key)["prediction"].to_pylist() == wanted_here
            one = json_rows(own)[:1]
            assert predict(one, key)["prediction"].to_pylist() == wanted_here[:1]
        if form == "onnx":
            exported = Run.open(f"{name}-onnx", folder)
            model = exported.model(("n", 1))
            rows = table.slice(0, 40)
            assert model.predict(rows).tolist() == expected[:40]


TREES = [
    LightGBMTrainer(
        label="y", features=[*NUMBERS, "kind", "is_open", "sold@hour"], categorical=["kind"],
        rounds=20, params={"min_data_in_leaf": 3},
    ),
    LightGBMTrainer(label="y", features=[*NUMBERS, "kind"], categorical=["kind"], rounds=20),
    XGBoostTrainer(label="y", features=[*NUMBERS, "kind"], categorical=["kind"], rounds=20),
]  # fmt: skip


@pytest.mark.parametrize("number", quick_and_slow({0}, range(len(TREES))))
def test_trees_answer_what_their_inference_predicts(number, tmp_path, cluster) -> None:
    served_and_inferred(TREES[number], f"t{number}", tmp_path, cluster, ["native", "onnx"])


@pytest.mark.slow  # TensorFlow, and exporters of networks
@pytest.mark.parametrize("train", [fit_torch, fit_dense])
def test_networks_answer_what_their_inference_predicts(train, tmp_path, cluster) -> None:
    served_and_inferred(train, train.__name__, tmp_path, cluster, ["onnx"])


def test_a_misspelled_column_is_no_missing_value(tmp_path, cluster) -> None:
    trainer = LightGBMTrainer(label="y", features=["price", "count"], rounds=5)
    settings = {"store": tmp_path, "cluster": cluster}
    train_models(rows_of(1), "store", trainer, run_id="train", **settings)
    promote_models("sales", models="train", rule=Everything(), store=tmp_path)
    predictor = Catalog.open("sales", tmp_path).predictor(PredictorOptions(format="native"))
    with pytest.raises(ColumnError, match=r"does not know the columns 'prise'.*'price'"):
        predictor.predict([{"price": 1.0, "count": 2, "prise": 2.0}], 1)
    assert predictor.predict([{"price": 1.0, "count": 2, "z": 2}], 1, extra="ignore").num_rows == 1
    with pytest.raises(ColumnError, match="lacks features of the model: 'count'"):
        predictor.predict([{"price": 1.0}], 1)
    with pytest.raises(ColumnError, match="'price'"):
        predictor.predict([{"price": "1.0", "count": 2}], 1)
    with pytest.raises(ColumnError, match="lists or objects"):
        predictor.predict([{"price": [1.0], "count": 2}], 1)
