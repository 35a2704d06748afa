"""Functions for the tests of exports: a module of its own, which workers import at no cost."""

from typing import Any

import numpy as np

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector

FEATURES = ["price", "seen"]


def train_in_two_ways(matrix: np.ndarray, labels: np.ndarray, names: list[str]) -> Any:
    """Train a model that takes zeros for missing values in some trees, which ONNX cannot."""
    import lightgbm

    settings = {"num_threads": 1, "verbosity": -1, "min_data_in_leaf": 2}
    model = None
    for zero_as_missing in (True, False):
        rows = lightgbm.Dataset(matrix, labels, feature_name=names, free_raw_data=False)
        changed = {**settings, "zero_as_missing": zero_as_missing}
        model = lightgbm.train(changed, rows, 3, init_model=model)
    return model


def fit_in_two_ways(data: DataConnector, context: PartitionContext) -> Any:
    matrix = data.to_numpy(FEATURES)
    matrix[::5] = np.nan
    return train_in_two_ways(matrix, data.to_numpy("sales"), FEATURES)


def net_matrix(data: DataConnector) -> np.ndarray:
    matrix = np.nan_to_num(data.to_numpy(FEATURES))
    return ((matrix - [10, 1.7e9]) / [3, 1e6]).astype(np.float32)


def fit_net(data: DataConnector, context: PartitionContext) -> Any:
    import torch

    torch.manual_seed(context.seed)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 256), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(256, 1)
    )


def net_inputs(data: DataConnector, model: Any, context: PartitionContext) -> dict[str, np.ndarray]:
    return {"input": net_matrix(data)}


def predict_net(data: DataConnector, model: Any, context: PartitionContext) -> np.ndarray:
    if hasattr(model, "signature"):
        return model.signature.predictions(model.run({"input": net_matrix(data)}))
    import torch

    with torch.no_grad():
        return model.eval()(torch.from_numpy(net_matrix(data)))[:, 0].numpy()


def fit_some_wrong(data: DataConnector, context: PartitionContext) -> Any:
    """Train models, of which that of key 3 cannot be exported rightly."""
    import lightgbm

    names = ["x", "z"]
    matrix, labels = data.to_numpy(names), data.to_numpy("y")
    if context.key == 3:
        matrix[::5] = np.nan
        return train_in_two_ways(matrix, labels, names)
    rows = lightgbm.Dataset(matrix, labels, feature_name=names)
    return lightgbm.train({"num_threads": 1, "verbosity": -1}, rows, 3)


def fit_ridge(data: DataConnector, context: PartitionContext) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge().fit(data.to_pandas()[["day"]], data.to_numpy("sales"))


def fit_keras(data: DataConnector, context: PartitionContext) -> Any:
    import keras

    keras.utils.set_random_seed(context.seed % 2**32)
    layers = [keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse", run_eagerly=True)  # a graph would take longer than the step
    rows = np.nan_to_num(data.to_numpy(["day", "price"])).astype(np.float32)
    model.train_on_batch(rows, data.to_numpy("sales"))
    model.feature_names_in_ = ["day", "price"]
    return model


def predict_keras(data: DataConnector, model: Any, context: PartitionContext) -> np.ndarray:
    rows = np.nan_to_num(data.to_numpy(["day", "price"])).astype(np.float32)
    return model(rows, training=False).numpy()[:, 0]
