"""Precision: what the model's own arithmetic allows for."""

import copy
from typing import Any

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.transformers.flat_model import run_model
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.proof import Expected

_LARGEST_BYTES = 4_000_000_000
"""Of a model's weights that are copied to double precision."""


def check_precision(model: Any) -> None:
    """Return when a model has single precision, on the CPU."""
    import torch

    if elsewhere := {str(weights.device) for weights in model.parameters()} - {"cpu"}:
        raise ExportRefusedError(
            f"{type(model).__name__} has weights on {', '.join(sorted(elsewhere))}: export "
            "model.cpu()."
        )
    dtypes = {weights.dtype for weights in model.parameters() if weights.is_floating_point()}
    if others := sorted(str(dtype) for dtype in dtypes - {torch.float32}):
        raise ExportRefusedError(
            f"{type(model).__name__} has weights of {', '.join(others)}: export model.float()."
        )


def precision_notes(model: Any, config: OnnxConfig, expected: Expected) -> tuple[str, ...]:
    """Say how far a model is from itself in double precision, for one whose export differs.

    An export adds the same numbers in another order. Where the model itself is as far from what
    it gives in double precision, the difference is that of the arithmetic, and no mistake.
    """
    import torch

    if sum(weights.nbytes for weights in model.parameters()) > _LARGEST_BYTES:
        return ()
    largest = 0.0
    try:
        # Of a copy: double() changes the module itself, and the model is its caller's.
        double = copy.deepcopy(model).double()
        before = torch.get_default_dtype()
        # Of it are the tensors that a model makes on its way.
        torch.set_default_dtype(torch.float64)
        try:
            for case in expected.cases:
                feeds = {name: _in_double(values) for name, values in case.feeds.items()}
                for name, values in run_model(double, config, feeds).items():
                    largest = max(
                        largest, float(np.abs(values - case.expected[name]).max(initial=0))
                    )
        finally:
            torch.set_default_dtype(before)
    except Exception:  # of a model that is not made for it; the note is an extra
        return ()
    note = (
        f"In single precision the model itself is up to {largest:.2g} from what it gives in double "
        "precision. Where the export differs by as much, that is the arithmetic, and a larger atol "
        "allows for it."
    )
    return (note,)


def _in_double(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if values.dtype.kind == "f" else values
