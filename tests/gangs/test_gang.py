"""A gang on a real cluster: what its ranks know, do, make and tell."""

import os

import cloudpickle
import pytest

from partwise.connector.rank_context import RankContext
from partwise.engine.scaling import cluster_workers
from partwise.gangs.driver import run_gang
from partwise.gangs.placement import place_ranks
from partwise.gangs.spec import CommandTarget, FunctionTarget, GangSpec
from partwise.gangs.work import GangPayload, TrainRankWork
from partwise.models.serdes import PickleSerde
from partwise.outcomes import PartitionStatus, Result
from partwise.runs.bundle import content_file, decode
from partwise.runs.documents import execution_token
from partwise.shuffle.shared_folder import StagedFile


@pytest.fixture
def make_spec(dask_client, local_store, tmp_path):
    def make(function=None, words=(), ranks=-1, **fields):
        if "nodes" not in fields:
            fields["nodes"] = place_ranks(cluster_workers(dask_client), ranks).nodes
        if function is not None:
            path = tmp_path / "payload.pickle"
            payload = GangPayload(
                work=TrainRankWork(function=function, serde=PickleSerde()), hyperparameters={"a": 1}
            )
            path.write_bytes(cloudpickle.dumps(payload))
            target = FunctionTarget(payload=StagedFile(path=str(path), where="disk"))
        else:
            target = CommandTarget(words=tuple(words))
        return GangSpec(
            token=execution_token(1, os.urandom(4).hex()),
            run_id="gang",
            generation=1,
            store=local_store,
            target=target,
            **{"grace_s": 2.0, **fields},
        )

    return make


def test_ranks_know_each_other_and_rank_0_makes_the_model(dask_client, make_spec, local_store):
    def train(context: RankContext):
        gathered = context.all_gather(b"%d" % context.rank)
        print("hello from", context.rank)
        context.report(half=context.rank / 2)
        return Result({"gathered": gathered}, {"whole": context.rank})

    events = []

    class Listener:
        def update(self, event):
            events.append(event)

    spec = make_spec(train)
    ends = run_gang(dask_client, spec, Listener())
    assert [end.status for end in ends] == [PartitionStatus.DONE] * 2
    model = next(one for one in ends[0].artifacts if one.serde)
    stored = local_store.read_range(f"runs/gang/{model.bundle}", model.offset, model.stored_bytes)
    with content_file(decode(stored, model, ""), model.filename) as path:
        assert PickleSerde().read(path) == {"gathered": [b"0", b"1"]}
    assert [event.kind for event in events].count("ended") == 2
