"""The table of architectures: which features each has, what it takes and gives, how exact it is.

Features, tolerances and inputs are those of transformers 4.44, where an architecture was in its
table; ConvNeXTV2, PLBart and XLM-RoBERTa-XL, which its guide named, were not. What differs from it:

- an image's channels are no free axis, and its height and width are one only where the model takes
  other sizes than the one it was trained with;
- encoders and decoders with past have no `input_ids`, for the encoder's keys and values are inputs.

A family (see `families.py`) says what its architectures take and give. An architecture of your own
needs no row: pass your own `OnnxConfig`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from partwise.transformers.families import (
    FlaubertOnnxConfig,
    ImageOfOneSizeOnnxConfig,
    ImageOnnxConfig,
    InterpolatingImageOnnxConfig,
    MaskedImageOnnxConfig,
    PageImageOnnxConfig,
    PageOnnxConfig,
    PerceiverOnnxConfig,
    PerhapsTypedTextOnnxConfig,
    TextAndImageOnnxConfig,
    TextOnnxConfig,
    TypedTextOnnxConfig,
    big_bird_config,
    bigbird_pegasus_config,
    seq2seq_config,
)
from partwise.transformers.onnx_config import OnnxConfig, OnnxConfigWithPast


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row of the table."""

    name: str
    """As its authors write it."""
    family: Callable[[Any, str], OnnxConfig]
    """Makes of a model's configuration and a feature what it takes and gives."""
    features: tuple[str, ...]
    atol: float = 1e-5
    """Values may differ by this."""


