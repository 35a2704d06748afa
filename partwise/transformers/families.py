"""Families: what architectures of one kind take and give."""

from collections.abc import Mapping
from typing import Any, ClassVar

from partwise.transformers.features import DECODED, ROWS, TOKENS, WITH_PAST, Axes
from partwise.transformers.onnx_config import (
    OnnxConfig,
    OnnxDecoderConfigWithPast,
    OnnxSeq2SeqConfigWithPast,
)
from partwise.transformers.sizes import Sizes

_IMAGE: Axes = {0: "batch", 2: "height", 3: "width"}


class TextOnnxConfig(OnnxConfig):
    """Encoders of text. Of several choices, each has a text, along an axis of its own."""

    text_inputs: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The tokens and what goes with each of them."""
        is_choice = self.task == "multiple-choice"
        axes: Axes = {0: "batch", 1: "choice", 2: "sequence"} if is_choice else TOKENS
        return dict.fromkeys(self.text_inputs, axes)


class TypedTextOnnxConfig(TextOnnxConfig):
    """Encoders of two texts, whose tokens have a type that says to which they belong."""

    text_inputs = ("input_ids", "attention_mask", "token_type_ids")


class PerhapsTypedTextOnnxConfig(TextOnnxConfig):
    """Encoders of text whose configuration says whether tokens have types."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """See `TextOnnxConfig`."""
        found = dict(super().inputs)
        if getattr(self.config, "type_vocab_size", 0):
            found["token_type_ids"] = found["input_ids"]
        return found


class LongTextOnnxConfig(TextOnnxConfig):
    """Longformer, of whose tokens some look at all others, and the rest at those nearby."""

    text_inputs = ("input_ids", "attention_mask", "global_attention_mask")
    notes = (
        (
            "The file compares all tokens with one another and masks those that are far away: its "
            "memory grows with the square of a text's length, the model's with the length."
        ),
    )

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxConfig`; "default" gives what was made of the first token as well."""
        pooled = {"pooler_output": ROWS} if self.task == "default" else {}
        return {**super().outputs, **pooled}


class PixelTextOnnxConfig(TextOnnxConfig):
    """ImageGPT, which reads the pixels of an image as tokens."""

    text_inputs = ("input_ids",)


class FlaubertOnnxConfig(TextOnnxConfig):
    """FlauBERT, of which one class writes text and fills masks: transformers lists it once."""

    @property
    def auto_class(self) -> str:
        """See `OnnxConfig`."""
        return "AutoModelForMaskedLM" if self.task == "causal-lm" else super().auto_class


class PageOnnxConfig(TextOnnxConfig):
    """Encoders of words that stand somewhere on a page."""

    text_inputs = ("input_ids", "bbox", "attention_mask", "token_type_ids")


class PageImageOnnxConfig(TextOnnxConfig):
    """Encoders of words on a page and of its image, which has one size."""

    text_inputs = ("input_ids", "bbox", "attention_mask")

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The words and the image."""
        return {**super().inputs, "pixel_values": ROWS}


class ImageOnnxConfig(OnnxConfig):
    """Models of images of any size."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The image."""
        return {"pixel_values": _IMAGE}

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxConfig`; what it makes of an image has as many places as that is large."""
        return dict.fromkeys(super().outputs, ROWS)


class InterpolatingImageOnnxConfig(ImageOnnxConfig):
    """Models of images of any size, whose embeddings of places are stretched to it."""

    forward_arguments: ClassVar[Mapping[str, Any]] = {"interpolate_pos_encoding": True}


class ImageOfOneSizeOnnxConfig(ImageOnnxConfig):
    """Models of images of the one size that they were trained with."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The image."""
        return {"pixel_values": ROWS}


class PooledImageOfOneSizeOnnxConfig(ImageOfOneSizeOnnxConfig):
    """Those that also give what was made of the whole image."""

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `ImageOnnxConfig`."""
        pooled = {"pooler_output": ROWS} if self.task == "default" else {}
        return {**super().outputs, **pooled}


class MaskedImageOnnxConfig(ImageOnnxConfig):
    """Models of images with a mask that says where padding is."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The image and its mask."""
        return {**super().inputs, "pixel_mask": {0: "batch", 1: "height", 2: "width"}}


class TextAndImageOnnxConfig(OnnxConfig):
    """Models that compare texts with images: as many of these as of those."""

    forward_arguments: ClassVar[Mapping[str, Any]] = {"interpolate_pos_encoding": True}

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The texts and the images."""
        return {"input_ids": TOKENS, "pixel_values": _IMAGE, "attention_mask": TOKENS}

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """How well each image fits each text, and what both became."""
        pairs = {0: "batch", 1: "batch"}
        return {
            "logits_per_image": pairs,
            "logits_per_text": pairs,
            "text_embeds": ROWS,
            "image_embeds": ROWS,
        }


class TextAndImageOfOneSizeOnnxConfig(TextAndImageOnnxConfig):
    """Those whose images have the one size that they were trained with."""

    forward_arguments: ClassVar[Mapping[str, Any]] = {}

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The texts and the images."""
        return {**super().inputs, "pixel_values": ROWS}


class ReadImageOnnxConfig(OnnxConfig):
    """An encoder of images of one size, and a decoder that writes what is to be read there."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The image, and the text so far."""
        return {"pixel_values": ROWS, "decoder_input_ids": DECODED}


class PerceiverOnnxConfig(OnnxConfig):
    """Perceiver, whose one input is text or an image of one size."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The bytes of text with their mask, or the image."""
        if self.task == "image-classification":
            return {"inputs": ROWS}
        return {"inputs": TOKENS, "attention_mask": TOKENS}

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxConfig`; of text it gives as many tokens as it can read at most."""
        return dict.fromkeys(super().outputs, ROWS)


def seq2seq_config(config: Any, task: str = "default") -> OnnxConfig:
    """Return what an encoder and a decoder take and give for a feature."""
    match task.removesuffix(WITH_PAST):
        case "causal-lm":
            return OnnxDecoderConfigWithPast(config, task)
        case "sequence-classification" | "question-answering":
            # Encoder and decoder read the same text.
            return TextOnnxConfig(config, task)
        case _:
            return OnnxSeq2SeqConfigWithPast(config, task)


class SpeechOnnxConfig(OnnxSeq2SeqConfigWithPast):
    """Whisper: an encoder of sound of one length, and a decoder that writes what is said."""

    @property
    def inputs(self) -> Mapping[str, Axes]:
        """The sound and the text so far; with past, see `OnnxSeq2SeqConfigWithPast`."""
        tokens: dict[str, Axes] = {"decoder_input_ids": DECODED}
        if self.use_past and not self.is_prefill:
            return {**tokens, **self.past_tensors("past_key_values", "past_decoder_sequence")}
        return {"input_features": ROWS, **tokens}

    @property
    def outputs(self) -> Mapping[str, Axes]:
        """See `OnnxSeq2SeqConfigWithPast`; of the sound, as much is made for each row."""
        return {
            name: ROWS if name == "encoder_last_hidden_state" else axes
            for name, axes in super().outputs.items()
        }

    def past_tensors(self, prefix: str, length: str) -> dict[str, Axes]:
        """See `OnnxSeq2SeqConfigWithPast`."""
        return {
            name: ROWS if ".encoder." in name else axes
            for name, axes in super().past_tensors(prefix, length).items()
        }

    def past_shape(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """See `OnnxConfigWithPast`."""
        if ".encoder." not in name:
            return super().past_shape(name, sizes)
        places = int(self.config.max_source_positions)
        return (sizes.batch, self.num_attention_heads, places, self.head_size)
