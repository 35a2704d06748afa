"""XGBoost on a real cluster: ranks read a source, connect, and rank 0 leaves the model."""

import os

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.engine.scaling import ScalingConfig, cluster_workers
from partwise.gangs.driver import run_gang
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import place_ranks
from partwise.gangs.spec import GangSpec
from partwise.gangs.work import GangPayload, TrainRankWork
from partwise.models.serdes import serde_by_name
from partwise.outcomes import PartitionStatus
from partwise.ranks.staging import rank_source
from partwise.runs.bundle import CATEGORIES_FILENAME, content_file, decode
from partwise.runs.documents import execution_token
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from partwise.trainers.ready.xgboost import predict_xgboost
from tests.lazily import Lazily
from tests.trainers.test_distributed_xgboost import make_rows, train

dd = Lazily("dask.dataframe")


@pytest.mark.slow
def test_a_gang_trains_the_model_of_one_process(dask_client, local_store, tmp_path):
    table, held_out = make_rows(500), make_rows(90, seed=1)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    directory = tmp_path / "shared"
    directory.mkdir()
    token = execution_token(1, os.urandom(4).hex())
    shared = SharedFolder(directory, local_store, "gang", token, shared=False)
    data = {
        "train": str(tmp_path / "rows.parquet"),
        "held_out": dd.from_pandas(held_out.to_pandas(), npartitions=3),
    }
    sources = {
        name: rank_source(open_source(each), shared, dask_client, name)
        for name, each in data.items()
    }
    fields = {
        "features": ("x", "noise", "count", "color"),
        "params": {"objective": "binary:logistic"},
        "early_stopping_rounds": 5,
        "rounds": 30,
    }
    work = TrainRankWork(function=DistributedXGBoost(label="label", **fields))
    payload = cloudpickle.dumps(GangPayload(work=work, sources=sources))
    spec = GangSpec(
        token=token,
        run_id="gang",
        generation=1,
        store=local_store,
        nodes=place_ranks(cluster_workers(dask_client), ScalingConfig(2, gpus=0)).nodes,
        payload=shared.write("payload", payload),
        seed=5,
        options=GangOptions(grace_s=2.0),
    )
    ends = run_gang(dask_client, spec)
    assert [end.status for end in ends] == [PartitionStatus.DONE] * 2
    assert [end.rows for end in ends] == [250, 250]
    alone = train(tmp_path, table, evals={"held_out": (held_out, [])}, **fields)
    assert ends[0].metrics == pytest.approx(alone.metrics)
    model = next(one for one in ends[0].artifacts if one.serde)
    content = local_store.read_range(f"runs/gang/{model.bundle}", model.offset, model.stored_bytes)
    with content_file(decode(content, model, ""), model.filename) as path:
        found = serde_by_name(model.serde, None).read(path)
    np.testing.assert_array_equal(
        predict_xgboost(DataConnector(table), found),
        predict_xgboost(DataConnector(table), alone.model),
    )
    assert CATEGORIES_FILENAME in {one.filename for one in ends[0].artifacts}
    shared.close()
