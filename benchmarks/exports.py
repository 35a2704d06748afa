"""Export a run of models to ONNX, prove each, and infer with them beside the training library.

    python benchmarks/exports.py --partitions 200 --rows 2_000

One run of everything, on one Dask worker with one slot, so that figures are for one core: exports
per second (written, compared on held-out and adversarial rows, committed), and rows per second of
inference by LightGBM or XGBoost and by onnxruntime, in turns. The table is made by this script.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")

from partwise.blocks import LocalCluster
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.flows import export_models, run_inference, train_models
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer, XGBoostTrainer, default_predict

FEATURES = 10


def write_table(path: Path, partitions: int, rows: int) -> None:
    random = np.random.default_rng(1)
    with pq.ParquetWriter(path, table(random, 0, 1).schema) as writer:
        for key in range(partitions):
            writer.write_table(table(random, key, rows))


def table(random: np.random.Generator, key: int, rows: int) -> pa.Table:
    matrix = random.normal(size=(rows, FEATURES))
    columns = {f"x{i}": matrix[:, i] for i in range(FEATURES)}
    label = matrix @ np.arange(FEATURES) + np.abs(matrix[:, 0]) * 5 + random.normal(size=rows)
    return pa.table({"key": np.full(rows, key), **columns, "label": label})


def predict_timed(data: DataConnector, model: object, context: PartitionContext) -> dict:
    """Predict a partition, and keep how long that took without reading, writing and Dask."""
    began = time.perf_counter()
    predictions = default_predict(data, model, context)
    seconds = time.perf_counter() - began
    return {"prediction": predictions, "seconds": np.full(len(predictions), seconds)}


def stage_seconds(run: Run, stage: str) -> float:
    return 0.0 if run.summary is None else run.summary.stages[stage]


def measure(
    kind: str, trainer: LightGBMTrainer | XGBoostTrainer, source: Path, args: argparse.Namespace
) -> None:
    store, cluster = source.parent / "store", LocalCluster(workers=1)
    settings = {"store": store, "cluster": cluster}
    rows = args.partitions * args.rows
    trained = train_models(source, "key", trainer, run_id=kind, **settings)
    exported = export_models(kind, run_id=f"{kind}-onnx", **settings)
    seconds = stage_seconds(exported, "export")
    print(
        f"{kind}: {args.partitions} models of {args.rounds} trees trained in "
        f"{stage_seconds(trained, 'train'):.1f} s; exported and proved in {seconds:.1f} s: "
        f"{args.partitions / seconds:.1f} exports/s on one core, "
        f"{1000 * seconds / args.partitions:.0f} ms each"
    )
    numbers = exported.partitions.to_pydict()
    print(
        f"  largest difference {max(numbers['export_max_abs_diff']):.1e}; rows compared a model "
        f"{statistics.median(numbers['export_rows']):.0f}; file "
        f"{statistics.median(numbers['export_bytes']) / 1e3:.0f} kB"
    )
    times: dict[str, list[tuple[float, float]]] = {"native": [], "onnx": []}
    for turn in range(args.turns):
        for form, model_run in (("native", kind), ("onnx", f"{kind}-onnx")):
            run = run_inference(
                source, "key", model_run, predict_timed, format=form, version="1",
                run_id=f"{kind}-{form}-{turn}", **settings,
            )  # fmt: skip
            predicted = (
                run.predictions(["key", "seconds"]).group_by("key").aggregate([("seconds", "max")])
            )
            times[form].append(
                (stage_seconds(run, "infer"), sum(predicted["seconds_max"].to_pylist()))
            )
    whole = {form: statistics.median(t[0] for t in found) for form, found in times.items()}
    predict = {form: statistics.median(t[1] for t in found) for form, found in times.items()}
    for form in times:
        print(
            f"  infer {form:<7} {rows / whole[form]:>12,.0f} rows/s in all, "
            f"{rows / predict[form]:>12,.0f} rows/s of prediction alone"
        )
    print(
        f"  onnx beside native: {whole['native'] / whole['onnx']:.2f} x in all, "
        f"{predict['native'] / predict['onnx']:.2f} x of prediction"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2000, help="of a partition")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partwise-exports-") as directory:
        source = Path(directory, "rows.parquet")
        write_table(source, args.partitions, args.rows)
        of_lightgbm = LightGBMTrainer(label="label", rounds=args.rounds)
        of_xgboost = XGBoostTrainer(label="label", rounds=args.rounds)
        measure("lightgbm", of_lightgbm, source, args)
        measure("xgboost", of_xgboost, source, args)


if __name__ == "__main__":
    main()
