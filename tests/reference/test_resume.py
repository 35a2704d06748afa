"""Runs of older formats are gone on with: what can be compared and did not change is kept."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.flows import train_models
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.reference.functions import SEED, VERSION, fit, sales
from tests.reference.values import python

FOLDER = Path(__file__).parent
V1 = FOLDER / "v1"


@pytest.fixture
def resume(dask_client: Any, tmp_path: Path) -> Any:
    """Call the flow that wrote the training run of a version once more, on a copy of its store."""
    cluster = RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=True)

    def resume(version: str, data: Any) -> Run:
        if not (tmp_path / "store").exists():
            shutil.copytree(FOLDER / version / "store", tmp_path / "store")
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


def test_of_version_1_all_runs_again_as_its_code_cannot_be_compared(resume: Any) -> None:
    run = resume("v1", "dataset://sales@1")
    assert (run.generation, run.executed, run.kept) == (2, 4, 0)
    assert run.counts == {"DONE": 3, "SKIPPED": 1}


@pytest.mark.skipif(python() != "cpython 3.11", reason="another Python wrote what is compared")
def test_of_version_2_what_was_skipped_and_what_has_changed_runs_again(resume: Any) -> None:
    again = resume("v2", "dataset://sales@1")
    assert (again.generation, again.executed, again.kept) == (2, 1, 3)
    table = sales()
    price = [0.5 if key == "south" else p for key, p in
             zip(table["store"].to_pylist(), table["price"].to_pylist(), strict=True)]  # fmt: skip
    changed = table.set_column(2, "price", pa.array(price, pa.float64()))
    fields = [f.with_metadata({"partwise.role": "label"}) if f.name == "sales" else f
              for f in changed.schema]  # fmt: skip
    run = resume("v2", changed.cast(pa.schema(fields)))
    assert (run.generation, run.executed, run.kept) == (3, 2, 2)


def test_it_says_that_an_older_release_wrote_the_run(tmp_path: Path) -> None:
    shutil.copytree(V1 / "store", tmp_path / "store")
    run = Run.open("train", tmp_path / "store")
    identity = Identity(run_id="train", kind="train", key_columns=run.key_columns)
    intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
    with Claim(Store.parse(tmp_path / "store"), identity, "resume") as claim:
        why = claim.why_nothing_counts(intent)
    assert why == (
        "all partitions run again, since an older release of partwise wrote the run, and its "
        "fingerprints of code are of another kind."
    )
