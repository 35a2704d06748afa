"""Write a folder such as `tests/reference/v2`: what every later release has to read.

    python -m tests.reference.write_reference FOLDER

That is runs, a dataset and values. What stands in the repository was written when its format was
new, and is never written again: a format that changes gets a folder of its own.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from partwise.datasets.dataset import Dataset
from partwise.datasets.registration import register_dataset
from partwise.engine.options import ExecutionOptions
from partwise.flows import export_models, run_inference, train_models
from partwise.runs.run import Run
from tests.plain_cluster import plain_cluster
from tests.reference.functions import SEED, VERSION, fit, sales
from tests.reference.values import code, python, values

FEATURES = ["day", "price"]


def described(run: Run) -> dict[str, Any]:
    """Describe what a run holds, as JSON."""
    ledger = run.partitions
    keys = ledger["store"].to_pylist()
    done = [key for key in keys if run.artifacts(key)]
    return {
        "kind": run.kind,
        "status": run.status.value,
        "counts": run.counts,
        "partitions": ledger.select(
            ["store", "partition_id", "status", "rows", "fingerprint", "error_message"]
        ).to_pylist(),
        "artifacts": {key: sorted(run.artifacts(key)) for key in keys},
        "logs": {key: run.logs(key) for key in keys},
        "documents": {key: documents_of(run, key) for key in done},
    }


def documents_of(run: Run, key: str) -> dict[str, Any]:
    """Read the JSON artifacts of a partition."""
    names = [name for name in run.artifacts(key) if name.endswith(".json")]
    return {name: run.artifact(key, name) for name in names}


def predictions_of_models(run: Run) -> dict[str, list[float]]:
    """Predict three rows with each model of the training run."""
    rows = sales().slice(0, 3).select(FEATURES).to_pandas().to_numpy()
    keys = [row["store"] for row in run.partitions.to_pylist() if row["status"] == "DONE"]
    return {key: run.model(key).predict(rows).tolist() for key in keys}


def write(folder: Path) -> None:
    """Write the store, what is expected of it, and the values."""
    folder.mkdir(parents=True, exist_ok=True)
    store = str(folder / "store")
    dataset = register_dataset("sales", sales(), store=store, label="sales")
    options = {"store": store, "seed": SEED, "version": VERSION}
    execution = ExecutionOptions(n_shards=1, max_retries=0)
    with plain_cluster(1) as client:
        cluster = client.scheduler.address
        arguments: dict[str, Any] = {**options, "cluster": cluster, "execution": execution}
        train = train_models("dataset://sales@1", "store", fit, run_id="train", **arguments)
        infer = run_inference(
            "dataset://sales@1",
            "store",
            "train",
            run_id="infer",
            keep_columns=["day"],
            on_missing_model="skip",
            **arguments,
        )
        export = export_models(
            "train",
            run_id="export",
            store=store,
            version=VERSION,
            cluster=cluster,
            execution=ExecutionOptions(max_retries=0),
        )
    for left in [folder / "store" / "shards", *folder.glob("store/runs/*/report.html")]:
        # What no later release reads: a cache, and pages with this machine's paths in them.
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    _write_json(
        folder / "expected.json",
        {
            "runs": {run.run_id: described(run) for run in (train, infer, export)},
            "models": predictions_of_models(train),
            "predictions": infer.predictions().to_pydict(),
            "dataset": expected_of(dataset),
        },
    )
    _write_json(folder / "values.json", {"values": values(), "code": {python(): code()}})


def expected_of(dataset: Dataset) -> dict[str, Any]:
    """Describe what a dataset holds, as JSON."""
    description = dataset.source().description()
    return {
        "reference": dataset.reference,
        "fingerprint": dataset.fingerprint,
        "source_fingerprint": description.fingerprint,
        "rows": dataset.rows,
        "schema": str(dataset.schema),
        "statistics": {
            name: json.loads(column.model_dump_json())
            for name, column in dataset.statistics.items()
        },
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def main() -> None:
    """Write into the folder that is named, which must not exist yet."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("Name one folder that does not exist yet.")
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PREFECT_HOME"] = home
        write(target)


if __name__ == "__main__":
    main()
