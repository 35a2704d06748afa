"""Placement of ranks: on nodes, with what each may use, and slots that neighbours lend."""

import os
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from partwise.engine.scaling import ClusterWorker, ScalingConfig, cluster_workers, rank_slots
from partwise.errors import InputError
from partwise.gangs import placement
from partwise.gangs.driver import run_gang
from partwise.gangs.placement import place_gangs, place_nodes, place_ranks, replace_lost
from partwise.outcomes import PartitionStatus, Result
from partwise.ranks.context import RankContext
from tests.gangs.test_gang import make_spec

__all__ = ["make_spec"]


def workers_of(*threads: int, **fields) -> list[ClusterWorker]:
    return [
        ClusterWorker(address=f"tcp://{place}", host="a", name=str(place), threads=count, **fields)
        for place, count in enumerate(threads)
    ]


def test_ranks_of_a_worker_are_one_node():
    placement = place_ranks(workers_of(4, 4), ScalingConfig(4))
    assert [(n.worker, n.first_rank, n.ranks) for n in placement.nodes] == [
        ("tcp://0", 0, 2),
        ("tcp://1", 2, 2),
    ]
    assert (placement.threads, placement.gpus) == (2, 0)


def test_gpus_are_hidden_where_that_is_asked_for():
    """And not where there are too few: a script may see those of its node all the same."""
    workers = workers_of(2, gpus=("0",), cores=2)
    lost = place_ranks(workers, ScalingConfig(1, gpus=0))
    asked = [lost, place_nodes(workers, 1, 2, gpus=0), *place_gangs(workers, ScalingConfig(gpus=0))]
    assert all(node.hides_gpus for placed in asked for node in placed.nodes)
    left = [place_ranks(workers, ScalingConfig(1, gpus=1)), place_nodes(workers, 1, 2)]
    assert not any(node.hides_gpus for placed in left for node in placed.nodes)
    replaced = replace_lost(lost.nodes, {"tcp://0"}, workers_of(1, 2)[1:])
    assert replaced is not None
    assert [(n.worker, n.hides_gpus) for n in replaced] == [("tcp://1", True)]


def test_workers_are_in_the_order_of_their_names():
    nodes = place_ranks(list(reversed(workers_of(*[1] * 12))), ScalingConfig()).nodes
    assert [node.worker for node in nodes] == [f"tcp://{place}" for place in range(12)]


def test_a_slot_that_is_lent_is_a_node_without_ranks():
    placement = place_ranks(workers_of(1, 1, 1, 1, 1), ScalingConfig(cpus=2))
    assert [(n.worker, n.first_rank, n.ranks) for n in placement.nodes] == [
        ("tcp://0", 0, 1),
        ("tcp://2", 1, 1),
        ("tcp://1", 2, 0),
        ("tcp://3", 2, 0),
    ]


def test_gangs_beside_each_other_never_wait_for_a_worker_of_another():
    random = np.random.default_rng(1)
    beside = 0
    for _ in range(300):
        threads = random.integers(1, 5, random.integers(1, 6)).tolist()
        workers = workers_of(*threads, cores=8)
        ranks, cpus = int(random.integers(1, 5)), int(random.choice([-1, 1, 2, 3]))
        config = ScalingConfig(ranks=ranks, cpus=cpus)
        at_most = None if random.random() < 0.5 else int(random.integers(1, 4))
        try:
            one = place_ranks(workers, config)
        except InputError:
            with pytest.raises(InputError, match=r"ranks|cpus"):
                place_gangs(workers, config, at_most)
            continue
        gangs = place_gangs(workers, config, at_most)
        assert 1 <= len(gangs) <= (at_most or sum(threads))
        if len(gangs) == 1:
            assert gangs == [one]
            continue
        beside += 1
        assert {sum(node.ranks for node in gang.nodes) for gang in gangs} == {ranks}
        assert len({gang.threads for gang in gangs}) == 1
        held = Counter(node.worker for gang in gangs for node in gang.nodes)
        assert all(held[worker.address] <= worker.threads for worker in workers)
        used = sum(ranks * gang.threads for gang in gangs)
        assert used <= sum(threads)
    assert beside > 50
    assert len(place_gangs(workers_of(2, 2, 2), ScalingConfig())) == 1


