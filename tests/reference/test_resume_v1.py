"""A run of the first formats is gone on with: what did not change is kept."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.flows import train_models
from partwise.runs.run import Run
from tests.reference.functions import SEED, VERSION, fit, sales
from tests.reference.values import python

V1 = Path(__file__).parent / "v1"
STORED = json.loads((V1 / "values.json").read_text())["code"]
pytestmark = pytest.mark.skipif(
    python() not in STORED, reason="the code of the runs has the fingerprint of another Python"
)


@pytest.fixture
def resume(prefect_server: str, dask_client: Any, tmp_path: Path) -> Any:
    """Call the flow that wrote the training run once more, on a copy of the store."""
    shutil.copytree(V1 / "store", tmp_path / "store")
    cluster = RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=True)

    def resume(data: Any) -> Run:
        return train_models(
            data,
            "store",
            fit,
            run_id="train",
            store=tmp_path / "store",
            seed=SEED,
            version=VERSION,
            on_existing_artifacts="resume",
            cluster=cluster,
        )

    return resume


def test_nothing_changed_and_only_what_was_skipped_is_tried_again(resume: Any) -> None:
    run = resume("dataset://sales@1")
    assert (run.generation, run.executed, run.kept) == (2, 1, 3)


def test_the_same_rows_from_elsewhere_are_kept_and_changed_ones_run(resume: Any) -> None:
    table = sales()
    price = [0.5 if key == "south" else p for key, p in
             zip(table["store"].to_pylist(), table["price"].to_pylist(), strict=True)]  # fmt: skip
    changed = table.set_column(2, "price", pa.array(price, pa.float64()))
    fields = [f.with_metadata({"partwise.role": "label"}) if f.name == "sales" else f
              for f in changed.schema]  # fmt: skip
    run = resume(changed.cast(pa.schema(fields)))
    assert (run.generation, run.executed, run.kept) == (2, 2, 2)
