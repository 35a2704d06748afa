"""Runs that live in Azure, with keys that only the driver was given."""

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.flows import export_models, run_inference, train_models
from partwise.outcomes import RunStatus
from partwise.store.credentials import set_credentials
from partwise.store.store import Store
from partwise.trainers import LightGBMTrainer
from tests.azure_server import CONTAINER


@pytest.mark.slow
def test_runs_live_in_azure(azure: str, cluster, tmp_path: Path) -> None:
    url = f"abfs://{CONTAINER}/{uuid.uuid4().hex}"
    for place in (url, f"abfs://{CONTAINER}"):
        set_credentials(place, {"connection_string": azure})
    try:
        rows = pa.table({"key": [*"abcd"] * 25, "x": range(100), "y": [n % 7 for n in range(100)]})
        pq.write_table(rows, tmp_path / "rows.parquet")
        Store.parse(url).write("rows/1.parquet", (tmp_path / "rows.parquet").read_bytes())
        trainer = LightGBMTrainer(label="y", rounds=3)
        settings = {"store": url, "cluster": cluster}
        trained = train_models(f"{url}/rows/*.parquet", "key", trainer, run_id="t", **settings)
        assert trained.counts == {"DONE": 4}
        again = train_models(
            f"{url}/rows/*.parquet",
            "key",
            trainer,
            run_id="t",
            on_existing_artifacts="resume",
            **settings,
        )
        assert (again.status, again.summary.kept) == (RunStatus.SUCCESS, 4)
        inferred = run_inference(f"{url}/rows/", "key", "t", **settings)
        assert inferred.predictions().num_rows == 100
        assert export_models("t", **settings).counts == {"DONE": 4}
    finally:
        for place in (url, f"abfs://{CONTAINER}"):
            set_credentials(place, {})