def test_no_more_gangs_are_tried_than_there_is_room_for(monkeypatch):
    """For two ranks with a GPU each, on 64 machines of 64 threads, that took 10 s."""
    tried = []

    def slots_for(workers, config):
        tried.append(config.ranks)
        return rank_slots(workers, config)

    monkeypatch.setattr(placement, "rank_slots", slots_for)
    gangs = place_gangs(workers_of(*[4] * 20), ScalingConfig(ranks=2, cpus=4))
    assert (len(gangs), tried) == (10, [20])


def test_a_lost_worker_is_replaced_by_one_that_is_free():
    workers = workers_of(1, 1, 1)
    nodes = place_ranks(workers, ScalingConfig(2)).nodes
    replaced = replace_lost(nodes, {"tcp://0"}, workers[1:])
    assert replaced is not None
    assert [(n.worker, n.first_rank) for n in replaced] == [("tcp://2", 0), ("tcp://1", 1)]
    assert replace_lost(nodes, {"tcp://0", "tcp://1"}, workers[2:]) is None
    # One that was begun again at its address.
    assert replace_lost(nodes, {"tcp://0"}, workers[:2]) == nodes


@pytest.mark.parametrize(
    "place",
    [
        lambda workers, n: place_ranks(workers, ScalingConfig(n)),
        lambda workers, n: place_gangs(workers, ScalingConfig(n), at_most=1)[0],
        lambda workers, n: place_nodes(workers, n, 1),
    ],
)
def test_ranks_are_placed_on_workers_that_take_tasks(place):
    """A task for a paused worker waits until that goes on; of one that closes, for ever."""
    first, second, *running = workers_of(1, 1, 1, 1)
    closing = replace(first, status="closing_gracefully")
    workers = [closing, replace(second, status="paused"), *running]
    assert {node.worker for node in place(workers, 2).nodes} == {"tcp://2", "tcp://3"}
    # Which may go on before the others have been waited for too long.
    assert {node.worker for node in place(workers, 3).nodes} == {"tcp://1", "tcp://2", "tcp://3"}
    with pytest.raises(InputError, match="room for 3"):
        place(workers, 4)


def test_a_lost_worker_is_replaced_by_one_that_takes_tasks():
    first, closing, paused, running = workers_of(1, 1, 1, 1)
    nodes = place_ranks([first], ScalingConfig(1)).nodes
    spare = [replace(closing, status="closing"), replace(paused, status="paused")]
    for workers, expected in (([*spare, running], "tcp://3"), (spare, "tcp://2")):
        replaced = replace_lost(nodes, {"tcp://0"}, workers)
        assert replaced is not None
        assert [node.worker for node in replaced] == [expected]
    assert replace_lost(nodes, {"tcp://0"}, spare[:1]) is None


def test_a_rank_of_two_threads_holds_two_workers_of_one(dask_client, make_spec):
    """What another user of the cluster asks for meanwhile waits until the gang has ended."""
    placement = place_ranks(cluster_workers(dask_client), ScalingConfig(cpus=2, gpus=0))
    assert [node.ranks for node in placement.nodes] == [1, 0]

    class Other:
        """Asks both workers for something as soon as the rank is at work."""

        tasks: list = []  # noqa: RUF012 (of this one test)

        def update(self, event):
            if event.kind == "started" and not self.tasks:
                self.tasks += [
                    dask_client.submit(time.time, workers=[node.worker], pure=False)
                    for node in placement.nodes
                ]

    def train(context: RankContext):
        time.sleep(1.0)
        return Result(os.environ["OMP_NUM_THREADS"], {"ended": time.time(), "n": context.threads})

    spec = make_spec(train, nodes=placement.nodes, threads=placement.threads)
    (end,) = run_gang(dask_client, spec, Other())
    assert end.status is PartitionStatus.DONE
    assert end.metrics["n"] == 2
    assert min(task.result() for task in Other.tasks) >= end.metrics["ended"]
