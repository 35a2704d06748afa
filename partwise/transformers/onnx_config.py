"""OnnxConfig: what a model takes and gives when it is exported, to be derived from for a new one.

The names are those of transformers 4, whose `transformers.onnx` is gone. What differs: dummy inputs
are arrays by name, of any `Sizes`, and nothing is asked of a tokenizer.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from partwise.errors import InputError
from partwise.transformers.dummy_inputs import DummyInputs
from partwise.transformers.features import (
    DECODED,
    TOKENS,
    WITH_PAST,
    Axes,
    feature_of,
    is_with_past,
)
from partwise.transformers.model_parts import text_part, vision_part
from partwise.transformers.sizes import Sizes

LOWEST_OPSET = 18
"""torch's exporter translates to this one, and lifts that to a newer one where it is asked to."""

LOWEST_TRACED_OPSET = 11
"""From here on torch's former exporter writes them, of a trace. transformers 4 had this default."""

HIGHEST_OPSET = 25
"""The newest one that onnxscript 0.7 lifts a graph to."""


_LONGER_TEXT = 24
"""Tokens, more than a graph is captured with. Texts as long as a model takes are cases as well."""

_IMAGE_STEP = 32
"""Pixels by which sizes of images differ: a whole number of patches of most models."""


class OnnxConfig(ABC):
    """What a model takes and gives for a feature.

    Args:
        config: The model's own, a `transformers.PreTrainedConfig`.
        task: The feature, such as "sequence-classification".

    Example:
        >>> class MyOnnxConfig(OnnxConfig):
        ...     @property
        ...     def inputs(self):
        ...         tokens = {0: "batch", 1: "sequence"}
        ...         return {"input_ids": tokens, "attention_mask": tokens}
    """

    default_onnx_opset: ClassVar[int] = LOWEST_OPSET
    """The version of ONNX' operators that it is exported with. Where it is another one than 18, it
    is also the lowest that suffices."""
    forward_arguments: ClassVar[Mapping[str, Any]] = {}
    """Arguments of the model's forward that are not inputs, such as interpolate_pos_encoding."""
    scaled_for_validation: float = 5e-5
    """Values may differ by this part of the size that those of their output have, the median, and
    by `rtol_for_validation` of the expected one. The arithmetic of 12 layers takes 1e-5."""
    rtol_for_validation: float = 1e-4
    atol_for_validation: float | None = None
    """Values may differ by this in place of `scaled_for_validation`."""
    notes: tuple[str, ...] = ()
    """What a person who uses the export has to know, in sentences."""

    def __init__(self, config: Any, task: str = "default") -> None:
        self.config = config
        self.task = task
        self.feature = feature_of(task)

    @classmethod
    def from_model_config(cls, config: Any, task: str = "default") -> "OnnxConfig":
        """Return the configuration of a model for a feature."""
        return cls(config, task)

    @property
    def auto_class(self) -> str:
        """The class of transformers that loads the model for the feature."""
        return self.feature.auto_class

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Axes]:
        """The inputs in order, each with its free axes."""

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """The outputs in order, each with its free axes."""
        return self.feature.outputs

    @property
    def values_override(self) -> Mapping[str, Any]:
        """Values that the model's configuration has while it is exported and compared with."""
        return {"use_cache": False} if hasattr(self.config, "use_cache") else {}

    def generate_dummy_inputs(
        self, sizes: Sizes | Any, seed: int = 0, *others: Any, **named: Any
    ) -> dict[str, Any]:
        """Return inputs of these sizes, by name in order; equal seeds give equal inputs.

        Or with the arguments of transformers 4: (preprocessor, batch_size, seq_length, num_choices,
        is_pair, framework). Of these the sizes count, and "pt" as the framework: then they are
        tensors. Override it, with (sizes, seed=0), for an input that it does not know by name.

        Raises:
            InputError: It does not know one, or there is no such framework.
        """
        if not isinstance(sizes, Sizes):
            return self._as_in_guides(named.pop("batch_size", seed), *others, **named)
        made = DummyInputs(self.config, self.inputs, sizes, seed)
        return {name: self._dummy_input(name, made, sizes) for name in self.inputs}

    def _dummy_input(self, name: str, made: DummyInputs, sizes: Sizes) -> np.ndarray:  # noqa: ARG002
        return made.of(name)

    def _as_in_guides(
        self,
        batch_size: int,
        seq_length: int = -1,
        num_choices: int = -1,
        is_pair: bool = False,  # noqa: ARG002 (theirs)
        framework: str | None = None,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        if framework not in (None, "np", "pt"):
            raise InputError(f"framework={framework!r} is not there: give 'pt' or 'np'.")
        given = {"batch": batch_size, "sequence": seq_length, "choices": num_choices}
        # As there, what is not positive is left to the configuration.
        chosen = {name: size for name, size in given.items() if size > 0}
        found = self.generate_dummy_inputs(replace(self.sizes_for_export, **chosen))
        if framework != "pt":
            return found
        import torch

        return {name: torch.from_numpy(values) for name, values in found.items()}

    @property
    def sizes_for_export(self) -> Sizes:
        """The sizes that the graph is captured with.

        No two are equal, and none is 1, nor becomes that by halving an image five times: torch
        would take it that they always are.
        """
        height, width = self._image_size()
        step = _IMAGE_STEP if self._is_image_free() else 0
        return Sizes(height=height + 2 * step, width=width + 3 * step)

    @property
    def sizes_for_validation(self) -> Mapping[str, Sizes]:
        """The sizes of the inputs to compare on, by case: it was captured with none of them.

        Texts as long as the model takes are compared besides.
        """
        height, width = self._image_size()
        step = _IMAGE_STEP if self._is_image_free() else 0
        return {
            "one short row": Sizes(
                batch=1,
                sequence=1,
                decoder_sequence=1,
                past=1,
                choices=2,
                height=height,
                width=width,
            ),
            "three rows": Sizes(
                batch=3,
                sequence=9,
                decoder_sequence=4,
                past=7,
                choices=3,
                height=height + step,
                width=width,
            ),
            "longer rows": Sizes(
                batch=2,
                sequence=self._longer_text(),
                decoder_sequence=1,
                past=3,
                choices=5,
                height=height,
                width=width + 2 * step,
            ),
        }

    def _longer_text(self) -> int:
        """Return some tokens, or half of what the model takes."""
        most = getattr(text_part(self.config), "max_position_embeddings", None)
        return min(_LONGER_TEXT, max(2, most // 2)) if isinstance(most, int) else _LONGER_TEXT

    def _is_image_free(self) -> bool:
        return any("height" in axes.values() for axes in self.inputs.values())

    def _image_size(self) -> tuple[int, int]:
        """Return the height and width of the images that the model was trained with."""
        vision = vision_part(self.config)
        size = getattr(vision, "image_size", None) or getattr(vision, "input_size", None) or 64
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return int(height), int(width)


class OnnxConfigWithPast(OnnxConfig):
    """What a decoder takes and gives, which can take the keys and values of earlier tokens.

    With no earlier token (a past of length 0) it reads a prompt; with them, it goes on.
    `use_past=True` stands for "-with-past" at the end of the task.
    """

    def __init__(self, config: Any, task: str = "default", *, use_past: bool = False) -> None:
        is_added = use_past and not is_with_past(task)
        super().__init__(config, f"{task}{WITH_PAST}" if is_added else task)

    @classmethod
    def with_past(cls, config: Any, task: str = "default") -> "OnnxConfigWithPast":
        """Return the configuration of a model that takes the past."""
        return cls(config, task if is_with_past(task) else f"{task}{WITH_PAST}")

    def without_past(self) -> "OnnxConfigWithPast":
        """Return the configuration of the same feature without past."""
        return type(self)(self.config, self.task.removesuffix(WITH_PAST))

    @property
    def use_past(self) -> bool:
        """Whether keys and values of earlier tokens are inputs."""
        return is_with_past(self.task)

    @property
    def sizes_for_validation(self) -> Mapping[str, Sizes]:
        """See `OnnxConfig`; with past, also one of no earlier token."""
        found = dict(super().sizes_for_validation)
        if self.use_past and not isinstance(self, OnnxSeq2SeqConfigWithPast):
            found["no past"] = Sizes(batch=2, sequence=4, past=0)
        return found

    @property
    def num_layers(self) -> int:
        """Layers that keep keys and values."""
        return int(self.config.num_hidden_layers)

    @property
    def num_attention_heads(self) -> int:
        """Heads of each layer's keys and values, which heads of queries may share."""
        config = self.config
        return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)

    @property
    def head_size(self) -> int:
        """Numbers in one key of one head."""
        config = self.config
        # Where a model names it, it need not be a head's share of the hidden size.
        found = getattr(config, "head_dim", None)
        return int(found or config.hidden_size // config.num_attention_heads)

    @property
    def values_override(self) -> Mapping[str, Any]:
        """See `OnnxConfig`; a model without a token for padding could not classify two rows.

        It gets one that no text has, so that it looks at the last token, as it does for one row.
        """
        # Without past no cache: its tensors would be outputs of the graph.
        values: dict[str, Any] = {"use_cache": self.use_past}
        if getattr(self.config, "pad_token_id", None) is None:
            values["pad_token_id"] = -1
        return values

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The tokens, the past, and the mask of both."""
        if not self.use_past:
            return {"input_ids": TOKENS, "attention_mask": TOKENS}
        return {
            "input_ids": TOKENS,
            **self.past_tensors("past_key_values", "past_sequence"),
            "attention_mask": {0: "batch", 1: "past_sequence + sequence"},
        }

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxConfig`; with past, also the keys and values up to the last token."""
        if not self.use_past:
            return super().outputs
        return {**super().outputs, **self.past_tensors("present", "past_sequence + sequence")}

    def past_tensors(self, prefix: str, length: str) -> dict[str, Axes]:
        """Return the keys and values by name: (batch, heads, length, head size) each."""
        axes = {0: "batch", 2: length}
        return {
            f"{prefix}.{layer}.{part}": axes
            for layer in range(self.num_layers)
            for part in ("key", "value")
        }

    def past_shape(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of an input that holds keys or values."""
        return (
            sizes.batch,
            self.num_attention_heads,
            sizes.of_axis(self.inputs[name][2]),
            self.head_size,
        )

    def _dummy_input(self, name: str, made: DummyInputs, sizes: Sizes) -> np.ndarray:
        if name.startswith("past_key_values."):
            return made.numbers(self.past_shape(name, sizes))
        return made.of(name)


class OnnxDecoderConfigWithPast(OnnxConfigWithPast):
    """What the decoder of an encoder and a decoder takes and gives, which writes text by itself."""

    @property
    def num_layers(self) -> int:
        """Layers of the decoder."""
        config = self.config
        return int(getattr(config, "decoder_layers", None) or config.num_decoder_layers)

    @property
    def num_attention_heads(self) -> int:
        """Heads of the decoder's layers."""
        config = self.config
        return int(getattr(config, "decoder_attention_heads", None) or config.num_heads)

    @property
    def head_size(self) -> int:
        """Numbers in one key of one head."""
        found = getattr(self.config, "d_kv", None)
        return int(found or self.config.d_model // self.num_attention_heads)


class OnnxSeq2SeqConfigWithPast(OnnxDecoderConfigWithPast):
    """What an encoder and a decoder take and give.

    With past, the keys and values of the encoder's tokens are inputs as well, so that the encoder
    is left out; the tokens that it reads are none. What fills them is exported beside it: see
    `prefill`.
    """

    def __init__(
        self,
        config: Any,
        task: str = "default",
        *,
        use_past: bool = False,
        is_prefill: bool = False,
    ) -> None:
        super().__init__(config, task, use_past=use_past)
        self.is_prefill = is_prefill
        """Whether it reads the encoder's tokens and gives keys and values, but takes none."""

    def prefill(self) -> "OnnxSeq2SeqConfigWithPast":
        """Return the configuration of the graph that starts what this one goes on with."""
        return type(self)(self.config, self.task, is_prefill=True)

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The encoder's and the decoder's tokens, each with its mask; with past, see the class."""
        encoder = {0: "batch", 1: "encoder_sequence"}
        if not self.use_past or self.is_prefill:
            return {
                "input_ids": encoder,
                "attention_mask": encoder,
                "decoder_input_ids": DECODED,
                "decoder_attention_mask": DECODED,
            }
        return {
            "attention_mask": encoder,
            "decoder_input_ids": DECODED,
            "decoder_attention_mask": {0: "batch", 1: "past_decoder_sequence + decoder_sequence"},
            **self.past_tensors("past_key_values", "past_decoder_sequence"),
        }

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxConfig`; without past, "default" gives what the encoder made as well."""
        found: dict[str, Axes] = dict(self.feature.outputs)
        if self.feature.auto_class == "AutoModel":
            found = {"last_hidden_state": DECODED}
            if not self.use_past:
                found["encoder_last_hidden_state"] = {0: "batch", 1: "encoder_sequence"}
        if not self.use_past:
            return found
        length = (
            "decoder_sequence" if self.is_prefill else "past_decoder_sequence + decoder_sequence"
        )
        return {**found, **self.past_tensors("present", length)}

    def past_tensors(self, prefix: str, length: str) -> dict[str, Axes]:
        """Return the decoder's and the encoder's keys and values by name."""
        return {
            f"{prefix}.{layer}.{side}.{part}": axes
            for layer in range(self.num_layers)
            for side, axes in (
                ("decoder", {0: "batch", 2: length}),
                ("encoder", {0: "batch", 2: "past_encoder_sequence"}),
            )
            for part in ("key", "value")
        }
