"""Train the model of one key, and lay it out for MLflow and MLServer; run by their environment.

    python peer_model.py ROWS FOLDER ROUNDS

MLflow's folder is FOLDER/mlflow, MLServer's is FOLDER/mlserver.
"""

import json
import sys
from pathlib import Path

import lightgbm
import mlflow.lightgbm
import pyarrow.parquet as pq


def main(rows: str, folder: Path, rounds: int) -> None:
    """Train on the rows of key 0, and write."""
    table = pq.read_table(rows, filters=[("key", "==", 0)]).drop_columns(["key"])
    frame = table.to_pandas()
    label = frame.pop("y")
    settings = {"objective": "regression", "num_threads": 1, "verbosity": -1}
    model = lightgbm.train(settings, lightgbm.Dataset(frame, label), rounds)
    mlflow.lightgbm.save_model(model, folder / "mlflow", pip_requirements=["lightgbm"])
    served = folder / "mlserver"
    served.mkdir()
    model.save_model(served / "model.bst")
    of_model = {
        "name": "sales",
        "implementation": "mlserver_lightgbm.LightGBMModel",
        "parameters": {"uri": "./model.bst", "version": "v1"},
    }
    (served / "model-settings.json").write_text(json.dumps(of_model))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
