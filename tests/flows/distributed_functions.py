"""Functions that ranks call: a module of its own, which they import at no cost."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from partwise.outcomes import Result, Skip
from partwise.ranks.context import RankContext


def count_rows(context: RankContext) -> Result | None:
    """Count the rows of all ranks; rank 0 has a model of them."""
    share = context.share()
    rows = sum(batch.num_rows for batch in share.batches())
    late = context.share("late").total_rows if "late" in context.sources else 0
    total = sum(int(content) for content in context.all_gather(b"%d" % rows))
    context.report(rows=rows)
    print(f"rank {context.rank} of {context.world_size} has {rows} rows")
    if context.rank:
        return None
    (context.model_directory / "words.txt").write_text("word")
    model = {"rows": total, "late": late, **context.params}
    return Result(model, metrics={"total": total})


def look_into_shop(context: RankContext) -> Any:
    """Tell the version of a package that only an environment has, and run its program."""
    import shop

    context.report(major=int(shop.__version__.partition(".")[0]))
    program = subprocess.run(["shop"], capture_output=True, text=True, check=True).stdout.strip()
    return {"shop": shop.__version__, "program": program} if context.rank == 0 else None


def fail_on_rank_1(context: RankContext) -> Any:
    """Fail on one rank, while the other waits for it."""
    if context.rank == 1:
        raise ValueError("no such rows")
    context.barrier()


def fail_once(context: RankContext) -> Any:
    """Fail in the first attempt."""
    if context.attempt == 1 and context.rank == 1:
        raise ValueError("not yet")
    context.barrier()
    return {"attempt": context.attempt}


def decline(context: RankContext) -> Any:
    """Make no model."""
    return Skip("nothing to learn")


def sleep_while_told(context: RankContext) -> Any:
    """Say that it is there, and sleep until a file is gone."""
    folder = Path(context.params["folder"])
    print("asleep", flush=True)
    (folder / f"here-{context.rank}").touch()
    while (folder / "sleep").exists():
        time.sleep(0.05)
    return {"awake": context.world_size}


def add_up(context: RankContext) -> Any:
    """Add up what all ranks see for as many epochs as told, from the last checkpoint on."""
    total, first = 0.0, 0
    if (folder := context.resume_from()) is not None:
        total, first = json.loads((folder / "state.json").read_text())
    for epoch in range(first, context.params["epochs"]):
        label = context.data().to_numpy("y")
        chosen = np.random.default_rng([context.seed, epoch]).random(len(label)) < 0.5
        seen = context.all_gather(repr(float(label[chosen].sum())).encode())
        # What comes later counts more, so that no epoch may be left out, or be there twice.
        total = total / 2 + sum(map(float, seen))

        def save(folder: Path, state: tuple[float, int] = (total, epoch + 1)) -> None:
            (folder / "state.json").write_text(json.dumps(state))

        context.checkpoint(save, step=epoch + 1)
    context.report(first=first)
    return {"total": total} if context.rank == 0 else None


def train_net(context: RankContext) -> Any:
    """Train a linear net for as many epochs as told, from the last checkpoint on."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    net = torch.nn.Linear(2, 1)
    first = 0
    folder = context.resume_from()
    if folder is not None:
        state = torch.load(folder / "state.pt", weights_only=True)
        net.load_state_dict(state["net"])
        first = state["epoch"]
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(first, context.params["epochs"]):
        for batch in DataLoader(context.data().to_torch_dataset(batch_size=256), batch_size=None):
            x = torch.stack([batch["x"], batch["z"]], dim=1)
            loss = (parallel(x)[:, 0] - batch["y"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def save(folder: Path, epoch: int = epoch) -> None:
            torch.save({"net": net.state_dict(), "epoch": epoch + 1}, folder / "state.pt")

        context.checkpoint(save, step=epoch + 1)
    context.report(first=first)
    return net
