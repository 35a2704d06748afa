"""Tiny models as they lie in a directory, with tokenizers and image processors made here."""

import string
from pathlib import Path

from partwise.transformers.quiet import quiet
from tests.transformers.tiny_models import tiny_model


def save_checkpoint(folder: Path, model_type: str, feature: str):
    """Save a tiny model, and return it."""
    model = tiny_model(model_type, feature, one_layer=True)
    with quiet():
        model.save_pretrained(folder)
    return model


def save_tokenizer(folder: Path, first_token: int = 4, pad_token: str | None = "[PAD]") -> None:
    """Save a tokenizer that makes of each letter a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"[UNK]": 0, "[PAD]": 1, "[EOS]": 2}
    letters = {letter: first_token + i for i, letter in enumerate(string.ascii_letters)}
    words = Tokenizer(models.WordLevel({**special, **letters}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token=pad_token, eos_token="[EOS]"
    )
    tokenizer.save_pretrained(folder)


def save_image_processor(folder: Path, size: int) -> None:
    """Save an image processor that makes squares."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    ViTImageProcessorPil(size={"height": size, "width": size}).save_pretrained(folder)