_ENCODER = (
    *("default", "masked-lm", "sequence-classification", "multiple-choice"),
    *("token-classification", "question-answering"),
)
_ENCODER_DECODER = ("default", "default-with-past", "seq2seq-lm", "seq2seq-lm-with-past")
_DECODER = ("default", "default-with-past", "causal-lm", "causal-lm-with-past")
_BOTH = (*_ENCODER, "causal-lm")
_ALL = (*_ENCODER_DECODER, "causal-lm", "causal-lm-with-past")
_READING = ("sequence-classification", "question-answering")
_IMAGE = ("default", "image-classification")

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": Architecture("ALBERT", TypedTextOnnxConfig, _ENCODER),
    "bart": Architecture("BART", seq2seq_config, (*_ALL, *_READING)),
    "beit": Architecture("BEiT", InterpolatingImageOnnxConfig, _IMAGE, atol=1e-4),
    "bert": Architecture("BERT", TypedTextOnnxConfig, _BOTH),
    "big-bird": Architecture("BigBird", big_bird_config, _BOTH),
    "bigbird-pegasus": Architecture("BigBird-Pegasus", bigbird_pegasus_config, (*_ALL, *_READING)),
    "blenderbot": Architecture("Blenderbot", seq2seq_config, _ALL),
    "blenderbot-small": Architecture("BlenderbotSmall", seq2seq_config, _ALL),
    "bloom": Architecture(
        "BLOOM",
        OnnxConfigWithPast,
        (*_DECODER, "sequence-classification", "token-classification"),
        atol=1e-3,
    ),
    "camembert": Architecture("CamemBERT", TextOnnxConfig, _BOTH),
    "clip": Architecture("CLIP", TextAndImageOnnxConfig, ("default",), atol=1e-4),
    "codegen": Architecture("CodeGen", OnnxConfigWithPast, ("default", "causal-lm")),
    "convbert": Architecture("ConvBERT", TypedTextOnnxConfig, _ENCODER),
    "convnext": Architecture("ConvNeXT", ImageOnnxConfig, _IMAGE),
    "convnextv2": Architecture("ConvNeXTV2", ImageOnnxConfig, _IMAGE),
    "data2vec-text": Architecture("Data2VecText", TextOnnxConfig, _ENCODER),
    "data2vec-vision": Architecture(
        "Data2VecVision", InterpolatingImageOnnxConfig, _IMAGE, atol=1e-4
    ),
    "deberta": Architecture(
        "DeBERTa",
        PerhapsTypedTextOnnxConfig,
        tuple(feature for feature in _ENCODER if feature != "multiple-choice"),
    ),
    "deberta-v2": Architecture("DeBERTa-v2", PerhapsTypedTextOnnxConfig, _ENCODER),
    "deit": Architecture("DeiT", InterpolatingImageOnnxConfig, _IMAGE, atol=1e-4),
    "detr": Architecture(
        "DETR", MaskedImageOnnxConfig, ("default", "object-detection", "image-segmentation")
    ),
    "distilbert": Architecture("DistilBERT", TextOnnxConfig, _ENCODER),
    "electra": Architecture("ELECTRA", TypedTextOnnxConfig, _BOTH),
    "flaubert": Architecture("FlauBERT", FlaubertOnnxConfig, _BOTH),
    "gpt-neo": Architecture("GPT Neo", OnnxConfigWithPast, (*_DECODER, "sequence-classification")),
    "gpt2": Architecture(
        "OpenAI GPT-2",
        OnnxConfigWithPast,
        (*_DECODER, "sequence-classification", "token-classification"),
    ),
    "gptj": Architecture("GPT-J", OnnxConfigWithPast, (*_DECODER, *_READING)),
    "ibert": Architecture("I-BERT", TextOnnxConfig, _ENCODER),
    "layoutlm": Architecture(
        "LayoutLM",
        PageOnnxConfig,
        ("default", "masked-lm", "sequence-classification", "token-classification"),
    ),
    "layoutlmv3": Architecture(
        "LayoutLMv3", PageImageOnnxConfig, ("default", *_READING, "token-classification")
    ),
    "levit": Architecture("LeViT", ImageOfOneSizeOnnxConfig, _IMAGE, atol=1e-4),
    "longt5": Architecture("LongT5", seq2seq_config, _ENCODER_DECODER),
    "m2m-100": Architecture("M2M100", seq2seq_config, _ENCODER_DECODER),
    "marian": Architecture("Marian", seq2seq_config, _ALL, atol=1e-4),
    "mbart": Architecture("mBART", seq2seq_config, (*_ALL, *_READING)),
    "mobilebert": Architecture("MobileBERT", TypedTextOnnxConfig, _ENCODER),
    # It stretches what it makes of an image to whole patches, or does not, as its size has it.
    "mobilevit": Architecture("MobileViT", ImageOfOneSizeOnnxConfig, _IMAGE, atol=1e-4),
    "mt5": Architecture("MT5", seq2seq_config, _ENCODER_DECODER, atol=5e-4),
    "perceiver": Architecture(
        "Perceiver",
        PerceiverOnnxConfig,
        ("image-classification", "masked-lm", "sequence-classification"),
        atol=1e-4,
    ),
    "plbart": Architecture("PLBart", seq2seq_config, (*_ALL, "sequence-classification")),
    "resnet": Architecture("ResNet", ImageOnnxConfig, _IMAGE, atol=1e-3),
    "roberta": Architecture("RoBERTa", TextOnnxConfig, _BOTH),
    "roformer": Architecture("RoFormer", TypedTextOnnxConfig, _BOTH),
    "squeezebert": Architecture("SqueezeBERT", TypedTextOnnxConfig, _ENCODER),
    "t5": Architecture("T5", seq2seq_config, _ENCODER_DECODER),
    "vit": Architecture("ViT", InterpolatingImageOnnxConfig, _IMAGE, atol=1e-4),
    "xlm": Architecture("XLM", TypedTextOnnxConfig, _BOTH),
    "xlm-roberta": Architecture("XLM-RoBERTa", TextOnnxConfig, _BOTH),
    "xlm-roberta-xl": Architecture("XLM-RoBERTa-XL", TextOnnxConfig, _BOTH),
    "yolos": Architecture("YOLOS", ImageOnnxConfig, ("default", "object-detection"), atol=1e-4),
}
"""By the model type as transformers 4 wrote it, with dashes."""
