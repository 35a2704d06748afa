"""What a command costs before and behind its work, beside a script of Dask that does the same."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row
from benchmarks.start import GOALS, PARTITIONS, ROWS, write_rows

US, DASK = "partwise", "Dask, a bare script"
TRAIN = GOALS[3].name


def row(place: Place) -> Row:
    """Start commands, and a script."""
    repeats = place.size(5, 1)
    words = place.ours("benchmarks.start", "--repeats", repeats, "--json")
    goals = [
        Goal(each.name, each.seconds, lambda found, name=each.name: found[US][name])
        for each in GOALS
    ]
    goals.append(
        Goal(f"{TRAIN} / {DASK}", 1.0, lambda found: found[US][TRAIN] / found[DASK]["seconds"])
    )
    return Row(
        title="Start",
        work=f"Commands and what they take around their work: {PARTITIONS} models of {ROWS} rows, "
        f"and less. Of partwise each figure is the median of {repeats} calls, in seconds.",
        contestants=[
            Contestant(US, words, "a run", turns=1),
            Contestant(DASK, place.ours(__name__, "dask", place.folder, OUT), "nothing"),
        ],
        goals=goals,
        shown="",
        turns=repeats,
        limit_s=place.size(300, 60),
        prepare=lambda: write_rows(place.folder / "sales.parquet"),
    )


def by_dask(folder: Path, _: Path) -> Mapping[str, float]:
    """Train a model of each store as a user of Dask would."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        rows = dd.read_parquet(folder / "sales.parquet")
        models = rows.groupby("store").apply(_fit, meta=("model", "object")).compute()
        assert len(models) == PARTITIONS
    return {}


def _fit(rows: object) -> str:
    import lightgbm

    data = lightgbm.Dataset(rows[["x", "price"]].to_numpy(), rows["sales"].to_numpy())  # type: ignore[index]
    return str(lightgbm.train({"num_threads": 1, "verbose": -1}, data, 100).model_to_string())


if __name__ == "__main__":
    take_part({"dask": by_dask})
