"""Models of real data as ONNX, each proved: a model for each route of a bike share."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.frame.contest import take_part
from benchmarks.frame.measure import prepare_by
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row
from benchmarks.rows.routes import link_trips

EXPORT = "partwise, export and proof"


def row(place: Place) -> Row:
    """Export all models of a run that is there."""
    keys = ["start_station"] if place.quick else ["start_station", "end_station"]
    limit_s = place.size(900, 90)

    def prepare() -> None:
        link_trips(place.folder)
        (place.folder / "keys").write_text(" ".join(keys))
        prepare_by(place.ours(__name__, "train", place.folder, OUT), limit_s)

    return Row(
        title="Export",
        work=f"LightGBM models of 326,339 bike trips by {' and '.join(keys)} to ONNX, each "
        "compared with its model before it is kept: the whole process.",
        contestants=[
            Contestant(EXPORT, place.ours(__name__, "export", place.folder, OUT), "a run")
        ],
        goals=[Goal("s", 60, lambda found: found[EXPORT]["seconds"])],
        shown="",
        turns=1,
        limit_s=limit_s,
        prepare=prepare,
    )


def train(folder: Path, _: Path) -> Mapping[str, float]:
    """Train a model of each key."""
    from partwise import LocalCluster, train_models
    from tests.flows.test_bike_exports import TRAINERS

    run = train_models(
        str(folder / "trips.parquet"),
        (folder / "keys").read_text().split(),
        TRAINERS["lightgbm"].model_copy(update={"min_rows": 1}),
        run_id="trained",
        store=str(folder / "store"),
        cluster=LocalCluster(workers=2),
    )
    return {"models": run.counts["DONE"]}


def export(folder: Path, _: Path) -> Mapping[str, float]:
    """Export them."""
    from partwise import LocalCluster, export_models

    run = export_models("trained", store=str(folder / "store"), cluster=LocalCluster(workers=2))
    assert run.summary is not None
    return {"models": run.counts["DONE"], "stage s": run.summary.stages["export"]}


if __name__ == "__main__":
    take_part({"train": train, "export": export})
