"""What a GPU brings: many models that share it, one big model, small networks by torch.func.vmap.

    python benchmarks/gpu.py [--only models] [--partitions 200] [--rows 6_000_000]

Needs an NVIDIA GPU and the extras `cuda` and `torch`. Each contestant is a process of its own, one
after the other; what is printed is of one turn:

- models: an XGBoost model for each key (2,000 rows x 20, 100 rounds), by all cores with a thread
  each, and on the GPU by 1, 4 and 16 partitions at once (`ExecutionOptions(gpus=1 / n)`).
- big: one XGBoost model of all rows x 20, 100 rounds, from one Parquet file: plain XGBoost with all
  threads, plain XGBoost on the GPU, and a gang of one rank with the GPU (its whole flow).
- networks: perceptrons of 300 rows each, one after the other and together by `torch.func.vmap`; in
  partwise by partitions of 500 networks.
- shuffle: 10 million rows, which are written first, by 10,000 keys on a `CudaCluster`, no-op
  function.
"""

import argparse
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partwise import (
    CudaCluster,
    DistributedXGBoost,
    ExecutionOptions,
    LocalCluster,
    XGBoostTrainer,
    map_partitions,
    train_distributed,
    train_models,
)
from partwise.runs.run import Run

COLUMNS = 20
NAMES = [f"x{i}" for i in range(COLUMNS)]
MODEL_ROWS = 2_000
ROUNDS = 100
NETWORKS, NETWORK_ROWS, INPUTS, HIDDEN, STEPS, GROUP = 2_000, 300, 8, 16, 200, 500
ONE_BY_ONE = 40
"""Networks that are trained one after the other: each takes as long as the next."""
CORES = len(os.sched_getaffinity(0))
Figures = dict[str, float]


@dataclass(frozen=True)
class Work:
    """What the contestants read, and how much of it there is."""

    folder: Path
    partitions: int
    rows: int

    @property
    def models(self) -> str:
        """Rows by key."""
        return str(self.folder / "models.parquet")

    @property
    def big(self) -> str:
        """Rows of one model."""
        return str(self.folder / "big.parquet")

    def write(self) -> None:
        """Write both files."""
        keys = np.repeat(np.arange(self.partitions), MODEL_ROWS)
        pq.write_table(_features(len(keys), {"key": keys}), self.models)
        pq.write_table(_features(self.rows, {}), self.big, row_group_size=125_000)


