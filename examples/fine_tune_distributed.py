"""Fine-tune a transformer on two processes, and go on where they stood when one is killed. Offline.

python examples/fine_tune_distributed.py FOLDER
python examples/fine_tune_distributed.py FOLDER --kill-at 25

It makes a tiny BERT with random weights and a tokenizer as a checkpoint directory, as they come
from a model hub, and tickets to learn from. Two ranks fine-tune it with DistributedDataParallel
over gloo; every ten steps rank 0 leaves a checkpoint in the artifact store. With --kill-at, rank 1
is killed at that step (kill -9): the gang starts again from the last checkpoint, and the parameters
are those of a run that nobody disturbed.
"""

import argparse
import hashlib
import os
import random
import signal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise import (
    GangOptions,
    LocalCluster,
    RankContext,
    Result,
    ScalingConfig,
    TorchDistributor,
    TorchSerde,
    train_distributed,
)

WORDS = {
    "billing": ["invoice", "refund", "charged", "card", "payment"],
    "delivery": ["courier", "parcel", "tracking", "box", "late"],
    "technical": ["screen", "update", "router", "crash", "battery"],
}
KINDS = list(WORDS)
FILLERS = ["the", "my", "is", "again", "please", "today", "with", "and", "not", "hello"]
BATCH, EPOCHS, EVERY_STEPS = 16, 4, 10


def make_tickets(count: int) -> pa.Table:
    """Return tickets of three kinds: text, and the number of the kind as label."""
    chance = random.Random(7)
    texts, labels = [], []
    for _ in range(count):
        label = chance.randrange(len(KINDS))
        words = chance.sample(WORDS[KINDS[label]], 2) + chance.sample(FILLERS, 5)
        chance.shuffle(words)
        texts.append(" ".join(words))
        labels.append(label)
    return pa.table({"text": texts, "label": labels})


def make_checkpoint(folder: Path) -> None:
    """Leave a tiny BERT of random weights and its tokenizer in a directory."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *FILLERS, *(word for kind in WORDS.values() for word in kind)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        id2label=dict(enumerate(KINDS)),
        label2id={kind: number for number, kind in enumerate(KINDS)},
    )
    BertForSequenceClassification(config).save_pretrained(folder)


def fine_tune(context: RankContext) -> Result:
    """Fine-tune on this rank's rows; the process group is open already."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    given = context.params
    tokenizer = AutoTokenizer.from_pretrained(given["checkpoint"])
    model = AutoModelForSequenceClassification.from_pretrained(given["checkpoint"])
    model.to(context.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given["lr"])

    step = 0
    folder = context.resume_from()
    if folder is not None:
        state = torch.load(folder / "state.pt", weights_only=True, map_location=context.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        print(f"attempt {context.attempt} goes on after step {step}")

    # Equal shares: a rank with one batch more would wait for the others for ever.
    rows = context.data().to_torch_dataset(batch_size=BATCH, shuffle=True, seed=context.seed)
    parallel = DistributedDataParallel(model)
    loss = torch.tensor(float("nan"))
    for epoch in range(step // len(rows), EPOCHS):
        rows.set_epoch(epoch)
        for batch in islice(DataLoader(rows, batch_size=None), step - epoch * len(rows), None):
            step += 1
            if context.attempt == 1 and context.rank == 1 and step == given["kill_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
            # What dropout draws depends on the step, so that it is the same after a restart.
            torch.manual_seed(step * context.world_size + context.rank)
            encoded = tokenizer(batch["text"], padding=True, return_tensors="pt")
            labels = batch["label"].to(context.device)
            loss = parallel(**encoded.to(context.device), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            def save(folder: Path, step: int = step) -> None:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, folder / "state.pt")

            context.checkpoint(save, step=step, every_steps=EVERY_STEPS)
            context.report(loss=loss.item(), step=step)

    # The run keeps this directory as well: as others read a transformer.
    if context.rank == 0:
        model.save_pretrained(context.model_directory)
        tokenizer.save_pretrained(context.model_directory)
    return Result(model.cpu().eval(), metrics={"loss": loss.item()})


def empty_model(checkpoint: str) -> Any:
    """Return a model of the right shape, for the parameters that the run keeps."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(checkpoint))


def main(folder: Path, kill_at: int) -> str:
    """Do all of it, and return a digest of the parameters."""
    # Ranks stand in another folder, where a relative path leads elsewhere.
    folder = folder.resolve()
    checkpoint = folder / "tiny-bert"
    make_checkpoint(checkpoint)
    serde = TorchSerde(mode="state", factory=partial(empty_model, str(checkpoint)))
    run = train_distributed(
        make_tickets(480),
        TorchDistributor(fine_tune, backend="gloo"),
        run_id=f"tickets-killed-at-{kill_at}" if kill_at else "tickets",
        store=folder / "runs",
        serde=serde,
        scaling=ScalingConfig(ranks=2),
        params={"checkpoint": str(checkpoint), "lr": 2e-3, "kill_at": kill_at},
        gang=GangOptions(max_retries=1),
        cluster=LocalCluster(workers=2),
    )
    print(run.partitions.select(["rank", "status", "attempts", "loss", "step"]).to_pandas())
    print("kept of rank 0:", ", ".join(run.artifacts(0)))
    digest = hashlib.sha256()
    for values in run.model(serde=serde).state_dict().values():
        digest.update(values.numpy().tobytes())
    print("parameters:", digest.hexdigest()[:16])
    return digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files go; it is made")
    parser.add_argument("--kill-at", type=int, default=0, help="the step at which rank 1 is killed")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.kill_at)
