"""What `partwise serve` costs and withstands, beside MLflow's scoring server and MLServer."""

import shutil
import tempfile
from pathlib import Path

from benchmarks.frame.row import Contestant, Goal, NotThereError, Place, Row

US = "partwise serve, a catalog, and others with a model"
WARM, ALL, DISK, CHANGED = (
    "warm, a tenth of the keys",
    "warm, all keys",
    "cold, from disk",
    "three promotions",
)
GOALS = (
    (f"{WARM}: p50 ms", 1.0),
    (f"{WARM}: p99 ms", 5.0),
    (f"{WARM}: CPU ms", 0.5),
    (f"{DISK}: p99 ms", 10.0),
    (f"{WARM}: MiB", 400.0),
    (f"{ALL}: MiB", 900.0),
    (f"{CHANGED}: failed", 0.0),
)


def row(place: Place) -> Row:
    """Run benchmarks/serving.py, whose last line names these figures as JSON."""
    keys = place.size(10_000, 300)
    # Kept for the next time, since it takes longer to make than to measure.
    folder = Path(tempfile.gettempdir(), "partwise-serving")
    options = ("--keys", keys, "--seconds", place.size(15, 4), "--folder", folder, "--json")

    def prepare() -> None:
        if shutil.which("wrk") is None:
            raise NotThereError("there is no wrk: apt-get install wrk")

    return Row(
        title="Serving",
        work=f"A catalog of {keys:,} keys, 8 columns, LightGBM's models of 30 rounds as ONNX, "
        "asked by wrk at an open rate of 200/s, cold ones 50/s; beside it MLflow's scoring server "
        "and MLServer with one model each.",
        contestants=[Contestant(US, place.ours("benchmarks.serving", *options))],
        goals=[
            *(Goal(text, most, lambda found, text=text: found[US][text]) for text, most in GOALS),
            Goal(
                "p99 during promotions / steady",
                2.0,
                lambda found: found[US][f"{CHANGED}: p99 ms"] / found[US]["steady: p99 ms"],
            ),
            *(
                Goal(
                    f"CPU, partwise / {other}",
                    0.2,
                    lambda found, other=other: (
                        found[US][f"{WARM}: CPU ms"] / found[US][f"{other}, one model: CPU ms"]
                    ),
                )
                for other in ("MLflow", "MLServer")
            ),
        ],
        shown="",
        turns=1,
        limit_s=place.size(3600, 600),
        prepare=prepare,
    )