def _features(rows: int, others: dict[str, Any]) -> pa.Table:
    """Return rows of float32 features, and a label that follows from some of them."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((COLUMNS, rows), dtype=np.float32)
    label = x[0] + x[1] * x[2] + np.sin(3 * x[3]) + generator.standard_normal(rows, np.float32)
    return pa.table(others | dict(zip(NAMES, x, strict=True)) | {"label": label})


def many_models(work: Work, at_once: int) -> Figures:
    """Train a model for each key; `at_once` 0: on the cores."""
    params: dict[str, Any] = {"max_depth": 6, "device": "cuda" if at_once else "cpu"}
    with tempfile.TemporaryDirectory() as store:
        run = train_models(
            work.models,
            "key",
            XGBoostTrainer(label="label", params=params, rounds=ROUNDS, holdout=None),
            run_id="bench",
            store=store,
            execution=ExecutionOptions(gpus=1 / at_once if at_once else 0),
            cluster=CudaCluster() if at_once else LocalCluster(workers=CORES),
        )
        assert run.counts == {"DONE": work.partitions}
        return {"models a second": work.partitions / _stages(run)["train"]}


def _stages(run: Run) -> dict[str, float]:
    assert run.summary is not None
    return dict(run.summary.stages)


def plain(work: Work, device: str) -> Figures:
    """Train one model by XGBoost alone, from the file."""
    import xgboost

    table = pq.read_table(work.big)
    rows = xgboost.QuantileDMatrix(table.select(NAMES), table["label"].to_numpy(), nthread=CORES)
    params = {"max_depth": 6, "device": device, "nthread": CORES}
    booster = xgboost.train(params, rows, num_boost_round=ROUNDS)
    return {"rounds": booster.num_boosted_rounds()}


def gang(work: Work) -> Figures:
    """Train one model by one rank that has the GPU."""
    trainer = DistributedXGBoost(label="label", params={"max_depth": 6}, rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as store:
        run = train_distributed(
            work.big, trainer, run_id="bench", store=store, cluster=CudaCluster()
        )
        return {"rounds": dict(run.ledger["metrics"][0].as_py())["rounds"]}


def _network_rows(networks: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(2).standard_normal((networks, NETWORK_ROWS, INPUTS), np.float32)
    return x, x[:, :, :1] * x[:, :, 1:2] + x[:, :, 2:3]


def _network() -> Any:
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1)
    )


def one_by_one(device: str) -> Figures:
    """Train networks one after the other, on one thread or the GPU."""
    import torch

    torch.set_num_threads(1)
    x, y = (torch.from_numpy(each).to(device) for each in _network_rows(ONE_BY_ONE))
    _train(_network().to(device), x[0], y[0], 1)
    began = time.monotonic()
    loss = sum(_train(_network().to(device), *rows, STEPS) for rows in zip(x, y, strict=True))
    return {
        "networks a second": ONE_BY_ONE / (time.monotonic() - began),
        "loss": loss / ONE_BY_ONE,
    }


def _train(network: Any, x: Any, y: Any, steps: int) -> float:
    import torch

    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(x), y)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def together(device: str) -> Figures:
    """Train all networks by torch.func.vmap."""
    import torch

    x, y = (torch.from_numpy(each).to(device) for each in _network_rows(NETWORKS))
    train_together(x[:2], y[:2], 1)
    began = time.monotonic()
    _, losses = train_together(x, y, STEPS)
    loss = float(losses.mean())
    return {"networks a second": NETWORKS / (time.monotonic() - began), "loss": loss}


def train_together(x: Any, y: Any, steps: int) -> tuple[dict[str, Any], Any]:
    """Return the parameters of a network for each x and y, stacked, and their losses."""
    import torch

    networks = [_network().to(x.device) for _ in range(len(x))]
    stacked, _ = torch.func.stack_module_state(networks)
    shape = networks[0]

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        predicted = torch.func.functional_call(shape, params, (x,))
        return torch.nn.functional.mse_loss(predicted, y)

    step = torch.func.vmap(torch.func.grad_and_value(loss_of))
    # Adam looks at each number by itself, so that it need not know of networks.
    optimizer = torch.optim.Adam(stacked.values(), lr=0.01)
    for _ in range(steps):
        with torch.no_grad():
            gradients, losses = step(dict(stacked), x, y)
        for name, each in stacked.items():
            each.grad = gradients[name]
        optimizer.step()
    return stacked, losses


def train_group(data: Any, context: Any) -> dict[str, list[float]]:
    """Train the networks of one partition, whose rows lie series by series, and keep them."""
    import torch

    rows = data.to_arrow()
    flat = np.stack([rows[f"x{i}"].to_numpy() for i in range(INPUTS)], axis=1)
    x = torch.from_numpy(flat.reshape(-1, NETWORK_ROWS, INPUTS)).to("cuda")
    y = torch.from_numpy(rows["y"].to_numpy().reshape(-1, NETWORK_ROWS, 1)).to("cuda")
    stacked, losses = train_together(x, y, STEPS)
    content = io.BytesIO()
    torch.save({name: each.detach().cpu() for name, each in stacked.items()}, content)
    context.upload(content.getvalue(), "networks.pt")
    return {"loss": losses.tolist()}


def groups() -> Figures:
    """Train all networks in partitions of many."""
    x, y = _network_rows(NETWORKS)
    flat = x.reshape(-1, INPUTS)
    group = np.repeat(np.arange(NETWORKS) // GROUP, NETWORK_ROWS)
    names = {f"x{i}": np.ascontiguousarray(flat[:, i]) for i in range(INPUTS)}
    table = pa.table({"group": group, **names, "y": y.ravel()})
    with tempfile.TemporaryDirectory() as store:
        began = time.monotonic()
        run = map_partitions(
            table, "group", train_group, run_id="bench", store=store, cluster=CudaCluster()
        )
        seconds = time.monotonic() - began
        losses = run.predictions()["loss"].to_numpy()
    return {"networks a second": NETWORKS / seconds, "loss": float(losses.mean())}


def do_nothing(data: Any, context: Any) -> None:
    """Stand for a function that costs nothing."""


def shuffle(work: Work) -> Figures:
    """Bring rows together by their keys on a CudaCluster."""
    rows, generator = 10_000_000, np.random.default_rng(3)
    path = work.folder / "shuffle.parquet"
    keys = generator.integers(0, 10_000, rows)
    columns = {f"x{i}": generator.standard_normal(rows, np.float32) for i in range(4)}
    pq.write_table(pa.table({"key": keys, **columns}), path)
    with tempfile.TemporaryDirectory() as store:
        run = map_partitions(
            str(path), "key", do_nothing, run_id="bench", store=store, cluster=CudaCluster()
        )
        return {"load s": _stages(run)["load"]}


CONTESTANTS: dict[str, dict[str, Callable[[Work], Figures]]] = {
    "models": {
        f"XGBoost, {CORES} cores": partial(many_models, at_once=0),
        **{f"on the GPU, {n} at once": partial(many_models, at_once=n) for n in (1, 4, 16)},
    },
    "big": {
        f"XGBoost, one process of {CORES} threads": partial(plain, device="cpu"),
        "XGBoost, one process on the GPU": partial(plain, device="cuda"),
        "XGBoost, a gang of one rank with the GPU": gang,
    },
    "networks": {
        "one by one, a core": lambda _: one_by_one("cpu"),
        "one by one on the GPU": lambda _: one_by_one("cuda"),
        f"together, {CORES} cores": lambda _: together("cpu"),
        "together on the GPU": lambda _: together("cuda"),
        f"partwise, {GROUP} in a partition on the GPU": lambda _: groups(),
    },
    "shuffle": {"10M rows on a CudaCluster": shuffle},
}


def measure(name: str, contestant: str, work: Work) -> str:
    """Run a contestant in a process of its own, and return its line."""
    words = [sys.executable, __file__, "--contestant", name, contestant, str(work.folder)]
    words += ["--partitions", str(work.partitions), "--rows", str(work.rows)]
    process = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        return f"{contestant:44}ended with {process.returncode}"
    figures = json.loads(process.stdout.splitlines()[-1])
    shown = ", ".join(f"{what} {number:,.4g}" for what, number in figures.items())
    return f"{contestant:44}{shown}"


def device() -> str:
    """Return what is measured: the GPU, the cores, versions."""
    import pynvml

    pynvml.nvmlInit()
    name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    driver = pynvml.nvmlSystemGetDriverVersion()
    versions = ", ".join(f"{each} {version(each)}" for each in ("xgboost", "torch", "dask-cuda"))
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{name}, driver {driver}, {CORES} cores, Python {python}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=[*CONTESTANTS])
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    if given.contestant:
        name, contestant, folder = given.contestant
        work = Work(Path(folder), given.partitions, given.rows)
        began = time.monotonic()
        figures = CONTESTANTS[name][contestant](work)
        print(json.dumps({"seconds": time.monotonic() - began, **figures}))
        return
    print(device(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        work = Work(Path(made), given.partitions, given.rows)
        work.write()
        for name in given.only:
            print(f"\n{name}")
            for contestant in CONTESTANTS[name]:
                print(measure(name, contestant, work), flush=True)


if __name__ == "__main__":
    main()
