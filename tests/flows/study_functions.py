"""Train functions of studies: a module of its own, which children import at no cost."""

import time
from pathlib import Path
from typing import Any

from partwise.outcomes import Result


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


def fail(data: Any, context: Any) -> Any:
    """Fail in every trial."""
    raise ValueError(f"no way with {context.params['x']:.0f}")


def nothing(data: Any, context: Any) -> dict[str, float]:
    """Return a model without the metric."""
    return dict(context.params)
