"""Networks for the tests of answers: a module of its own, which workers import at no cost."""

from typing import Any

import numpy as np

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector

SIZES = ["size", "store"]


def fit_torch(data: DataConnector, context: PartitionContext) -> Any:
    import torch

    torch.manual_seed(context.seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model.feature_names_in_ = SIZES
    return model


def fit_dense(data: DataConnector, context: PartitionContext) -> Any:
    import keras

    keras.utils.set_random_seed(context.seed % 2**32)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model(np.ones((1, 2), np.float32))
    model.feature_names_in_ = SIZES
    return model
