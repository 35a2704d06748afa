"""What is left to do where all is done: a run of very many partitions that is called again."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.frame.contest import take_part
from benchmarks.frame.measure import prepare_by
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row
from benchmarks.overhead import do_nothing, make_source

AGAIN = "partwise, the same call again"


def row(place: Place) -> Row:
    """Resume a run that is complete."""
    partitions, limit_s = place.size(100_000, 5_000), place.size(300, 40)

    def prepare() -> None:
        make_source(place.folder / "rows.parquet", partitions, 10)
        prepare_by(place.ours(__name__, "call", place.folder, OUT), limit_s)

    return Row(
        title="Resume",
        work=f"A run of {partitions:,} partitions that are all done, by the same call again.",
        contestants=[Contestant(AGAIN, place.ours(__name__, "call", place.folder, OUT), "the run")],
        goals=[Goal("s to the exit", 2.0, lambda found: found[AGAIN]["seconds"])],
        shown="",
        turns=place.size(3, 1),
        limit_s=limit_s,
        prepare=prepare,
    )


def call(folder: Path, _: Path) -> Mapping[str, float]:
    """Start the run, or resume it."""
    from partwise import LocalCluster, map_partitions

    run = map_partitions(
        str(folder / "rows.parquet"),
        "key",
        do_nothing,
        run_id="all",
        store=str(folder / "store"),
        on_existing_artifacts="resume",
        cluster=LocalCluster(workers=2),
    )
    return {"executed": run.executed, "kept": run.kept}


if __name__ == "__main__":
    take_part({"call": call})
