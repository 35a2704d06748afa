"""Dummy inputs: arrays that a model takes, made from its configuration, without a tokenizer."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from partwise.errors import InputError
from partwise.tables.column_names import names_in_words
from partwise.transformers.features import Axes
from partwise.transformers.model_parts import text_part, vision_part
from partwise.transformers.sizes import Sizes

_LARGEST_BOX = 1000
"""Corners of words on a page are in thousandths of it."""


class DummyInputs:
    """Makes inputs by their names. Equal arguments make equal arrays.

    Tokens are any but the special ones. A row ends with the token that ends a sentence, if the
    model has one, and a part of the last of several rows is masked, as padding would be.
    """

    def __init__(self, config: Any, inputs: Mapping[str, Axes], sizes: Sizes, seed: int) -> None:
        self._config = config
        self._inputs = inputs
        self._sizes = sizes
        self._random = np.random.default_rng(seed)

    def of(self, name: str) -> np.ndarray:
        """Return the input of this name."""
        match name:
            case "input_ids" | "decoder_input_ids" | "inputs" if len(self._axes(name)) > 1:
                return self._tokens(self._shape(name))
            case "attention_mask" | "decoder_attention_mask":
                return self._mask(self._shape(name), from_left="past" in str(self._axes(name)))
            case "global_attention_mask":
                return self._random.integers(0, 2, self._shape(name))
            case "token_type_ids":
                return self._random.integers(0, self._token_types(), self._shape(name))
            case "bbox":
                return self._boxes(self._shape(name))
            case "pixel_values" | "inputs":
                sizes = self._sizes
                return self.numbers((sizes.batch, self._channels(), sizes.height, sizes.width))
            case "input_features":
                config = self._config
                # The encoder halves them.
                frames = 2 * int(config.max_source_positions)
                return self.numbers((self._sizes.batch, int(config.num_mel_bins), frames))
            case "pixel_mask":
                sizes = self._sizes
                return self._mask((sizes.batch, sizes.height, sizes.width), from_left=False)
            case _:
                known = ["input_ids", "attention_mask", "token_type_ids", "bbox", "pixel_values"]
                raise InputError(
                    f"How to make the input {name!r} is not known; known are "
                    f"{names_in_words(known)} and the like. Override generate_dummy_inputs in the "
                    "configuration."
                )

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return normal numbers in single precision."""
        return self._random.standard_normal(shape, np.float32)

    def _axes(self, name: str) -> list[str]:
        return list(self._inputs[name].values())

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._sizes.of_axis(axis) for axis in self._axes(name))

    def _tokens(self, shape: tuple[int, ...]) -> np.ndarray:
        config = text_part(self._config)
        special = {
            value
            for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
            if isinstance(value := getattr(config, name, None), int)
        }
        vocabulary = np.arange(int(config.vocab_size))
        plain = np.setdiff1d(vocabulary, list(special))
        tokens = self._random.choice(plain, shape).astype(np.int64)
        end = getattr(config, "eos_token_id", None)
        if isinstance(end, int) and end in vocabulary:
            # Classifiers of BART and T5 read that token, and want as many in each row (5.23).
            tokens[..., -1] = end
        return tokens

    def _mask(self, shape: tuple[int, ...], *, from_left: bool) -> np.ndarray:
        mask = np.ones(shape, np.int64)
        if shape[0] > 1 and shape[-1] > 2:
            # Of the past the oldest are masked, of a text that is read whole the last.
            if from_left:
                mask[-1, ..., :1] = 0
            else:
                mask[-1, ..., -max(1, shape[-1] // 8) :] = 0
        return mask

    def _boxes(self, shape: tuple[int, ...]) -> np.ndarray:
        largest = getattr(self._config, "max_2d_position_embeddings", None) or _LARGEST_BOX + 1
        corners = self._random.integers(0, min(_LARGEST_BOX + 1, int(largest)), (*shape, 2, 2))
        return np.sort(corners, axis=-2).reshape(*shape, 4)

    def _token_types(self) -> int:
        return max(1, int(getattr(self._config, "type_vocab_size", None) or 2))

    def _channels(self) -> int:
        return int(getattr(vision_part(self._config), "num_channels", None) or 3)
