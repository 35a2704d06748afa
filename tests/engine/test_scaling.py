"""Slots: what each has, that nothing is given twice, and what is refused."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.engine import scaling
from partwise.engine.scaling import (
    ClusterWorker,
    ScalingConfig,
    cluster_workers,
    cores_and_gpus,
    divide_gpus,
    partition_slots,
    rank_slots,
    sharing,
    slots_of,
    what_is_here,
)
from partwise.errors import ClusterError, InputError


def workers_of(*threads: int, host: str = "a", **fields) -> list[ClusterWorker]:
    """Return workers of one host with so many threads each."""
    return [
        ClusterWorker(address=f"tcp://{host}:{place}", host=host, threads=count, **fields)
        for place, count in enumerate(threads)
    ]


def cuda_workers(count: int, cores: int, host: str = "a") -> list[ClusterWorker]:
    """Return workers as dask-cuda starts them: each sees all GPUs, its own one first."""
    names = [str(number) for number in range(count)]
    seen = [
        ClusterWorker(
            address=f"tcp://{host}:{place}",
            host=host,
            threads=1,
            cores=cores,
            gpus=tuple(names[place:] + names[:place]),
        )
        for place in range(count)
    ]
    return divide_gpus(seen)


@st.composite
def clusters(draw) -> list[ClusterWorker]:
    workers = []
    for host in range(draw(st.integers(1, 3))):
        devices = [str(number) for number in range(draw(st.integers(0, 4)))]
        cores = draw(st.integers(1, 16))
        for place in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, max(0, len(devices) - 1)))
            workers.append(
                ClusterWorker(
                    address=f"tcp://{host}:{place}",
                    host=str(host),
                    threads=draw(st.integers(1, 4)),
                    cores=cores,
                    gpus=tuple(devices[start:] + devices[:start]),
                )
            )
    return divide_gpus(workers)


@given(clusters(), st.integers(1, 5), st.integers(0, 3))
def test_nothing_is_given_to_two_slots(workers, cpus, gpus):
    slots = slots_of(workers, cpus, gpus)

    by_address = {worker.address: worker for worker in workers}
    devices = [(slot.host, name) for slot in slots for name in slot.gpus]
    assert len(devices) == len(set(devices))
    assert all(len(slot.gpus) == gpus and slot.threads == cpus for slot in slots)
    begun = Counter(slot.worker for slot in slots)
    assert all(count <= by_address[address].threads for address, count in begun.items())
    for host in {worker.host for worker in workers}:
        members = [worker for worker in workers if worker.host == host]
        threads = sum(worker.threads for worker in members)
        cores = max(worker.cores for worker in members)
        used = sum(slot.threads for slot in slots if slot.host == host)
        assert used <= (
            max(cores, threads) + threads if any(worker.gpus for worker in members) else threads
        )
    for slot in slots:
        assert {by_address[other].host for other in slot.others} <= {slot.host}
        assert slot.worker not in slot.others
    assert [slot.worker for slot in slots] == sorted(slot.worker for slot in slots)


@given(clusters(), st.integers(1, 3))
def test_workers_without_gpus_leave_no_room_unused(workers, cpus):
    workers = [
        ClusterWorker(address=worker.address, host=worker.host, threads=worker.threads)
        for worker in workers
    ]
    threads = Counter[str]()
    for worker in workers:
        threads[worker.host] += worker.threads
    slots = slots_of(workers, cpus)
    assert len(slots) == sum(count // cpus for count in threads.values())


@given(clusters())
def test_one_cpu_each_is_what_dask_does_by_itself(workers):
    begun = Counter(slot.worker for slot in partition_slots(workers, 1))
    assert begun == {worker.address: worker.threads for worker in workers}


@given(clusters(), st.integers(1, 6))
def test_ranks_are_as_many_as_asked_for_and_alike(workers, asked):
    config = ScalingConfig(ranks=asked, gpus=0)
    room = len(slots_of(workers, 1))
    if asked > room:
        with pytest.raises(InputError, match=rf"^{asked} ranks .* has room for {room}: "):
            rank_slots(workers, config)
        return
    slots = rank_slots(workers, config)
    assert len(slots) == asked
    (threads,) = {slot.threads for slot in slots}
    assert len(slots_of(workers, threads + 1)) < asked


def test_by_default_there_is_a_rank_for_each_worker():
    slots = rank_slots(workers_of(1, 1), ScalingConfig())
    assert [(slot.worker, slot.threads) for slot in slots] == [("tcp://a:0", 1), ("tcp://a:1", 1)]

    slots = rank_slots([*workers_of(8), *workers_of(8, host="b")], ScalingConfig())
    assert [(slot.host, slot.threads) for slot in slots] == [("a", 8), ("b", 8)]


def test_a_rank_of_two_cpus_holds_two_workers_of_one_thread():
    (slot,) = rank_slots(workers_of(1, 1), ScalingConfig(cpus=2))
    assert (slot.worker, slot.threads, slot.others) == ("tcp://a:0", 2, ("tcp://a:1",))


def test_fewer_ranks_share_all_cpus_of_a_machine_and_are_spread():
    slots = rank_slots(workers_of(1, 1, 1, 1), ScalingConfig(ranks=2))
    assert [slot.threads for slot in slots] == [2, 2]

    cluster = [*workers_of(4), *workers_of(4, host="b")]
    slots = rank_slots(cluster, ScalingConfig(ranks=3, cpus=1))
    assert [slot.host for slot in slots] == ["a", "a", "b"]


def test_gpus_are_used_where_they_are():
    slots = rank_slots(cuda_workers(2, cores=16), ScalingConfig())
    assert [(slot.gpus, slot.threads) for slot in slots] == [(("0",), 8), (("1",), 8)]

    # Next to machines without: these are left alone.
    slots = rank_slots([*cuda_workers(1, cores=4), *workers_of(1, host="b")], ScalingConfig())
    assert [(slot.host, slot.gpus) for slot in slots] == [("a", ("0",))]

    slots = rank_slots(cuda_workers(4, cores=8), ScalingConfig(ranks=2))
    assert [(set(slot.gpus), len(slot.others)) for slot in slots] == [
        ({"0", "1"}, 1),
        ({"2", "3"}, 1),
    ]

    slots = rank_slots(cuda_workers(2, cores=4), ScalingConfig(gpus=0))
    assert [slot.gpus for slot in slots] == [(), ()]


def test_a_gpu_of_the_machine_makes_no_cpus_of_a_worker():
    """As those of a LocalCluster with fewer workers than cores, all of which see the one GPU."""
    seen = divide_gpus(workers_of(1, 1, gpus=("0",), cores=16))
    with pytest.raises(InputError, match="3 CPUs"):
        partition_slots(seen, 3)
    assert len(partition_slots(divide_gpus(workers_of(1, gpus=("0",), cores=16)), 3)) == 1


def test_workers_that_see_the_same_gpus_share_them():
    slots = slots_of(divide_gpus(workers_of(1, 1, 1, gpus=("0", "1"), cores=6)), 1, 1)
    assert [(slot.worker, slot.gpus) for slot in slots] == [
        ("tcp://a:0", ("0",)),
        ("tcp://a:1", ("1",)),
    ]
    slots = slots_of(workers_of(8, gpus=("0", "1", "2"), cores=8), 2, 1)
    assert [slot.gpus for slot in slots] == [("0",), ("1",), ("2",)]


def test_partitions_of_a_part_share_a_gpu():
    workers = workers_of(1, 1, 1, 1, 1, gpus=("0", "1"), cores=5)
    slots = partition_slots(divide_gpus(workers), 1, 0.5)
    assert sorted(slot.gpus for slot in slots) == [("0",), ("0",), ("1",), ("1",)]
    # As CudaCluster starts its workers where a partition is to have a third of a GPU.
    threads = [replace(worker, threads=3) for worker in cuda_workers(2, cores=8)]
    slots = partition_slots(threads, 1, 1 / 3)
    assert [(slot.worker, slot.gpus) for slot in slots] == [
        *[("tcp://a:0", ("0",))] * 3,
        *[("tcp://a:1", ("1",))] * 3,
    ]
    with pytest.raises(InputError, match=r"1 GPU \(gpus\), .* cluster has 0 GPUs"):
        partition_slots(workers_of(2), 1, 0.25)


def test_no_more_partitions_share_a_gpu_than_its_parts():
    assert [sharing(gpus) for gpus in (None, 0, 1, 4, 0.6, 0.5, 0.3, 0.1, 0.01)] == [
        *[1] * 5,
        *(2, 3, 10, 100),
    ]


def test_what_no_machine_has_is_refused_with_both_numbers():
    with pytest.raises(InputError, match=r"A rank is to have 3 CPUs \(cpus\), .* has 2"):
        rank_slots([*workers_of(1, 1), *workers_of(2, host="b")], ScalingConfig(cpus=3))
    with pytest.raises(InputError, match=r"A rank is to have 1 GPU \(gpus.*, .* has 0 GPUs"):
        rank_slots(workers_of(2), ScalingConfig(gpus=1))
    with pytest.raises(InputError, match=r"3 ranks .* 2 GPUs: .* gpus=0"):
        rank_slots(cuda_workers(2, cores=8), ScalingConfig(ranks=3))
    with pytest.raises(InputError, match=r"5 ranks with 2 CPUs each .* has room for 2"):
        rank_slots(workers_of(4), ScalingConfig(ranks=5, cpus=2))
    with pytest.raises(InputError, match=r"A partition is to have 4 CPUs \(cpus\)"):
        partition_slots(workers_of(2), 4)
    with pytest.raises(InputError, match=r"4 CPUs and 1 GPU .* the most are 8 CPUs and 1 GPU"):
        partition_slots([*cuda_workers(1, 2), *workers_of(8, host="b")], 4, 1)
    with pytest.raises(ClusterError, match="has no worker;"):
        rank_slots([], ScalingConfig())
    with pytest.raises(InputError, match="ranks is 0"):
        ScalingConfig(ranks=0)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("0,2", ("0", "2")),
        ("", ()),
        ("-1", ()),
        ("1,-1,2", ("1",)),
        (" GPU-a1 ", ("GPU-a1",)),
        ("MIG-b2", ("MIG-b2",)),
        # As Slurm says that a job has none.
        ("NoDevFiles", ()),
    ],
)
def test_gpus_are_those_that_cuda_would_see(monkeypatch, visible, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cores_and_gpus()[1] == names


def test_a_worker_of_another_version_is_refused(monkeypatch):
    """Values are pickled without names: one more field, and each is taken for the one before."""
    there = {"tcp://a": {"host": "a", "name": "0", "nthreads": 1}}
    answers: dict[str, Any] = {"tcp://a": ("0.0.7", 4, ())}
    monkeypatch.setattr(scaling, "ask_workers", lambda client, function: answers)
    monkeypatch.setattr(scaling, "known_workers", lambda client: there)
    client: Any = None
    with pytest.raises(ClusterError, match=r"tcp://a has partwise 0\.0\.7, and this process \d"):
        cluster_workers(client)
    answers["tcp://a"] = what_is_here()
    assert [worker.address for worker in cluster_workers(client)] == ["tcp://a"]


def test_no_more_cpus_are_tried_than_a_machine_has(monkeypatch):
    """For one rank on 1,000 machines of 64 threads each, 64,000 numbers took three minutes."""
    tried = []

    def division(workers, cpus, gpus=0):
        tried.append(cpus)
        return slots_of(workers, cpus, gpus)

    monkeypatch.setattr(scaling, "slots_of", division)
    workers = [worker for host in range(50) for worker in workers_of(3, 1, host=f"{host:02d}")]
    (slot,) = rank_slots(workers, ScalingConfig(ranks=1))
    assert (slot.threads, max(tried)) == (4, 4)
