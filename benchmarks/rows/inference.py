"""Models in use: predictions of very many rows, beside a loop that has all models in memory."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.measure import prepare_by
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row, ratio
from benchmarks.rows.models import FEATURES, make_rows

WORKERS, ROUNDS = 2, 20
NATIVE, ONNX = "partwise", "partwise, ONNX"
LOOP, ONNX_LOOP = "a loop, models in memory", "a loop of onnxruntime, models in memory"


def row(place: Place) -> Row:
    """Predict all rows four times."""
    models, rows = place.size(10_000, 100), place.size(1_000, 500)
    limit_s = place.size(2400, 90)

    def contestant(name: str, part: str, keeps: str) -> Contestant:
        return Contestant(name, place.ours(__name__, part, place.folder, OUT), keeps)

    def prepare() -> None:
        _write(place.folder / "rows.parquet", models, rows)
        prepare_by(place.ours(__name__, "train", place.folder, OUT), limit_s)

    return Row(
        title="Inference",
        work=f"{models * rows:,} rows by {models:,} LightGBM models of {ROUNDS} trees, to Parquet. "
        "The call is from the rows' file to those of predictions; a loop has its models before.",
        contestants=[
            contestant(NATIVE, "native", "a run"),
            contestant(ONNX, "onnx", "a run"),
            contestant(LOOP, "loop", "Parquet"),
            contestant(ONNX_LOOP, "onnx-loop", "Parquet"),
        ],
        goals=[
            Goal(f"{NATIVE} / {LOOP}", 1.15, ratio(NATIVE, LOOP, "call s")),
            Goal(f"{ONNX} / {ONNX_LOOP}", 1.15, ratio(ONNX, ONNX_LOOP, "call s")),
            Goal(f"{ONNX} / {NATIVE}", 1.0, ratio(ONNX, NATIVE, "call s")),
        ],
        shown="call s",
        turns=place.size(3, 1),
        limit_s=limit_s,
        prepare=prepare,
    )


def _write(path: Path, models: int, rows: int) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    pq.write_table(
        make_rows(np.random.default_rng(0).permutation(np.arange(models).repeat(rows))), path
    )


def train(folder: Path, _: Path) -> Mapping[str, float]:
    """Train the models on some of the rows, and export them."""
    from partwise import LightGBMTrainer, LocalCluster, export_models, train_models

    common: Any = {"store": str(folder / "store"), "cluster": LocalCluster(workers=WORKERS)}
    trainer = LightGBMTrainer(label="y", features=FEATURES, rounds=ROUNDS)
    train_models(str(folder / "rows.parquet"), "key", trainer, run_id="native", **common)
    export_models("native", run_id="onnx", **common)
    return {}


def by_models(folder: Path, out: Path) -> Mapping[str, float]:
    """Predict with the models as they are."""
    return _infer(folder, out, "native")


def by_onnx(folder: Path, out: Path) -> Mapping[str, float]:
    """Predict with their files of ONNX."""
    return _infer(folder, out, "onnx")


def _infer(folder: Path, out: Path, run_id: str) -> Mapping[str, float]:
    from partwise import LocalCluster, run_inference

    began = time.perf_counter()
    run = run_inference(
        str(folder / "rows.parquet"),
        "key",
        run_id,
        format=run_id,
        run_id=f"used-{out.parent.name}",
        store=str(folder / "store"),
        cluster=LocalCluster(workers=WORKERS),
    )
    return {"call s": time.perf_counter() - began, "partitions": run.counts["DONE"]}


def by_loop(folder: Path, out: Path) -> Mapping[str, float]:
    """Predict in two forks that have all models."""
    run = _run(folder, "native")
    models = [run.model(key) for key in run.partitions["key"].to_pylist()]
    return _loop(folder, out, [model.predict for model in models])


def by_onnx_loop(folder: Path, out: Path) -> Mapping[str, float]:
    """Predict in two forks that have all sessions, each of one thread."""
    import onnxruntime

    run = _run(folder, "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def predict(session: Any) -> Callable[[Any], Any]:
        names = [each.name for each in session.get_inputs()]
        return lambda x: session.run(None, dict(zip(names, [x], strict=True)))[0].ravel()

    files = [run.artifact(key, "model.onnx") for key in run.partitions["key"].to_pylist()]
    sessions = [onnxruntime.InferenceSession(each, options) for each in files]
    return _loop(folder, out, [predict(session) for session in sessions])


def _run(folder: Path, run_id: str) -> Any:
    from partwise import Run

    return Run.find(run_id, str(folder / "store"))


def _loop(folder: Path, out: Path, predict: list[Callable[[Any], Any]]) -> Mapping[str, float]:
    """Read the rows, sort them by key, and predict those of each model; write a file a fork."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.frame.bare import in_forks, spans_of

    began = time.perf_counter()
    rows = pq.read_table(folder / "rows.parquet")
    key = rows["key"].to_numpy()
    order, spans = spans_of(key)
    x = np.column_stack([rows[name].to_numpy() for name in FEATURES])[order]
    key = key[order]

    def work(place: int) -> list[float]:
        mine = range(place, len(spans), WORKERS)
        found = [predict[number](x[slice(*spans[number])]) for number in mine]
        keys = np.concatenate([key[slice(*spans[number])] for number in mine])
        table = pa.table({"key": keys, "prediction": np.concatenate(found)})
        pq.write_table(table, out / f"{place}.parquet")
        return [float(len(each)) for each in found]

    rows_of = in_forks(WORKERS, work)
    return {"call s": time.perf_counter() - began, "partitions": len(rows_of)}


if __name__ == "__main__":
    take_part(
        {
            "train": train,
            "native": by_models,
            "onnx": by_onnx,
            "loop": by_loop,
            "onnx-loop": by_onnx_loop,
        }
    )
