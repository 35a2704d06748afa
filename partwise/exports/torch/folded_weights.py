"""What the converter makes of a layer and the BatchNorm behind it: one layer with other weights.

With gamma, beta, mean and variance of the BatchNorm, in the layer's own precision:

    factor = gamma / sqrt(variance + eps)
    weight' = weight * factor, by output channel
    bias' = (bias - mean) * factor + beta

Source: the rule `FuseBatchNorm...` of onnxscript (0.7), rewriter/rules/common/_fuse_batchnorm.py.
"""

from typing import Any

import numpy as np


def folded_weights(module: Any) -> dict[str, np.ndarray]:
    """Return the weights that layers have once the BatchNorm defined next is folded into them.

    Layers that a module runs in another order than it defines them in give weights that are in no
    file, which does no harm.
    """
    import torch

    layers = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    folded: dict[str, np.ndarray] = {}
    name, layer = "", None
    for place, part in module.named_modules():
        if isinstance(part, layers):
            name, layer = place, part
        elif isinstance(part, norms) and layer is not None:
            if part.running_var is not None and part.num_features == len(layer.weight):
                weight, bias = _folded(layer, part)
                folded[f"{name}.weight with {place}"] = weight
                folded[f"{name}.bias with {place}"] = bias
            layer = None
    return folded


def _folded(layer: Any, norm: Any) -> tuple[np.ndarray, np.ndarray]:
    def values(tensor: Any, otherwise: float) -> np.ndarray:
        if tensor is None:
            return np.full(norm.num_features, otherwise, weight.dtype)
        return np.asarray(tensor.detach().cpu().numpy())

    weight = layer.weight.detach().cpu().numpy()
    mean, variance = values(norm.running_mean, 0), values(norm.running_var, 1)
    with np.errstate(all="ignore"):
        factor = values(norm.weight, 1) / np.sqrt(variance + norm.eps)
        bias = (values(layer.bias, 0) - mean) * factor + values(norm.bias, 0)
        return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), bias
