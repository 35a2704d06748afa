"""What it takes to keep a model, and to start a cluster, whoever does it: what no engine is below.

    python benchmarks/floors.py [--models 200] [--turns 3]

Two models of LightGBM, that of benchmarks/rows/models.py (300 rows x 6, 50 rounds) and one of a
single round, are trained again and again on one core by the library's cheapest call, made text by
the library, deflated (ISA-L, level 1), given a SHA-256, and read again: medians of all calls.

A process of its own starts Dask's LocalCluster of two workers, does nothing with it and ends:
medians of the turns, by the clock and in CPU of all its processes.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import psutil
from isal import isal_zlib

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rows.models import FEATURES, ROWS, SETTINGS, train

EMPTY_CLUSTER = """
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.submit(int).result()
"""
TINY = {**SETTINGS, "num_leaves": 4, "min_data_in_leaf": 5}


def tiny(x: Any, y: Any) -> Any:
    """Return a booster of one round."""
    return lightgbm.train(TINY, lightgbm.Dataset(x[:60], y[:60], params=TINY), 1)


def steps_of(model: Callable[[Any, Any], Any], models: int) -> dict[str, float]:
    """Return the median microseconds of each step to a kept model, and what it weighs."""
    random = np.random.default_rng(0)
    spent: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        found = call(*arguments)
        spent.setdefault(name, []).append((time.perf_counter() - began) * 1e6)
        return found

    for _ in range(models):
        x = random.normal(size=(ROWS, len(FEATURES)))
        y = x[:, 0] + x[:, 1] * x[:, 2] + random.normal(scale=0.1, size=ROWS)
        booster = timed("train", model, x, y)
        text = timed("text", booster.model_to_string)
        content = text.encode()
        timed("deflate", isal_zlib.compress, content, 1, -15)
        timed("SHA-256", _digest, content)
        timed("read", _read, text)
        spent.setdefault("bytes", []).append(len(content))
    return {name: statistics.median(each) for name, each in spent.items()}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(text: str) -> Any:
    return lightgbm.Booster(model_str=text)


def empty_cluster() -> tuple[float, float]:
    """Return the seconds of a process that starts a cluster and ends, by the clock and of CPU."""
    began = time.perf_counter()
    before = psutil.Process().cpu_times()
    subprocess.run([sys.executable, "-c", EMPTY_CLUSTER], check=True)
    after = psutil.Process().cpu_times()
    cpu = after.children_user - before.children_user + after.children_system
    return time.perf_counter() - began, cpu - before.children_system


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    names = ("train", "text", "deflate", "SHA-256", "read", "bytes")
    print(f"{'us a model':<34}" + "".join(f"{name:>10}" for name in names) + f"{'kept':>8}")
    for title, model in ((f"{ROWS} rows x 6, 50 rounds", train), ("one round", tiny)):
        found = steps_of(model, given.models)
        kept = sum(found[name] for name in ("train", "text", "deflate", "SHA-256"))
        cells = "".join(f"{found[name]:>10,.0f}" for name in names)
        print(f"{title:<34}{cells}{kept / found['train']:>7.2f}x")
    turns = [empty_cluster() for _ in range(given.turns)]
    clock, cpu = (statistics.median(each) for each in zip(*turns, strict=True))
    print(f"Dask, two workers that do nothing: {clock:.2f} s, {cpu:.2f} s of CPU")


if __name__ == "__main__":
    main()
