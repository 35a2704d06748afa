"""Patches: parts of transformers that no graph of free sizes can be captured from, or written."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MODELS = "transformers.models"
_SHIFTING = (f"{_MODELS}.mbart.modeling_mbart", f"{_MODELS}.plbart.modeling_plbart")
_BLOOM = f"{_MODELS}.bloom.modeling_bloom"


@contextmanager
def patched() -> Iterator[None]:
    """Put functions that give the same in the place of those, and these back afterwards."""
    found = [(owner, name, getattr(owner, name), new) for owner, name, new in _patches()]
    try:
        for owner, name, _, new in found:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, original, _ in found:
            setattr(owner, name, original)


def _patches() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Give a module or class that is loaded, the name of a function of it, and another function."""
    # Only of modules that are imported, as that of the model at hand is: others need no patch.
    for name in _SHIFTING:
        if module := sys.modules.get(name):
            yield module, "shift_tokens_right", shift_tokens_right
    if bloom := sys.modules.get(_BLOOM):
        # A function that brings its own gradient cannot be written as TorchScript.
        yield bloom.BloomGelu, "forward", staticmethod(bloom.bloom_gelu_forward)


def shift_tokens_right(input_ids: Any, pad_token_id: int) -> Any:
    """Return tokens moved by one, with the last one that is not padding in front.

    The original squeezes all axes of size 1 away: the graph that is captured of it with two rows
    and more does not run on one.
    """
    import torch

    tokens = torch.where(input_ids == -100, pad_token_id, input_ids)
    last = (tokens != pad_token_id).sum(dim=1, keepdim=True) - 1
    return torch.cat([tokens.gather(1, last), tokens[:, :-1]], dim=1)
