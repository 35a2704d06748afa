"""A real table: every station's model exported and proved, and all its trips predicted with it."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from partwise.flows import export_models, run_inference, train_models
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer, XGBoostTrainer

pytestmark = pytest.mark.slow  # real data at size

FEATURES = ("end_station", "subscription_type", "bike_id", "end_terminal", "trip_id")
TEXT = ("end_station", "subscription_type")
SETTINGS = {"label": "duration", "features": FEATURES, "categorical": TEXT, "rounds": 10}
TRAINERS = {
    "lightgbm": LightGBMTrainer(**SETTINGS, params={"objective": "poisson", "num_leaves": 15}),
    "xgboost": XGBoostTrainer(**SETTINGS, params={"max_depth": 4}),
}
TRIPS = 326_339


def export_and_infer(trips: Path, keys: list[str], kind: str, store: Path, cluster) -> Run:
    """Return the export run, once its predictions are those of the models, on every row."""
    settings = {"store": store, "cluster": cluster}
    trainer = TRAINERS[kind].model_copy(update={"min_rows": 1})
    trained = train_models(trips, keys, trainer, run_id=kind, **settings)
    assert trained.status is RunStatus.SUCCESS
    exported = export_models(kind, run_id=f"{kind}-onnx", **settings)
    assert exported.status is RunStatus.SUCCESS, exported.failures().to_pylist()
    kept = {"keep_columns": ["trip_id"], **settings}
    native = run_inference(trips, keys, kind, **kept).predictions().sort_by("trip_id")
    onnx = run_inference(trips, keys, kind, format="onnx", **kept).predictions()
    onnx = onnx.sort_by("trip_id")
    assert native.num_rows == onnx.num_rows == TRIPS
    expected, found = native["prediction"].to_numpy(), onnx["prediction"].to_numpy()
    double = kind == "lightgbm"
    np.testing.assert_allclose(found, expected, rtol=1e-12 if double else 1e-5, atol=0)
    assert len(np.unique(expected)) > 1000
    return exported


@pytest.mark.parametrize("kind", TRAINERS)
def test_each_station_is_exported_and_predicts_alike(kind, bike_trips, tmp_path, cluster):
    exported = export_and_infer(bike_trips, ["start_station"], kind, tmp_path, cluster)
    assert exported.counts == {"DONE": 74}
    assert pc.sum(exported.partitions["export_rows"]).as_py() > 74 * 500


@pytest.mark.parametrize("kind", TRAINERS)
def test_each_route_is_exported_constants_too(kind, bike_trips, tmp_path, cluster):
    keys = ["start_station", "end_station"]
    exported = export_and_infer(bike_trips, keys, kind, tmp_path, cluster)
    assert exported.counts == {"DONE": 1863}
