"""A script of ranks by a gang, beside torchrun."""

from benchmarks.frame.row import Contestant, Place, Row

BOTH = "partwise and torchrun"


def row(place: Place) -> Row:
    """Run benchmarks/scripts.py, whose turns are its own."""
    epochs, turns = place.size(50, 2), place.size(3, 1)
    words = ("--epochs", epochs, "--turns", turns)
    return Row(
        title="A script of ranks",
        work=f"A script of torch with two gloo ranks, {epochs} epochs; medians of {turns} turns, "
        "by the script's own clock, on a cluster that is there.",
        contestants=[Contestant(BOTH, place.ours("benchmarks.scripts", *words), "a run")],
        goals=(),
        shown="",
        turns=1,
        limit_s=place.size(900, 90),
    )
