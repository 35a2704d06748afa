"""Attention to blocks of tokens, which BigBird has: no graph of free sizes holds it."""

from typing import Any

from partwise.errors import ExportRefusedError

_SPARSE, _FULL = "block_sparse", "original_full"


def check_attention(model_config: Any) -> None:
    """Return when a model looks at all tokens of a text."""
    if getattr(model_config, "attention_type", None) != _SPARSE:
        return
    raise ExportRefusedError(
        f"The {model_config.model_type} has attention_type={_SPARSE!r}, which cannot be exported. "
        f"For texts of up to {_longest_full(model_config):,} tokens the model itself looks at all "
        "of them: to export it so for texts of any length, pass full_attention=True "
        f"(--full-attention), or load it with attention_type={_FULL!r}. For longer texts the file "
        "then gives other values than the model does now."
    )


def look_at_all_tokens(model_config: Any) -> tuple[str, ...]:
    """Let a model that is not loaded yet look at all tokens, and return what is to be known of it.

    The configuration is changed.
    """
    if getattr(model_config, "attention_type", None) != _SPARSE:
        return ()
    model_config.attention_type = _FULL
    note = (
        f"It looks at all tokens, as is wanted by full_attention. For texts of more than "
        f"{_longest_full(model_config):,} tokens it gives other values than with {_SPARSE} "
        "attention."
    )
    return (note,)


def _longest_full(model_config: Any) -> int:
    """Return the tokens up to which the model goes over to full attention by itself.

    So says `max_tokens_to_attend` of transformers' modeling_big_bird.py.
    """
    return int((5 + 2 * model_config.num_random_blocks) * model_config.block_size)
