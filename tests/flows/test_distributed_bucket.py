"""One model of rows that only the driver has, in a bucket: nothing goes by a shared disk."""

import numpy as np
import pyarrow as pa
import pytest
from pydantic import SecretStr

from partwise.blocks import RemoteCluster, StoreBlock
from partwise.engine.scaling import ScalingConfig
from partwise.flows import run_inference, train_distributed
from partwise.models.serdes import PickleSerde
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from tests.flows.distributed_functions import add_up

ROWS = 4000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    x, z = np.random.default_rng(5).normal(size=(2, ROWS)).astype(np.float32)
    return pa.table({"x": x, "z": z, "y": 2 * x - z, "row": np.arange(ROWS)})


@pytest.fixture
def place(cluster, s3_store_url, s3_endpoint_url):
    """Where all is: a cluster that shares no disk with the driver, and a bucket."""
    store = StoreBlock(
        url=f"{s3_store_url}/models",
        endpoint_url=s3_endpoint_url,
        access_key_id=SecretStr("testing"),
        secret_access_key=SecretStr("testing"),
    )
    return {"cluster": RemoteCluster(address=cluster.address), "store": store}


@pytest.mark.slow
def test_lightgbm_in_a_bucket(table, place) -> None:
    trainer = DistributedLightGBM(
        label="y", features=("x", "z"), rounds=200, early_stopping_rounds=5
    )
    calls = {"scaling": ScalingConfig(ranks=2), "eval_data": {"late": table.slice(3500)}}
    run = train_distributed(table.slice(0, 3500), trainer, run_id="trees", **calls, **place)
    [metrics, other] = run.partitions.select(["late_l2", "rounds", "train_rows"]).to_pylist()
    assert metrics["train_rows"] == 3500
    assert other["late_l2"] is None
    model = run.model()
    assert model.num_trees() == metrics["rounds"]
    predictions = run_inference(
        table, training_run_id="trees", keep_columns=["row"], **place
    ).predictions()
    predictions = predictions.sort_by("row")
    assert predictions["row"].to_pylist() == list(range(ROWS))
    own = model.predict(np.stack([table["x"], table["z"]], axis=1))
    np.testing.assert_array_equal(predictions["prediction"].to_numpy(), own)
    late = np.square(own[3500:] - table["y"].to_numpy()[3500:]).mean()
    np.testing.assert_allclose(late, metrics["late_l2"], rtol=1e-6)


@pytest.mark.slow
def test_a_training_goes_on_from_the_checkpoint_of_another_run(table, place) -> None:
    def train(run_id: str, epochs: int, resume_from: str = ""):
        run = train_distributed(
            table,
            add_up,
            params={"epochs": epochs},
            serde=PickleSerde(),
            run_id=run_id,
            scaling=ScalingConfig(ranks=2),
            resume_from=resume_from,
            seed=3,
            **place,
        )
        return run.partitions["first"].to_pylist(), run.model(serde=PickleSerde())

    first, whole = train("whole", 4)
    assert first == [0, 0]
    first, half = train("half", 2)
    assert first == [0, 0]
    first, rest = train("rest", 4, resume_from="half")
    assert first == [2, 2]
    assert rest == whole != half
