"""Modules that the tests of all torch formats export."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

COLUMNS = ["a", "b", "c", "d"]
_RANDOM = np.random.default_rng(0)
ROWS = pa.table({name: _RANDOM.normal(size=20) for name in COLUMNS})
SHOP_FEEDS = {
    "shop": np.arange(6) % 10,
    "numbers": _RANDOM.normal(size=(6, 2)).astype(np.float32),
}
FEEDS = {"x": _RANDOM.normal(size=(5, 4)).astype(np.float32)}


def make_mlp(outputs: int = 1) -> torch.nn.Module:
    """With layers that behave otherwise in training, in which mode it is."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(64, outputs),
    )
    model(torch.randn(50, 4))  # moves the means of BatchNorm
    model.feature_names_in_ = COLUMNS
    return model


class ShopModel(torch.nn.Module):
    """Two inputs, one of them whole numbers, and two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shops = torch.nn.Embedding(10, 3)
        self.last = torch.nn.Linear(5, 2)

    def forward(self, numbers: torch.Tensor, shop: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.last(torch.cat([numbers, self.shops(shop)], 1))
        return {"mean": found[:, :1], "spread": found[:, 1].exp()}


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Function(torch.nn.Module):
    """What a function makes of one input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor):
        return self.function(x)


class ByPlace(Function):
    def forward(self, *inputs: torch.Tensor):
        return self.function(*inputs)


class ByName(Function):
    def forward(self, **inputs: torch.Tensor):
        return self.function(**inputs)


class OfLayers(torch.nn.Module):
    """What a function makes of layers and inputs."""

    def __init__(self, function, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, shop: torch.Tensor | None = None) -> torch.Tensor:
        return self.function(self.layers, *([x] if shop is None else [x, shop]))


class Taken(torch.nn.Module):
    """What a layer gives first, as recurrent layers give their states too."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.layer(x)
        return found[0] if isinstance(found, tuple) else found


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Turned(torch.nn.Module):
    """With complex numbers, as rotary embeddings of positions have them."""

    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        self.register_buffer(
            "turns", torch.polar(torch.ones(2), torch.tensor([0.5, 0.7])).to(dtype)
        )
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 2, 2))
        return self.layer(torch.view_as_real(pairs * self.turns).flatten(-2))


def choose(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


def branch(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else -x
