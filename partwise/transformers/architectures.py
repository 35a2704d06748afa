"""The table of architectures: which features each has, what it takes and gives.

Features and inputs are those of transformers 4.44, where an architecture was in its
table; ConvNeXTV2, PLBart and XLM-RoBERTa-XL, which its guide named, were not. What differs from it:

- an image's channels are not a free axis, and its height and width are one only where the model
  takes other sizes than the one it was trained with;
- encoders and decoders with past have no `input_ids`, for the encoder's keys and values are inputs;
- an encoder of images with a decoder is one graph, where there were two files.

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
    LongTextOnnxConfig,
    MaskedImageOnnxConfig,
    PageImageOnnxConfig,
    PageOnnxConfig,
    PerceiverOnnxConfig,
    PerhapsTypedTextOnnxConfig,
    PixelTextOnnxConfig,
    PooledImageOfOneSizeOnnxConfig,
    ReadImageOnnxConfig,
    SpeechOnnxConfig,
    TextAndImageOfOneSizeOnnxConfig,
    TextAndImageOnnxConfig,
    TextOnnxConfig,
    TypedTextOnnxConfig,
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
    "beit": Architecture("BEiT", InterpolatingImageOnnxConfig, _IMAGE),
    "bert": Architecture("BERT", TypedTextOnnxConfig, _BOTH),
    "big-bird": Architecture("BigBird", TextOnnxConfig, _BOTH),
    "bigbird-pegasus": Architecture("BigBird-Pegasus", seq2seq_config, (*_ALL, *_READING)),
    "blenderbot": Architecture("Blenderbot", seq2seq_config, _ALL),
    "blenderbot-small": Architecture("BlenderbotSmall", seq2seq_config, _ALL),
    "bloom": Architecture(
        "BLOOM", OnnxConfigWithPast, (*_DECODER, "sequence-classification", "token-classification")
    ),
    "camembert": Architecture("CamemBERT", TextOnnxConfig, _BOTH),
    "clip": Architecture("CLIP", TextAndImageOnnxConfig, ("default",)),
    "codegen": Architecture("CodeGen", OnnxConfigWithPast, ("default", "causal-lm")),
    "convbert": Architecture("ConvBERT", TypedTextOnnxConfig, _ENCODER),
    "convnext": Architecture("ConvNeXT", ImageOnnxConfig, _IMAGE),
    "convnextv2": Architecture("ConvNeXTV2", ImageOnnxConfig, _IMAGE),
    "data2vec-text": Architecture("Data2VecText", TextOnnxConfig, _ENCODER),
    "data2vec-vision": Architecture("Data2VecVision", InterpolatingImageOnnxConfig, _IMAGE),
    "deberta": Architecture(
        "DeBERTa",
        PerhapsTypedTextOnnxConfig,
        tuple(feature for feature in _ENCODER if feature != "multiple-choice"),
    ),
    "deberta-v2": Architecture("DeBERTa-v2", PerhapsTypedTextOnnxConfig, _ENCODER),
    "deit": Architecture("DeiT", InterpolatingImageOnnxConfig, _IMAGE),
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
    "groupvit": Architecture("GroupViT", TextAndImageOfOneSizeOnnxConfig, ("default",)),
    "ibert": Architecture("I-BERT", TextOnnxConfig, _ENCODER),
    "imagegpt": Architecture("ImageGPT", PixelTextOnnxConfig, _IMAGE),
    "layoutlm": Architecture(
        "LayoutLM",
        PageOnnxConfig,
        ("default", "masked-lm", "sequence-classification", "token-classification"),
    ),
    "layoutlmv3": Architecture(
        "LayoutLMv3", PageImageOnnxConfig, ("default", *_READING, "token-classification")
    ),
    "levit": Architecture("LeViT", ImageOfOneSizeOnnxConfig, _IMAGE),
    "longformer": Architecture("Longformer", LongTextOnnxConfig, _ENCODER),
    "longt5": Architecture("LongT5", seq2seq_config, _ENCODER_DECODER),
    "m2m-100": Architecture("M2M100", seq2seq_config, _ENCODER_DECODER),
    "marian": Architecture("Marian", seq2seq_config, _ALL),
    "mbart": Architecture("mBART", seq2seq_config, (*_ALL, *_READING)),
    "mobilebert": Architecture("MobileBERT", TypedTextOnnxConfig, _ENCODER),
    "mobilenet-v1": Architecture("MobileNetV1", PooledImageOfOneSizeOnnxConfig, _IMAGE),
    "mobilenet-v2": Architecture("MobileNetV2", PooledImageOfOneSizeOnnxConfig, _IMAGE),
    # It stretches what it makes of an image to whole patches, or does not, as its size has it.
    "mobilevit": Architecture("MobileViT", ImageOfOneSizeOnnxConfig, _IMAGE),
    "mt5": Architecture("MT5", seq2seq_config, _ENCODER_DECODER),
    "owlvit": Architecture("OWL-ViT", TextAndImageOnnxConfig, ("default",)),
    "perceiver": Architecture(
        "Perceiver",
        PerceiverOnnxConfig,
        ("image-classification", "masked-lm", "sequence-classification"),
    ),
    "plbart": Architecture("PLBart", seq2seq_config, (*_ALL, "sequence-classification")),
    "poolformer": Architecture("PoolFormer", ImageOnnxConfig, _IMAGE),
    "rembert": Architecture("RemBERT", TypedTextOnnxConfig, _BOTH),
    "resnet": Architecture("ResNet", ImageOnnxConfig, _IMAGE),
    "roberta": Architecture("RoBERTa", TextOnnxConfig, _BOTH),
    "roformer": Architecture("RoFormer", TypedTextOnnxConfig, _BOTH),
    "segformer": Architecture("SegFormer", ImageOnnxConfig, (*_IMAGE, "semantic-segmentation")),
    "squeezebert": Architecture("SqueezeBERT", TypedTextOnnxConfig, _ENCODER),
    # It shifts windows, or does not, as an image's size has it.
    "swin": Architecture("Swin", ImageOfOneSizeOnnxConfig, _IMAGE),
    "t5": Architecture("T5", seq2seq_config, _ENCODER_DECODER),
    "vision-encoder-decoder": Architecture(
        "Vision encoder and decoder", ReadImageOnnxConfig, ("vision2seq-lm",)
    ),
    "vit": Architecture("ViT", InterpolatingImageOnnxConfig, _IMAGE),
    "whisper": Architecture(
        "Whisper",
        SpeechOnnxConfig,
        ("default", "default-with-past", "speech2seq-lm", "speech2seq-lm-with-past"),
    ),
    "xlm": Architecture("XLM", TypedTextOnnxConfig, _BOTH),
    "xlm-roberta": Architecture("XLM-RoBERTa", TextOnnxConfig, _BOTH),
    "xlm-roberta-xl": Architecture("XLM-RoBERTa-XL", TextOnnxConfig, _BOTH),
    "yolos": Architecture("YOLOS", ImageOnnxConfig, ("default", "object-detection")),
}
"""By the model type as transformers 4 wrote it, with dashes."""
