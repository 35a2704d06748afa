"""Candidates for the flow tests of Best, which workers import by name."""

import numpy as np


def fit_nothing(data, context):
    raise ValueError("this candidate fails")


def fit_shifted(data, context):
    return {"mean": float(data.to_arrow()["y"].to_numpy().mean()) + context.params.get("by", 1.0)}


def predict_shifted(data, model, context):
    return np.full(data.to_arrow().num_rows, model["mean"])


def fit_median(data, context):
    return float(np.median(data.to_arrow()["value"].to_numpy()))
