"""Room on a cluster that grows while a run is at work."""

from partwise.blocks import LocalCluster
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import partition_slots
from partwise.flows.running.connections import workers_at_most


def test_workers_that_may_still_come_share_the_machine(dask_client):
    workers = workers_at_most(LocalCluster(workers=1, max_workers=5), dask_client)
    options = ExecutionOptions(cpus=2)
    slots = partition_slots(workers, options.cpus)

    assert len(workers) == 5
    assert len({worker.host for worker in workers}) == 1
    assert options.limits_on(slots).slots_per_host == 2
    assert ExecutionOptions().limits_on(partition_slots(workers, 1)).slots_per_host == 5
    assert ExecutionOptions().limits_on(partition_slots(workers, 1)).slots == {}


def test_a_cluster_that_does_not_grow_has_what_it_has(dask_client):
    assert len(workers_at_most(LocalCluster(), dask_client)) == 2
