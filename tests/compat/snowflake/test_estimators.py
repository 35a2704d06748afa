"""Snowflake's estimators, distributor and tuner of one model: what a notebook of theirs asks."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from partwise.compat.snowflake.dataset_maps import placed
from partwise.compat.snowflake.ml.data import DataConnector, ShardedDataConnector
from partwise.compat.snowflake.ml.modeling.distributors.lightgbm import (
    LightGBMEstimator,
    LightGBMScalingConfig,
)
from partwise.compat.snowflake.ml.modeling.distributors.pytorch import (
    PyTorchDistributor,
    PyTorchScalingConfig,
    WorkerResourceConfig,
    get_context,
    own_scaling,
)
from partwise.compat.snowflake.ml.modeling.distributors.xgboost import (
    XGBEstimator,
    XGBScalingConfig,
)
from partwise.engine.scaling import ScalingConfig
from partwise.errors import InputError

ROWS = pd.DataFrame({"X": np.arange(64.0), "Y": np.arange(64.0) * 2})


@pytest.mark.usefixtures("shared_cluster")
def test_an_estimator_is_fitted_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    estimator = XGBEstimator(
        params={"n_estimators": 3, "max_depth": 2, "eval_metric": "mae"},
        scaling_config=XGBScalingConfig(num_workers=1, num_cpu_per_worker=1),
    )
    with pytest.raises(InputError, match="call fit"):
        estimator.get_booster()
    connector = DataConnector.from_dataframe(ROWS)
    with pytest.warns(UserWarning, match="the log has every round"):
        booster = estimator.fit(connector, ["X"], "Y", eval_set=connector, verbose_eval=5)
    assert booster is estimator.get_booster()
    assert booster.num_boosted_rounds() == 3
    assert len(estimator.get_eval_results()["eval"]["mae"]) == 3
    assert estimator.predict(ROWS).shape == (64,)
    estimator.save_model("model.json")
    assert Path("model.json").exists()


@pytest.mark.parametrize(
    ("estimator", "rounds", "objective", "stopping"),
    [
        (XGBEstimator(7), 7, "reg:squarederror", None),
        (
            XGBEstimator(params={"num_boost_round": 4, "objective": "reg:gamma"}),
            4,
            "reg:gamma",
            None,
        ),
        (LightGBMEstimator(8), 8, "regression", None),
        (LightGBMEstimator(params={"num_rounds": 5, "loss": "fair"}), 5, "fair", None),
        (LightGBMEstimator(params={"early_stopping_rounds": 2}), 100, "regression", 2),
    ],
)
def test_params_override_arguments(
    estimator: Any, rounds: int, objective: str, stopping: int | None
) -> None:
    trainer = estimator._trainer(dict(estimator._settings), ["X"], "Y")
    assert (trainer.rounds, trainer.params["objective"]) == (rounds, objective)
    assert (trainer.early_stopping_rounds, trainer.label) == (stopping, "Y")


def test_what_an_estimator_does_not_take_is_said() -> None:
    with pytest.raises(InputError, match="train_fn_per_worker"):
        XGBEstimator(train_fn_per_worker=print)
    with pytest.raises(InputError, match="names 2 columns"):
        LightGBMEstimator().fit(ROWS, ["X"], ["Y", "X"])
    scaling = XGBEstimator(scaling_config=LightGBMScalingConfig(2, 1, use_gpu=False))._scaling
    assert scaling == ScalingConfig(ranks=2, cpus=1, gpus=0)


def train() -> None:
    import torch

    assert torch.distributed.is_initialized()
    context = get_context()
    rows = context.get_dataset_map()
    shard = rows["rows"].get_shard()
    (batch,) = shard.to_torch_dataset(batch_size=40)
    Path(context.get_model_dir(), "model.txt").write_text("model")
    context.get_metrics_reporter().log_metrics(
        {
            "rate": float(context.get_hyper_params()["rate"]),
            "losses": [2.0, 1.0],
            "batch": list(batch["X"].shape),
            "rows": len(shard.to_pandas()),
            "test": len(rows["test"].to_pandas()),
            "world": f"{context.get_rank()} of {context.get_world_size()}",
        }
    )


@pytest.mark.usefixtures("shared_cluster")
def test_a_function_of_torch_is_run_with_its_context(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    worker = WorkerResourceConfig(num_cpus=1)
    result = PyTorchDistributor(train, PyTorchScalingConfig(1, 1, worker)).run(
        dataset_map={
            "rows": ShardedDataConnector.from_dataframe(ROWS),
            "test": DataConnector.from_dataframe(ROWS.head(5)),
        },
        hyper_params={"rate": "0.5"},
        artifact_stage_location=str(tmp_path),
    )
    assert result.get_metrics() == {
        "rate": 0.5,
        "losses": [2.0, 1.0],
        "batch": [40, 1],
        "rows": 64,
        "test": 5,
        "world": "0 of 1",
    }
    assert Path(result.get_model_dir(), "model.txt").read_text() == "model"
    assert result.get_checkpoint_location().startswith(str(tmp_path))


def test_rows_by_name_become_data_and_eval_data() -> None:
    sharded = ShardedDataConnector.from_dataframe(ROWS, equal=False)
    found = placed({"test": ROWS, "train": sharded})
    assert (found.data.num_rows, list(found.eval_data)) == (64, ["test"])
    assert [place.source for place in found.places.values()] == ["test", "train"]
    assert [place.is_sharded for place in found.places.values()] == [False, True]
    assert placed(None).places == {}
    with pytest.raises(InputError, match="in a training function"):
        sharded.get_shard()
    scaling = own_scaling(PyTorchScalingConfig(2, 3, WorkerResourceConfig(num_gpus=1)))
    assert scaling == ScalingConfig(ranks=6, gpus=1)
    for nodes, workers in ((0, 1), (-1, -1), (None, 1), (1, "2")):
        with pytest.raises(InputError, match="is no whole number from 1 on"):
            own_scaling(PyTorchScalingConfig(nodes, workers, WorkerResourceConfig()))
    with pytest.raises(InputError, match="gpus 'x'"):
        XGBEstimator(scaling_config=XGBScalingConfig(use_gpu="x"))
    with pytest.raises(RuntimeError, match="rank"):
        get_context()
