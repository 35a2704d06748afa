"""LightGBM on all ranks of a gang, on a real cluster: from files to the model in the store."""

import os

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.scaling import ScalingConfig, cluster_workers
from partwise.gangs.driver import run_gang
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import place_ranks
from partwise.gangs.spec import GangSpec
from partwise.gangs.work import GangPayload, TrainRankWork
from partwise.models.serdes import LightGBMSerde
from partwise.outcomes import PartitionStatus
from partwise.ranks.staging import rank_source
from partwise.runs.bundle import content_file, decode
from partwise.runs.documents import execution_token
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.trainers import default_predict
from partwise.trainers.ranks.lightgbm import DistributedLightGBM


@pytest.mark.slow
def test_gangs_of_two_ranks_and_of_one_make_the_same_model(dask_client, local_store, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    kinds = np.array(["a", "b", "c"])[rng.integers(0, 3, 3000)]
    table = pa.table({"x": x, "kind": kinds, "y": x + (kinds == "b")}).sort_by("x")
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    trainer = DistributedLightGBM(
        label="y", categorical=("kind",), rounds=20, early_stopping_rounds=5
    )

    def run(ranks: int):
        token = execution_token(1, os.urandom(4).hex())
        folder = tmp_path / token
        folder.mkdir()
        shared = SharedFolder(folder, local_store, "gang", token, shared=True)
        sources = {
            name: rank_source(open_source(str(path)), shared, dask_client, name)
            for name, path in (
                ("train", tmp_path / "rows.parquet"),
                ("valid", tmp_path / "rows.parquet"),
            )
        }
        payload = GangPayload(work=TrainRankWork(function=trainer), sources=sources)
        placement = place_ranks(cluster_workers(dask_client), ScalingConfig(ranks, gpus=0))
        spec = GangSpec(
            token=token,
            run_id="gang",
            generation=1,
            store=local_store,
            nodes=placement.nodes,
            payload=shared.write("payload", cloudpickle.dumps(payload)),
            options=GangOptions(grace_s=2.0),
        )

        class Listener:
            def update(self, event):
                pass

        ends = run_gang(dask_client, spec, Listener())
        assert {end.status for end in ends} == {PartitionStatus.DONE}
        assert sum(end.rows for end in ends) == 3000
        model = next(one for one in ends[0].artifacts if one.serde)
        path = f"runs/gang/{model.bundle}"
        stored = local_store.read_range(path, model.offset, model.stored_bytes)
        with content_file(decode(stored, model, ""), model.filename) as file:
            return LightGBMSerde().read(file), dict(ends[0].metrics)

    (two, metrics), (one, metrics_of_one) = run(2), run(1)
    assert two.model_to_string() == one.model_to_string()
    assert metrics == metrics_of_one
    predictions = default_predict(
        DataConnector(table), two, PartitionContext(key="", key_columns=())
    )
    errors = predictions - table.column("y").to_numpy()
    assert np.mean(errors**2) == pytest.approx(metrics["valid_l2"], rel=1e-6)
