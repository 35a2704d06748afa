"""The table of architectures: a pair of each family. `make test-architectures` takes them all."""

import json
from pathlib import Path

import pytest

from partwise.transformers.architectures import ARCHITECTURES
from partwise.transformers.feature_choice import config_for
from partwise.transformers.features import FEATURES
from tests.thoroughness import THOROUGH
from tests.transformers.architecture_proof import PAIRS, TABLE, prove
from tests.transformers.tiny_models import TINY, tiny_config

ONE_OF_EACH_FAMILY = [
    ("bert", "multiple-choice"),
    ("gpt2", "causal-lm-with-past"),
    ("t5", "seq2seq-lm-with-past"),
    ("vit", "image-classification"),
    ("resnet", "default"),
    ("layoutlm", "token-classification"),
    ("clip", "default"),
    ("perceiver", "masked-lm"),
    ("roberta", "masked-lm"),
    ("flaubert", "causal-lm"),
    ("deberta", "token-classification"),
    ("layoutlmv3", "question-answering"),
    ("levit", "image-classification"),
    ("detr", "object-detection"),
    ("bart", "sequence-classification"),
    ("marian", "causal-lm-with-past"),
    ("longformer", "default"),
    ("imagegpt", "image-classification"),
    ("mobilenet-v1", "default"),
    ("groupvit", "default"),
    ("vision-encoder-decoder", "vision2seq-lm"),
    ("whisper", "speech2seq-lm-with-past"),
]
QUICK = [("gpt2", "causal-lm-with-past")]
"""The others are slow."""
SAMPLE = [
    *QUICK,
    ("bert", "multiple-choice"),
    ("flaubert", "causal-lm"),
    ("layoutlm", "token-classification"),
    ("clip", "default"),
    ("levit", "image-classification"),
    ("whisper", "speech2seq-lm-with-past"),
]
"""Texts, boxes, pairs of texts and pictures, pictures, and sound to text with past values.

Those that are slow have one layer of each kind: what is known of an architecture (its inputs, axes
and patches) is the same for each layer, except for values with past, of which decoders have two.
"""


@pytest.mark.parametrize(
    ("model_type", "feature"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in QUICK))
        for pair in (ONE_OF_EACH_FAMILY if THOROUGH else SAMPLE)
    ],
)
def test_a_tiny_model_of_a_family_is_exported_and_proved(model_type, feature):
    one_layer = not THOROUGH and (model_type, feature) not in QUICK
    proof = prove(model_type, feature, one_layer=one_layer)

    assert proof.largest_difference <= 1e-4


def test_each_family_is_among_them():
    def families(pairs):
        return {type(config_for(tiny_config(name, feature), feature)) for name, feature in pairs}

    assert families(ONE_OF_EACH_FAMILY) == families(PAIRS)


def test_there_are_62_architectures_with_a_tiny_model_each():
    assert len(ARCHITECTURES) == 62
    assert set(TINY) == set(ARCHITECTURES)
    assert {feature.removesuffix("-with-past") for _, feature in PAIRS} == set(FEATURES)


def test_the_table_in_the_repository_is_that_of_all_pairs():
    rows = [line.split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    told = [(row[0].removeprefix("| "), row[1]) for row in rows[1:]]
    problems = [row for row in rows[1:] if row[-1].removesuffix(" |").strip()]

    assert told == PAIRS
    assert problems == []


def test_features_are_those_of_transformers_4():
    given = Path(__file__).parent / "transformers_4.json"
    of_old = json.loads(given.read_text())

    for model_type, features in of_old.items():
        assert sorted(ARCHITECTURES[model_type].features) == sorted(features), model_type
    assert set(ARCHITECTURES) - set(of_old) == {"convnextv2", "plbart", "xlm-roberta-xl"}
