"""Patches: functions of transformers that no graph of free sizes can be captured from."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MODULES = (
    "transformers.models.mbart.modeling_mbart",
    "transformers.models.plbart.modeling_plbart",
)


@contextmanager
def patched() -> Iterator[None]:
    """Put functions that give the same in the place of those, and these back afterwards."""
    found = [sys.modules[name] for name in _MODULES if name in sys.modules]
    originals: list[tuple[Any, Any]] = [(module, module.shift_tokens_right) for module in found]
    try:
        for module, _ in originals:
            module.shift_tokens_right = shift_tokens_right
        yield
    finally:
        for module, original in originals:
            module.shift_tokens_right = original


def shift_tokens_right(input_ids: Any, pad_token_id: int) -> Any:
    """Return tokens moved by one, with the last one that is no padding in front.

    The original squeezes all axes of size 1 away: the graph that is captured of it with two rows
    and more does not run on one.

    Args:
        input_ids: A tensor (rows, tokens).
        pad_token_id: The token that is padding.
    """
    import torch

    tokens = torch.where(input_ids == -100, pad_token_id, input_ids)
    last = (tokens != pad_token_id).sum(dim=1, keepdim=True) - 1
    return torch.cat([tokens.gather(1, last), tokens[:, :-1]], dim=1)
