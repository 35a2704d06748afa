"""A loop of DistributedDataParallel, as a script for torchrun and as a function for a gang.

torchrun --nproc-per-node 2 ddp_training.py OUTPUT STEPS
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train_loop(rank: int, steps: int) -> tuple[torch.nn.Module, dict[str, float]]:
    """Train on batches that depend on rank and step; return the module, and what the loop took."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(256, 256), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(steps):
        rows = torch.randn(256, 32)
        loss = ((model(rows)[:, 0] - rows.sum(dim=1).sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return module, {"seconds": seconds, "cpu_seconds": cpu_seconds}


def main(output: str, steps: int) -> None:
    """What torchrun runs: the script opens the group, and closes it."""
    dist.init_process_group("gloo")
    module, took = train_loop(dist.get_rank(), steps)
    if dist.get_rank() == 0:
        torch.save({"state": module.state_dict(), **took}, output)
    # Else one of five ends in SIGABRT (torch 2.13): a rank that exits while the other one writes.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
