"""Say which kind of ticket each line of stdin is: all that a server needs, without torch.

python examples/serve_tickets.py FOLDER < tickets.txt
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

ROWS = 64


def classify(folder: Path, tickets: list[str]) -> Iterator[dict[str, object]]:
    """Yield each ticket with its kind, and how sure the model is.

    Args:
        folder: Holds model.onnx, tokenizer.json and config.json.
        tickets: Texts.
    """
    kinds = json.loads((folder / "config.json").read_text())["id2label"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    for start in range(0, len(tickets), ROWS):
        rows = tickets[start : start + ROWS]
        encoded = tokenizer.encode_batch(rows)
        feeds = {
            "input_ids": np.array([row.ids for row in encoded]),
            "attention_mask": np.array([row.attention_mask for row in encoded]),
            "token_type_ids": np.array([row.type_ids for row in encoded]),
        }
        (logits,) = session.run(["logits"], feeds)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        for ticket, row in zip(rows, chances, strict=True):
            best = int(row.argmax())
            yield {"ticket": ticket, "kind": kinds[str(best)], "chance": round(float(row[best]), 3)}


if __name__ == "__main__":
    for answer in classify(Path(sys.argv[1]), sys.stdin.read().splitlines()):
        print(json.dumps(answer))
