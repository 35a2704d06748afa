"""Whether a partition costs the same among a million, and what the driver holds of them."""

from benchmarks.frame.row import Contestant, Figures, Goal, Place, Row

FEW, MANY = "partwise, a tenth", "partwise, all"
ROWS = 10


def row(place: Place) -> Row:
    """Run benchmarks/overhead.py at a tenth and at the whole."""
    partitions = place.size(1_000_000, 30_000)

    def run(name: str, count: int) -> Contestant:
        words = ("--partitions", count, "--rows", ROWS, "--json")
        return Contestant(name, place.ours("benchmarks.overhead", *words), "a run")

    def growth(found: Figures) -> float:
        return found[MANY]["call s"] / found[FEW]["call s"] / 10

    return Row(
        title="Scale",
        work=f"A function that does nothing over {partitions // 10:,} and {partitions:,} "
        f"partitions of {ROWS} rows; the memory is that of driver and scheduler, one process.",
        contestants=[run(FEW, partitions // 10), run(MANY, partitions)],
        goals=[
            Goal("cost of a partition beside that at a tenth", 1.3, growth),
            Goal("MiB of the driver", 800e6 / 2**20, lambda found: found[MANY]["driver MiB"]),
        ],
        shown="driver MiB",
        turns=1,
        limit_s=place.size(1500, 60),
    )
