"""Patches: parts of transformers that no graph of free sizes can be captured from, or written."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MODELS = "transformers.models"
_SHIFTING = (f"{_MODELS}.mbart.modeling_mbart", f"{_MODELS}.plbart.modeling_plbart")
_BLOOM = f"{_MODELS}.bloom.modeling_bloom"
_LONGFORMER = f"{_MODELS}.longformer.modeling_longformer"


Patch = tuple[Any, str, Callable[..., Any]]
"""A module or class that is loaded, the name of a function of it, and another function."""


@contextmanager
def patched(*others: Patch) -> Iterator[None]:
    """Put functions that give the same in the place of those, and these back afterwards."""
    patches = (*_patches(), *others)
    found = [(owner, name, getattr(owner, name), new) for owner, name, new in patches]
    try:
        for owner, name, _, new in found:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, original, _ in found:
            setattr(owner, name, original)


def _patches() -> Iterator[Patch]:
    # Only of modules that are imported, as that of the model at hand is: others need no patch.
    for name in _SHIFTING:
        if module := sys.modules.get(name):
            yield module, "shift_tokens_right", shift_tokens_right
    if bloom := sys.modules.get(_BLOOM):
        # A function that brings its own gradient cannot be written as TorchScript.
        yield bloom.BloomGelu, "forward", staticmethod(bloom.bloom_gelu_forward)
    if longformer := sys.modules.get(_LONGFORMER):
        # What it does with windows has branches of its own for lengths and for values.
        yield longformer.LongformerModel, "_pad_to_window_size", _not_padded
        yield longformer.LongformerSelfAttention, "forward", attend_by_masks


def shift_tokens_right(input_ids: Any, pad_token_id: int) -> Any:
    """Return tokens moved by one, with the last one that is not padding in front.

    The original squeezes all axes of size 1 away: the graph that is captured of it with two rows
    and more does not run on one.
    """
    import torch

    tokens = torch.where(input_ids == -100, pad_token_id, input_ids)
    last = (tokens != pad_token_id).sum(dim=1, keepdim=True) - 1
    return torch.cat([tokens.gather(1, last), tokens[:, :-1]], dim=1)


def attend_by_masks(
    self: Any,
    hidden_states: Any,
    attention_mask: Any = None,
    is_index_masked: Any = None,
    is_index_global_attn: Any = None,
    **_: Any,
) -> tuple[Any]:
    """Return what Longformer's attention gives, computed for all pairs of tokens, with masks.

    A token sees those nearby and the global ones; a global one sees all, by weights of its own.
    """
    import torch

    rows, length, _size = hidden_states.shape

    def heads(layer: Any) -> Any:
        return layer(hidden_states).view(rows, length, -1, self.head_dim).transpose(1, 2)

    def attend(query: Any, key: Any, value: Any, is_seen: Any) -> Any:
        scores = heads(query) / self.head_dim**0.5 @ heads(key).transpose(2, 3)
        least = torch.finfo(scores.dtype).min
        return scores.masked_fill(~is_seen[:, None], least).softmax(-1), heads(value)

    places = torch.arange(length)
    is_near = (places - places[:, None]).abs() <= self.one_sided_attn_window_size
    is_seen = is_index_global_attn[:, None] | (is_near & (attention_mask == 0)[:, None])
    shares, values = attend(self.query, self.key, self.value, is_seen)
    found = shares.masked_fill(is_index_masked[:, None, :, None], 0) @ values
    is_seen = ~is_index_masked[:, None].expand(rows, length, length)
    shares, values = attend(self.query_global, self.key_global, self.value_global, is_seen)
    found = torch.where(is_index_global_attn[:, None, :, None], shares @ values, found)
    return (found.transpose(1, 2).reshape(hidden_states.shape),)


def _not_padded(
    _model: Any,
    input_ids: Any,
    attention_mask: Any,
    token_type_ids: Any,
    position_ids: Any,
    inputs_embeds: Any,
    pad_token_id: int,  # noqa: ARG001 (the original's)
) -> tuple[Any, ...]:
    """Return a text as it is: `attend_by_masks` takes any length."""
    return 0, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds
