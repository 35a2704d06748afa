"""What storing a tiny model costs beyond calling the function that makes it."""

from pathlib import Path

from benchmarks.frame.row import ROOT, Contestant, Goal, NotThereError, Place, Row

SCRIPT = Path("benchmarks", "stored_models.py")
US = "partwise, tiny models"
FORMATS = ("pickle", "lightgbm")


def row(place: Place) -> Row:
    """Run benchmarks/stored_models.py, which prints `pickle us` and `lightgbm us` as JSON."""
    models = place.size(100_000, 5_000)

    def prepare() -> None:
        if not (ROOT / SCRIPT).exists():
            raise NotThereError(f"there is no {SCRIPT} yet")

    return Row(
        title="Tiny stored models",
        work=f"{models:,} models of a few bytes, and as many of a function that stores nothing.",
        contestants=[
            Contestant(
                US, place.ours("benchmarks.stored_models", "--models", models, "--json"), "a run"
            )
        ],
        goals=[
            Goal(
                f"us a model beyond the no-op, {name}",
                60,
                lambda found, name=name: found[US][f"{name} us"],
            )
            for name in FORMATS
        ],
        shown="",
        turns=1,
        limit_s=place.size(600, 90),
        prepare=prepare,
    )
