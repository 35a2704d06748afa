"""One big model by a gang: beside one process on the same path, and the libraries' front ends."""

from benchmarks.frame.row import Contestant, Goal, Place, Row, ratio
from benchmarks.gangs import CONTESTANTS, OF_TRIPS, WORKERS, write_both, write_trips

OF_FEW = ("XGBoost, one process", "XGBoost, gang")
LEFT_OPEN = "XGBoost, ranks left open"
GAP = (35.8 - 22.8) / 22.8
"""By how much a gang took longer than one process for short rounds, in November 2026."""


def row(place: Place) -> Row:
    """Let each contestant of benchmarks/gangs.py train, on many rows and on joined tables."""
    rows, rounds, trips = place.size(6_000_000, 200_000), place.size(10, 5), 40_000
    big, joined = place.folder / "rows", place.folder / "tables"

    def prepare() -> None:
        big.mkdir()
        write_both(big, rows)
        joined.mkdir()
        write_trips(joined, trips)

    def contestant(name: str, shown: str, *words: object) -> Contestant:
        both = ("--contestant", name, *words)
        # One process has all threads, where the ranks of a gang have one each.
        threads = {"OMP_NUM_THREADS": str(WORKERS)} if "one process" in name else {}
        keeps = "nothing" if ".dask" in name else "a run"
        return Contestant(shown, place.ours("benchmarks.gangs", *both), keeps, environment=threads)

    many = [
        contestant(name, _shown(name), "--folder", big, "--rounds", rounds)
        for name in (OF_FEW if place.quick else CONTESTANTS)
        if name != LEFT_OPEN
    ]
    tables = [
        contestant(name, _shown(name, short=True), "--folder", joined, "--trips", trips)
        for name in (() if place.quick else OF_TRIPS)
    ]
    goals = [
        Goal(f"{library}, gang / {other}", 1.0, ratio(_shown(f"{library}, gang"), other, "call s"))
        for library in ("XGBoost", "LightGBM")
        for other in (_shown(f"{library}, one process"), f"{library.lower()}.dask")
    ]
    short = [_shown(name, short=True) for name in (LEFT_OPEN, "XGBoost, one process")]
    goals.append(
        Goal(f"{short[0]} / one process, the gap halved", 1 + GAP / 2, ratio(*short, "call s"))
    )
    return Row(
        title="One big model",
        work=f"{rows:,} rows x 20, {rounds} rounds, {WORKERS} cores; and three tables joined to "
        f"{trips:,} shopping trips of 38 types, 100 rounds (the tables not in the quick version). "
        "The call is from the files to the model, on a cluster that is there.",
        contestants=[*many, *tables],
        goals=goals,
        shown="call s",
        turns=place.size(3, 1),
        limit_s=place.size(2700, 60),
        prepare=prepare,
    )


def _shown(name: str, *, short: bool = False) -> str:
    is_ours = ".dask" not in name
    return f"{'partwise, ' * is_ours}{name}{', three tables' * short}"
