"""Train functions of studies: a module of its own, which children import at no cost."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from partwise.outcomes import Result
from partwise.runs.run import Run


def parabola(data: Any, context: Any) -> Result:
    """Be as good as x is near 0.3, and say so in five steps."""
    x = float(context.params["x"])
    loss = (x - 0.3) ** 2
    for step in range(5):
        context.report(step=step, metric=loss + 5 - step)
    return Result({"x": x}, {"loss": loss, "rows": data.to_arrow().num_rows})


def journalled(data: Any, context: Any) -> Result:
    """Write down that the trial began and ended, and take a while."""
    folder = Path(context.params["folder"])
    with (folder / "begun").open("a") as file:
        file.write(f"{context.key}\n")
    time.sleep(0.3)
    result = parabola(data, context)
    with (folder / "ended").open("a") as file:
        file.write(f"{context.key}\n")
    return result


def look_at_itself(data: Any, context: Any) -> Result:
    """Wait until readers see that the first trial runs, and count how many others wait."""
    statuses = []
    while context.key == 0 and "RUNNING" not in statuses:
        time.sleep(0.1)
        run = Run.open(context.run_id, context.params["store"])
        statuses = run.partitions["status"].to_pylist()
    return Result({}, {"loss": context.key, "pending": statuses.count("PENDING")})


def fail(data: Any, context: Any) -> Any:
    """Fail in every trial."""
    raise ValueError(f"no way with {context.params['x']:.0f}")


def nothing(data: Any, context: Any) -> dict[str, float]:
    """Return a model without the metric."""
    return dict(context.params)


def gang_parabola(context: Any) -> Result | None:
    """Be as good as x is near 0.3, on all ranks together, and say so in five steps."""
    x = float(context.params["x"])
    rows = sum(int(each) for each in context.all_gather(b"%d" % context.share().rows))
    if folder := context.params.get("folder"):
        with Path(folder, "begun").open("a") as file:
            file.write(f"{x}\n" if context.rank == 0 else "")
    for step in range(5):
        context.report(step=step, loss=(x - 0.3) ** 2 + 5 - step)
        context.barrier()
    if context.rank == 0 and folder:
        with Path(folder, "ended").open("a") as file:
            file.write(f"{x}\n")
    return Result({"x": x}, {"loss": (x - 0.3) ** 2, "rows": rows}) if context.rank == 0 else None


def score_on_late(context: Any) -> Result:
    """Predict x * y, and score that on another table than the one to train on."""
    tables = [context.data().to_arrow(), context.data("late").to_arrow()]
    y = np.abs(tables[1]["y"].to_numpy())
    loss = float(np.abs(2 * y - context.params["x"] * y).mean())
    seen = [set(table["late"].to_pylist()) for table in tables]
    return Result([*(table.num_rows for table in tables), *seen], {"loss": loss})


def die_on_rank_1(context: Any) -> Result | None:
    """Lose rank 1 in the first attempt, always where x is above 0."""
    x = float(context.params["x"])
    if context.rank == 1 and (context.attempt == 1 or x > 0):
        os.kill(os.getpid(), signal.SIGKILL)
    context.barrier()
    return Result({"x": x}, {"loss": x}) if context.rank == 0 else None


def wait_together(context: Any) -> Result | None:
    """Come to the end only when as many trials are at work as are told."""
    folder = Path(context.params["folder"])
    (folder / f"trial-{context.params['x']}").touch()
    while len(list(folder.glob("trial-*"))) < 2:
        time.sleep(0.05)
    return Result({"x": 1}, {"loss": 1.0})
