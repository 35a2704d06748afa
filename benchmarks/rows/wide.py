"""Tables with very many columns: whether the cost follows the cells, beside reading the file."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Figures, Goal, Place, Row


@dataclass(frozen=True)
class Shape:
    """A table's size."""

    partitions: int
    rows: int
    columns: int

    @property
    def words(self) -> str:
        """How it is called."""
        return f"{self.partitions:,} x {self.rows} rows x {self.columns:,} columns"


def row(place: Place) -> Row:
    """Hand out each partition's cells, of three tables."""
    partitions, rows = place.size(1_000, 100), place.size(100, 30)
    full, half = Shape(partitions, rows, 500), Shape(partitions, rows, 250)
    widest = Shape(10, 30, 2_000)
    shapes = (full, widest) if place.quick else (half, full, widest)

    def contestant(part: str, name: str, shape: Shape) -> Contestant:
        folder = place.folder / str(shapes.index(shape))
        words = place.ours(__name__, part, folder, OUT)
        return Contestant(f"{name}, {shape.words}", words, "a run" if part == "map" else "nothing")

    def growth(found: Figures) -> float:
        return (
            found[f"partwise, {full.words}"]["work s"] / found[f"partwise, {half.words}"]["work s"]
        )

    def beside(shape: Shape) -> Goal:
        def found(figures: Figures) -> float:
            ours, read = figures[f"partwise, {shape.words}"], figures[f"pyarrow, {shape.words}"]
            return ours["work s"] / read["work s"]

        return Goal(f"dividing and mapping / reading the file, {shape.words}", 2, found)

    return Row(
        title="Wide",
        work="A function that takes each partition's rows as an Arrow table. The work is dividing "
        "the rows and mapping, without what starts before it.",
        contestants=[
            contestant(part, name, shape)
            for shape in shapes
            for part, name in (("map", "partwise"), ("read", "pyarrow"))
        ],
        goals=[
            Goal("500 columns / 250 columns", 2, growth),
            beside(full),
            beside(widest),
        ],
        shown="work s",
        turns=place.size(3, 1),
        limit_s=place.size(600, 60),
        prepare=lambda: _write_all(place.folder, shapes),
    )


def _write_all(folder: Path, shapes: tuple[Shape, ...]) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, shape in enumerate(shapes):
        (folder / str(number)).mkdir()
        key = np.repeat(np.arange(shape.partitions), shape.rows)
        cells = np.random.default_rng(0).random((shape.columns, len(key)))
        columns = {f"x{number}": column for number, column in enumerate(cells)}
        pq.write_table(pa.table({"key": key, **columns}), folder / str(number) / "rows.parquet")


def by_partwise(folder: Path, out: Path) -> Mapping[str, float]:
    """Map a function that looks at the table."""
    from partwise import LocalCluster, map_partitions

    run = map_partitions(
        str(folder / "rows.parquet"),
        "key",
        _look,
        store=str(out / "store"),
        cluster=LocalCluster(workers=2),
    )
    assert run.summary is not None
    return {"work s": run.summary.stages["load"] + run.summary.stages["map"]}


def _look(data: Any, context: Any) -> None:  # noqa: ARG001 (what every function takes)
    assert data.to_arrow().num_columns > 1


def by_reading(folder: Path, _: Path) -> Mapping[str, float]:
    """Read the table, and nothing more."""
    import pyarrow.parquet as pq

    began = time.perf_counter()
    pq.read_table(folder / "rows.parquet")
    return {"work s": time.perf_counter() - began}


if __name__ == "__main__":
    take_part({"map": by_partwise, "read": by_reading})
