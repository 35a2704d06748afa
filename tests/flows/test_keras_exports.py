"""Keras models trained, exported, proved and used, each by a run of its own."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.flows import export_models, run_inference, train_models
from partwise.outcomes import RunStatus
from tests.flows.export_functions import fit_keras, predict_keras

pytestmark = pytest.mark.slow  # TensorFlow

ONE = ExecutionOptions(n_shards=1)
"""All on one worker, as each one has to load TensorFlow first."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    chance = np.random.default_rng(5)
    n = 120
    day, price = np.arange(n), chance.normal(10, 3, n)
    sales = 20 + 2 * price + day / 10 + chance.normal(size=n)
    table = pa.table({"store": np.repeat(["a", "b", "c"], 40), "day": day})
    table = table.append_column("price", pa.array(price)).append_column("sales", pa.array(sales))
    path = tmp_path_factory.mktemp("keras") / "sales.parquet"
    pq.write_table(table, path)
    return path


def test_exports_predict_what_their_models_do(data, cluster):
    settings = {"store": data.parent, "cluster": cluster}
    trained = train_models(data, "store", fit_keras, run_id="keras", execution=ONE, **settings)
    assert trained.status is RunStatus.SUCCESS

    run = export_models("keras", run_id="keras-onnx", execution=ONE, **settings)

    assert run.status is RunStatus.SUCCESS
    assert run.partitions["export_max_abs_diff"].to_pylist() == pytest.approx([0, 0, 0], abs=1e-2)
    assert sorted(run.artifacts("a")) == ["log.txt", "model.onnx", "signature.json"]
    assert "Number of eligible GPUs" not in run.logs("a")
    kept = {"keep_columns": ["day"], "execution": ONE, **settings}
    native = run_inference(data, "store", "keras", predict_keras, **kept)
    exported = run_inference(data, "store", "keras", format="onnx", **kept)
    expected = native.predictions().sort_by("day")["prediction"].to_numpy()
    found = exported.predictions().sort_by("day")["prediction"].to_numpy()
    assert len(np.unique(expected)) == len(expected) == 120
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
