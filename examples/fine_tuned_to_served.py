"""A classifier of support tickets: trained, exported, quantized, proved and served. Offline.

python examples/fine_tuned_to_served.py FOLDER

It makes tickets with typos and a WordPiece tokenizer of their words, trains a small BERT of random
weights on them, and leaves in FOLDER what a server needs (see `serve_tickets.py`), as it is and
with int8.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from transformers.utils import logging

from partwise.transformers import ExportReport, TransformersOptions, export_checkpoint

SERVE = Path(__file__).with_name("serve_tickets.py")
TRAINING, HELD_OUT = 2400, 600
EPOCHS, BATCH = 3, 16
VOCABULARY = 600

# What goes wrong, and what goes well: a ticket praises another department than it complains of.
COMPLAINTS = {
    "billing": (
        *("you charged me twice for {thing}", "my refund for {thing} never came"),
        *("the invoice for {thing} shows a wrong amount", "my card was debited after i cancelled"),
    ),
    "delivery": (
        *("{thing} has not arrived yet", "the courier left {thing} with a stranger"),
        *("the box with {thing} came open and wet", "tracking says nothing about {thing}"),
    ),
    "technical": (
        *("{thing} does not start any more", "the screen of {thing} stays black"),
        *("{thing} drops the connection every hour", "the update broke {thing}"),
    ),
    "account": (
        *("i cannot log in to order {thing}", "the reset mail for my password is missing"),
        *("please change the address of my profile", "somebody else uses my account"),
    ),
}
PRAISE = {
    "billing": ("the payment went through at once", "the invoice is fine"),
    "delivery": ("the courier was friendly and fast", "the parcel came on time"),
    "technical": ("the screen looks great", "the update works well"),
    "account": ("my profile looks right", "the login works again"),
}
THINGS = ("the lamp", "my new phone", "the router", "a pair of headphones", "the coffee machine")
OPENINGS = ("hello", "hi there", "dear team", "good morning", "", "")
ENDINGS = ("please help", "what can i do", "this is the second time", "thank you", "", "")
NEW = (
    "Hello, the payment went through at once, but the new headphones have not arrived yet.",
    "you charged me twice for the lamp! thank you, the courier was friendly",
    "i cannot log in, and the reset mail is missing",
)


def make_tickets(count: int, chance: random.Random) -> list[tuple[str, str]]:
    """Return tickets, each with its kind; one longer word in 12 has a typo."""
    tickets = []
    for _ in range(count):
        kind, other = chance.sample(list(COMPLAINTS), 2)
        complaint = chance.choice(COMPLAINTS[kind]).format(thing=chance.choice(THINGS))
        parts = [complaint, chance.choice(PRAISE[other])]
        chance.shuffle(parts)
        joint = chance.choice((" but ", ", and ", ". "))
        text = joint.join(parts)
        whole = [chance.choice(OPENINGS), text, chance.choice(ENDINGS)]
        words = " ".join(part for part in whole if part).split()
        tickets.append((" ".join(_typed(word, chance) for word in words), kind))
    return tickets


def _typed(word: str, chance: random.Random) -> str:
    if len(word) < 4 or chance.random() > 0.08:
        return word
    place = chance.randrange(len(word) - 1)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Make a WordPiece tokenizer, as BERT has one, of characters and the most frequent words.

    A trainer of `tokenizers` would number its pieces in another order in each process, and so each
    run of this example would train another model.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    words: Counter[str] = Counter()
    for text in texts:
        normal = normalizer.normalize_str(text)
        words.update(word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normal))
    letters = sorted({letter for word in words for letter in word})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{each}" for each in letters)]
    pieces += [word for word, _ in words.most_common() if len(word) > 1]
    numbers = {piece: number for number, piece in enumerate(pieces[:VOCABULARY])}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def fine_tune(
    tickets: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast
) -> BertForSequenceClassification:
    """Train a small BERT of random weights on tickets."""
    kinds = list(COMPLAINTS)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(kinds)),
        label2id={kind: place for place, kind in enumerate(kinds)},
    )
    model = BertForSequenceClassification(config).train()
    encoded = tokenizer([text for text, _ in tickets], padding=True, return_tensors="pt")
    labels = torch.tensor([kinds.index(kind) for _, kind in tickets])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(tickets)).split(BATCH):
            batch = {name: values[rows] for name, values in encoded.items()}
            optimizer.zero_grad()
            model(**batch, labels=labels[rows]).loss.backward()
            optimizer.step()
    return model.eval()


def classify(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> list[str]:
    """Return the kinds of tickets as the model itself sees them."""
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    return [model.config.id2label[int(best)] for best in logits.argmax(dim=1)]


def serve(folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Return what a process says that has onnxruntime and the tokenizer, and no torch."""
    done = subprocess.run(
        [sys.executable, str(SERVE), str(folder)],
        input="\n".join(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def size_of(folder: Path) -> float:
    """Return the size of a model's weights and graph, in MB."""
    return sum(path.stat().st_size for path in folder.glob("model*")) / 1e6


def worst(report: ExportReport) -> float:
    """Return by how much a value differs at most."""
    return max(file.metrics["export_max_abs_diff"] for file in report.files)


def main(folder: Path) -> dict[str, float]:
    """Do all of it, and return the accuracies on held-out tickets."""
    logging.disable_progress_bar()
    chance = random.Random(7)
    tickets = make_tickets(TRAINING, chance)
    held_out = [each for each in make_tickets(HELD_OUT, chance) if each not in tickets]
    texts, kinds = [text for text, _ in held_out], [kind for _, kind in held_out]
    print(f"{len(tickets):,} tickets to train on, {len(held_out):,} others held out, such as")
    print(f"  {kinds[0]}: {texts[0]}")

    start = time.monotonic()
    tokenizer = make_tokenizer([text for text, _ in tickets])
    model = fine_tune(tickets, tokenizer)
    checkpoint = folder / "checkpoint"
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    print(
        f"trained {model.num_parameters():,} weights and {len(tokenizer)} pieces of words in "
        f"{time.monotonic() - start:.0f} s"
    )

    predicted = {"torch": classify(model, tokenizer, texts)}
    sizes = {"torch": size_of(checkpoint)}
    for name, options in {
        "onnx": TransformersOptions(),
        "int8": TransformersOptions(quantize="int8"),
    }.items():
        report = export_checkpoint(
            str(checkpoint), "sequence-classification", folder / name, options
        )
        print(f"exported {name} in {report.seconds:.0f} s: differs by {worst(report):.1g} at most")
        predicted[name] = [answer["kind"] for answer in serve(folder / name, texts)]
        sizes[name] = size_of(folder / name)
    accuracy = {
        name: float(np.mean([a == b for a, b in zip(found, kinds, strict=True)]))
        for name, found in predicted.items()
    }
    print(f"\n{'':8}{'MB':>6}{'accuracy':>10}")
    for name, value in accuracy.items():
        print(f"{name:8}{sizes[name]:6.2f}{value:10.1%}")
    print("\nserved without torch, with int8:")
    for answer in serve(folder / "int8", list(NEW)):
        print(f"  {answer['kind']:10}{answer['chance']:.2f}  {answer['ticket']}")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files go; it is made")
    main(parser.parse_args().folder)
