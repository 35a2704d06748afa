"""Odd tokens: numbers that a model has no row for, on which it raises and its file has to fail."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from partwise.exports.proof.odd_inputs import odd_case
from partwise.exports.proof.verdict import Case
from partwise.models.guards import Guard
from partwise.transformers.flat_model import run_model
from partwise.transformers.model_parts import text_part
from partwise.transformers.onnx_config import OnnxConfig

_TOKENS = ("input_ids", "decoder_input_ids", "inputs")
_ROWS_OF = {**dict.fromkeys(_TOKENS, "vocab_size"), "token_type_ids": "type_vocab_size"}

_SEED = 201


def odd_token_cases(model: Any, config: OnnxConfig) -> list[Case]:
    """Return cases with one token of -1, and with one beyond the last that a model knows.

    Of -1 an ONNX file takes the last row of a table, unless it has a guard.
    """
    feeds = config.generate_dummy_inputs(config.sizes_for_export, _SEED)
    cases = []
    for name, value, guard in _odd_tokens(model, feeds):
        odd = {**feeds, name: feeds[name].copy()}
        odd[name].flat[0] = value
        run = partial(run_model, model, config)
        cases.append(odd_case(f"{value} in {name!r}", odd, (guard,), run))
    return cases


def _odd_tokens(model: Any, feeds: dict[str, np.ndarray]) -> Iterator[tuple[str, int, Guard]]:
    """Yield the name of an input, a number that is odd there, and the guard that refuses it."""
    for name, size in _ROWS_OF.items():
        if name not in feeds or feeds[name].dtype.kind != "i" or not feeds[name].size:
            continue
        yield name, -1, Guard(input=name, refuses="below", limit=0)
        rows = getattr(text_part(model.config), size, None)
        if isinstance(rows, int) and rows > 0:
            yield name, rows, Guard(input=name, refuses="above", limit=rows - 1)
