"""Features: what a model is exported to do, with the class of transformers that does it."""

from collections.abc import Mapping
from dataclasses import dataclass

from partwise.errors import UnknownFeatureError
from partwise.tables.column_names import names_in_words

WITH_PAST = "-with-past"
"""Ends the name of a feature whose model takes the keys and values of earlier tokens."""

Axes = Mapping[int, str]
"""The free axes of a tensor by their place, such as {0: "batch", 1: "sequence"}."""

ROWS: Axes = {0: "batch"}
TOKENS: Axes = {0: "batch", 1: "sequence"}
DECODED: Axes = {0: "batch", 1: "decoder_sequence"}


@dataclass(frozen=True, slots=True)
class Feature:
    """What a model does."""

    auto_class: str
    """The class of transformers that loads it."""
    outputs: Mapping[str, Axes]
    """By name, in the order of the exported graph."""
    gives_tokens: bool = False
    """Whether "logits" are those of the next token, so that text can be generated."""


FEATURES: Mapping[str, Feature] = {
    "default": Feature("AutoModel", {"last_hidden_state": TOKENS}),
    "masked-lm": Feature("AutoModelForMaskedLM", {"logits": TOKENS}),
    "causal-lm": Feature("AutoModelForCausalLM", {"logits": TOKENS}, gives_tokens=True),
    "seq2seq-lm": Feature("AutoModelForSeq2SeqLM", {"logits": DECODED}, gives_tokens=True),
    "speech2seq-lm": Feature("AutoModelForSpeechSeq2Seq", {"logits": DECODED}, gives_tokens=True),
    "vision2seq-lm": Feature("AutoModelForImageTextToText", {"logits": DECODED}),
    "sequence-classification": Feature("AutoModelForSequenceClassification", {"logits": ROWS}),
    "token-classification": Feature("AutoModelForTokenClassification", {"logits": TOKENS}),
    "multiple-choice": Feature("AutoModelForMultipleChoice", {"logits": {0: "batch", 1: "choice"}}),
    "question-answering": Feature(
        "AutoModelForQuestionAnswering", {"start_logits": TOKENS, "end_logits": TOKENS}
    ),
    "image-classification": Feature("AutoModelForImageClassification", {"logits": ROWS}),
    "object-detection": Feature(
        "AutoModelForObjectDetection", {"logits": ROWS, "pred_boxes": ROWS}
    ),
    "image-segmentation": Feature(
        "AutoModelForImageSegmentation",
        {"logits": ROWS, "pred_boxes": ROWS, "pred_masks": ROWS},
    ),
    "semantic-segmentation": Feature("AutoModelForSemanticSegmentation", {"logits": ROWS}),
}
"""The features without past; with past, the same names end in `WITH_PAST`."""


def feature_of(name: str) -> Feature:
    """Return the feature of a name, which may end in `WITH_PAST`.

    Example:
        >>> feature_of("causal-lm-with-past").auto_class
        'AutoModelForCausalLM'
    """
    try:
        return FEATURES[name.removesuffix(WITH_PAST)]
    except KeyError:
        raise UnknownFeatureError(
            f"There is no feature {name!r}: choose one of {names_in_words(list(FEATURES))}; those "
            f"for text that is generated may end in {WITH_PAST}."
        ) from None


def is_with_past(name: str) -> bool:
    """Whether a feature's model takes the keys and values of earlier tokens."""
    return name.endswith(WITH_PAST)
