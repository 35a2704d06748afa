"""Positions: how many tokens a model takes, and cases that reach the last of them.

What a model makes of a position is a row of a table (BERT, GPT-2) or is computed (T5, Llama). Of a
table every row is needed for one text as long as the model takes: one row of a batch, since memory
grows with the square of the length.
"""

import math
from dataclasses import replace
from typing import Any

from partwise.errors import ExportRefusedError
from partwise.exports.proof.cases import Cases
from partwise.exports.proof.verdict import Case
from partwise.formatting import reason
from partwise.transformers.flat_model import run_model
from partwise.transformers.model_parts import text_part
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.sizes import Sizes

LONG_TEXT = 300
"""Tokens, where a model takes any number. LongT5 looks back at 127; T5 has one bias for all that is
128 away."""

CASE_BYTES = 4 * 2**30
"""What the comparison of one case may take, unless the options name a length."""

_UNUSED = 8
"""Places at the end of a table that a model may keep for itself, without its modules saying so."""

_PROBED = 16
"""Tokens of a text that shows how many values there are for each."""

_BYTES_OF_VALUE = 12
"""In single precision: here, on its way to the judge, and there."""
_BYTES_OF_COMPARED = 56
"""In double precision: what is expected and given, their differences, and what is allowed."""
_BYTES_OF_SCORE = 12
"""Of one token for another, in one head: before and after the mask and the softmax."""

_SEED = 101


def long_texts(model: Any, config: OnnxConfig, options: TransformersOptions) -> Cases:
    """Return cases up to the last token that a model takes, as far as memory suffices.

    Without past, one text has all positions. With past there are three cases: one earlier token
    and a long text; half of all tokens and two more; and all tokens but the last one.

    The options say the longest text that is wanted. Metrics are export_longest_text, and of a model
    that does not take any number of tokens export_most_tokens. ExportRefusedError where the model
    itself fails on as many tokens as its configuration says.
    """
    if not any("sequence" in axis for axis in parts_of_axes(config)):
        return Cases()
    most = most_tokens(model)
    wanted = options.longest_text or _affordable(model, config, most or LONG_TEXT)
    longest, first = _longest(model, config, min(wanted, most or wanted), most)
    more = {
        name: config.generate_dummy_inputs(sizes, _SEED + place)
        for place, (name, sizes) in enumerate(_sizes_after_past(config, longest).items(), 1)
    }
    cases = [
        Case(name=name, feeds=feeds, expected=run_model(model, config, feeds))
        for name, feeds in more.items()
    ]
    metrics = {"export_longest_text": float(longest)}
    notes = []
    if most is not None:
        metrics["export_most_tokens"] = float(most)
        if longest < most:
            notes.append(
                f"Compared on texts of up to {longest:,} of the {most:,} tokens that it takes: "
                "longest_text (--longest-text) has it compared on longer ones."
            )
        if any(hasattr(part, "make_weights") for part in model.modules()):
            notes.append(
                f"The file fails on more than {most:,} tokens, where the model itself computes "
                "further positions: export it with a larger max_position_embeddings in its "
                "config.json, which no weight depends on."
            )
    return Cases(cases=(first, *cases), notes=tuple(notes), metrics=metrics)


def most_tokens(model: Any) -> int | None:
    """Return the most tokens that a model takes, earlier ones among them; None: any number."""
    text = text_part(model.config)
    most = getattr(text, "max_position_embeddings", getattr(text, "max_target_positions", None))
    if not isinstance(most, int) or most < 1:
        return None
    # RoBERTa and its kin number tokens from behind that of padding.
    unused = [
        part.padding_idx + 1
        for name, part in model.named_modules()
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None
    ]
    return most - max(unused, default=0)


def _affordable(model: Any, config: OnnxConfig, most: int) -> int:
    """Return so many tokens, or fewer where the comparison would take more than `CASE_BYTES`."""
    if most <= _PROBED:
        return most
    feeds = config.generate_dummy_inputs(_long_row(config, _PROBED))
    given = run_model(model, config, feeds)
    values = sum(each.size for each in (*feeds.values(), *given.values()))
    largest = max(each.size for each in given.values())
    each = (_BYTES_OF_VALUE * values + _BYTES_OF_COMPARED * largest) / _PROBED
    heads = getattr(text_part(model.config), "num_attention_heads", None)
    pair = _BYTES_OF_SCORE * (heads if isinstance(heads, int) else 16)
    # The n for which pair * n**2 + each * n is CASE_BYTES.
    affordable = (math.sqrt(each**2 + 4 * pair * CASE_BYTES) - each) / (2 * pair)
    return min(most, max(LONG_TEXT, int(affordable)))


def _longest(model: Any, config: OnnxConfig, tokens: int, most: int | None) -> tuple[int, Case]:
    """Return the longest text that a model runs on, of so many tokens or a little fewer."""
    # Where they are fewer than it takes, none of them is kept for itself.
    least = tokens if most is None or tokens < most else max(1, tokens - _UNUSED)
    length = tokens
    while True:
        feeds = config.generate_dummy_inputs(_long_row(config, length), _SEED)
        try:
            expected = run_model(model, config, feeds)
        except Exception as error:  # an index out of range, or sizes that do not fit
            if length <= least:
                raise ExportRefusedError(
                    f"{type(model).__name__} does not run on {tokens:,} tokens, as many as its "
                    f"configuration says that it takes: {reason(error)} Correct "
                    "max_position_embeddings, or name a shorter longest_text (--longest-text)."
                ) from error
            length -= 1
            continue
        return length, Case(name="one long row", feeds=feeds, expected=expected)


def _long_row(config: OnnxConfig, length: int) -> Sizes:
    """Return the sizes of one row of so many tokens, the first of which is the past."""
    past = int(takes_past(config) and length > 1)
    return replace(
        config.sizes_for_export,
        batch=1,
        choices=2,
        sequence=length if _has_encoder(config) else length - past,
        decoder_sequence=length - past,
        past=past,
    )


def _sizes_after_past(config: OnnxConfig, longest: int) -> dict[str, Sizes]:
    """Return the sizes of a short text after a long past: to the middle, and to the last place."""
    if not takes_past(config) or longest < 4:
        return {}
    middle, last = longest // 2, longest - 1
    encoder = _has_encoder(config)
    return {
        name: replace(
            config.sizes_for_export,
            batch=batch,
            sequence=past if encoder else count,
            decoder_sequence=count,
            past=past,
        )
        for name, batch, past, count in (
            ("after half of the tokens", 2, middle, 2),
            ("the last token", 1, last, 1),
        )
    }


def takes_past(config: OnnxConfig) -> bool:
    """Whether keys and values of earlier tokens are inputs."""
    return bool(parts_of_axes(config) & {"past_sequence", "past_decoder_sequence"})


def _has_encoder(config: OnnxConfig) -> bool:
    return "encoder_sequence" in parts_of_axes(config)


def parts_of_axes(config: OnnxConfig) -> set[str]:
    """Return the names of the free axes of the inputs, and of a sum those that it adds up."""
    return {
        part
        for axes in config.inputs.values()
        for axis in axes.values()
        for part in axis.split(" + ")
    }
