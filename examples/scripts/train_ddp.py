"""Train by DistributedDataParallel, as under torchrun; nothing here knows of partwise."""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1, help="of each epoch")
    parser.add_argument("--rows", type=int, default=256, help="of each process")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", init_method="env://")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")

    torch.manual_seed(rank)
    x = torch.randn(args.rows, 8, device=device)
    y = x.sum(dim=1, keepdim=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(json.dumps({"metrics": {"epoch": epoch, "loss": loss.item()}}), flush=True)
    if rank == 0:
        args.output.mkdir(parents=True, exist_ok=True)
        torch.save(model.module.state_dict(), args.output / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # A thread of gloo's may still hold the last exchange of gradients, though the group is gone.
    # Where it lets go of it after Python has begun to end, torch (2.13) aborts the process.
    sys.stdout.flush()
    os._exit(0)
