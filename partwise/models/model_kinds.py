"""Models of partwise's own by the names that files have for their kinds."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from partwise.models.composite_models import IntervalModel, LagModel, QuantileModel
from partwise.models.plain_models import (
    ConstantModel,
    Design,
    ForecastModel,
    ForestModel,
    LinearModel,
    PlainModel,
)
from partwise.tables.steps import StepScale

_KINDS: dict[str, type[PlainModel]] = {
    kind.KIND: kind
    for kind in (
        *(ConstantModel, ForecastModel, LinearModel, ForestModel),
        *(LagModel, IntervalModel, QuantileModel),
    )
}


def plain_model(written: Mapping[str, Any]) -> PlainModel:
    """Return the model that `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    values = dict(written)
    kind = _KINDS[values.pop("kind")]
    for name, value in values.items():
        if isinstance(value, dict) and "dtype" in value:
            values[name] = _array_of_json(value)
    if "scale" in values:
        values["scale"] = StepScale(**values["scale"])
    for name in ("lags", "means", "models", "levels", "half_widths", "quantiles"):
        if name in values:
            values[name] = tuple(values[name])
    if "design" in values:
        values["design"] = Design(**values["design"])
    if kind is LinearModel and "centres" not in values:
        # Until 2026-11 they were folded into weights and intercepts.
        count = len(values["weights"])
        values |= {"centres": np.zeros(count), "scales": np.ones(count)}
    return kind(**values)


def _array_of_json(written: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(written["dtype"])
    if dtype.kind not in "fi":
        raise ValueError(f"an array of {dtype} is not an array of numbers")
    content = base64.b64decode(written["base64"], validate=True)
    return np.frombuffer(content, dtype).reshape(written["shape"])
