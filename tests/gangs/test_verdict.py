"""Who is to blame: by what ranks of real libraries have said when another one had ended."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from partwise.engine.failures import Failure, describe_error
from partwise.engine.scaling import ClusterWorker
from partwise.errors import ClusterError, PeerLostError
from partwise.gangs import driver as gang_driver
from partwise.gangs.attempt import Attempt, AttemptEnd
from partwise.gangs.driver import GangDriver
from partwise.gangs.errors import GangFailedError
from partwise.gangs.options import GangOptions
from partwise.gangs.spec import Node, RankEnd
from partwise.gangs.verdict import choose_guilty, is_consequence
from partwise.outcomes import CANCELLED, PartitionStatus

VICTIMS = [
    "xgboost.core.XGBoostError: Ring Allreduce failed, rank: 1",
    "lightgbm.basic.LightGBMError: Socket recv error, Connection reset by peer (code: 104)",
    "lightgbm.basic.LightGBMError: Socket send error, code: 32",
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4821",
    "RuntimeError: Read error [127.0.0.1]:31: Connection reset by peer",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "ProcessDied: Its process ended: signal 6 (SIGABRT).\nIts log: Connection closed by peer",
    "partwise.errors.PeerLostError: Rank 1 lost another rank of the gang",
]
GUILTY = [
    "ValueError: the label has 3 classes",
    "ProcessDied: Its process ended: signal 9 (SIGKILL).\nIts log: Connection reset by peer",
    "ProcessDied: Its process ended: signal 11 (SIGSEGV).",
    "ProcessDied: Its process ended: exit status 3.",
    "SystemExit: 104",
]


@pytest.mark.parametrize("error", VICTIMS)
def test_what_ranks_say_that_died_of_another_one(error):
    assert is_consequence(error)


@pytest.mark.parametrize("error", GUILTY)
def test_what_is_an_error_of_its_own(error):
    assert not is_consequence(error)


def test_the_error_of_a_lost_peer_is_known_by_its_type():
    failure = describe_error(PeerLostError("gone"))
    assert is_consequence(f"{failure.error_type}: {failure.message}")


def end(rank, error="", status=PartitionStatus.FAILED):
    kind, _, message = error.partition(": ")
    failure = Failure(error_type=kind, message=message, fingerprint="", final=False)
    return RankEnd(
        rank=rank,
        host="a",
        attempt=1,
        status=status if error else PartitionStatus.DONE,
        exit_code=1 if error else 0,
        failure=failure if error else None,
        seconds=1.0,
        peak_memory_bytes=None,
        rows=None,
    )


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("guilty", GUILTY)
def test_the_first_error_of_its_own_counts_whoever_was_seen_first(victim, guilty):
    ends = [end(0, victim), end(1), end(2, guilty), end(3, guilty)]
    chosen = choose_guilty(ends, [0, 1, 3, 2])
    assert chosen is not None
    assert chosen.rank == 3


def test_one_that_was_ended_is_not_to_blame():
    ended = end(0, GUILTY[0], PartitionStatus.CANCELLED)
    chosen = choose_guilty([ended, end(1, VICTIMS[0])], [0, 1])
    assert chosen is not None
    assert chosen.rank == 1


def test_nobody_is_to_blame_when_none_failed():
    assert choose_guilty([end(0), end(1)]) is None


def test_who_lost_a_rank_that_was_ended_was_ended_too():
    """The first rank that is ended may take others along, before these are ended themselves."""
    driver = GangDriver(None, SimpleNamespace(run_id="gang"), None)
    ends = [
        end(0, "partwise.errors.PeerLostError: gone"),
        end(1, "SIGKILL", PartitionStatus.CANCELLED),
    ]
    failed = driver._fail(AttemptEnd(ends=ends, began=0.0, order=[1, 0], reason="cancelled"), 1)
    assert failed.rank is None
    assert [(each.status, each.failure) for each in failed.ends[:1]] == [
        (PartitionStatus.CANCELLED, None)
    ]
    assert failed.ends[0].reason == "cancelled"
    own = driver._fail(
        AttemptEnd(ends=[end(0, "KeyError: x")], began=0.0, order=[0], reason="cancelled"), 1
    )
    assert own.ends[0].status is PartitionStatus.FAILED


def test_a_stop_ends_the_wait_for_other_workers(monkeypatch):
    """It ends the gang by its reason: the run is then completed as cancelled, and not left open."""
    node = Node(worker="tcp://lost", first_rank=0, ranks=1)
    options = GangOptions(max_retries=1, join_timeout_s=600)
    spec: Any = SimpleNamespace(run_id="gang", nodes=(node,), options=options)
    client: Any = SimpleNamespace(status="running")
    watch: Any = SimpleNamespace(look=lambda: None)
    driver = GangDriver(client, spec, watch)

    class Lost:
        def __init__(self, *_: Any) -> None: ...

        def wake(self) -> None: ...

        def run(self) -> AttemptEnd:
            return AttemptEnd(
                ends=[end(0, "WorkerLost: gone")], began=0.0, order=[], lost={"tcp://lost"}
            )

    def find_none(_: Any) -> list[ClusterWorker]:
        driver.stop(CANCELLED)
        return []

    monkeypatch.setattr(gang_driver, "begin_attempt", lambda spec, number: spec)
    monkeypatch.setattr(gang_driver, "Attempt", Lost)
    monkeypatch.setattr(gang_driver, "cluster_workers", find_none)
    with pytest.raises(GangFailedError, match=f"was ended: {CANCELLED.reason}") as failed:
        driver.run()
    assert failed.value.stopped == CANCELLED


def test_a_gang_goes_on_with_a_worker_that_was_begun_again_at_its_address(monkeypatch):
    node = Node(worker="tcp://lost", first_rank=0, ranks=1)
    options = GangOptions(max_retries=1, join_timeout_s=60)
    looks: list[float] = []

    def is_another(address: str, since: float) -> bool:
        # At first the one that has died is still listed.
        looks.append(since)
        return len(looks) > 1

    watch: Any = SimpleNamespace(look=lambda: None, is_another=is_another)
    there = [ClusterWorker(address=node.worker, host="host", threads=1)]

    @dataclass(frozen=True)
    class Spec:
        run_id: str
        nodes: tuple[Node, ...]
        options: GangOptions
        store: Any = None

    class LostOnce:
        def __init__(self, client: Any, watch: Any, spec: Spec, number: int, *_: Any) -> None:
            self.number, self.spec = number, spec

        def run(self) -> AttemptEnd:
            assert self.spec.nodes == (node,)
            lost = [end(0, "WorkerLost: gone")] if self.number == 1 else []
            return AttemptEnd(ends=lost, began=7.0, order=[], lost={node.worker} if lost else set())

    monkeypatch.setattr(gang_driver, "begin_attempt", lambda spec, number: spec)
    monkeypatch.setattr(gang_driver, "Attempt", LostOnce)
    monkeypatch.setattr(gang_driver, "cluster_workers", lambda client: there)
    client: Any = SimpleNamespace(status="running")
    spec: Any = Spec("gang", (node,), options)
    assert GangDriver(client, spec, watch).run() == []
    assert looks == [7.0, 7.0]


def test_a_gang_whose_scheduler_does_not_come_back_is_not_begun_again(monkeypatch) -> None:
    """A client that has closed itself would refuse all that another attempt begins with."""
    options = GangOptions(max_retries=1)
    spec: Any = SimpleNamespace(run_id="gang", nodes=(), options=options)
    attempts: list[int] = []

    class CutOff:
        def __init__(self, client: Any, watch: Any, spec: Any, number: int, *_: Any) -> None:
            attempts.append(number)

        def run(self) -> AttemptEnd:
            return AttemptEnd(ends=[end(0, "SchedulerLost: closed")], began=0.0, order=[])

    def look() -> None:
        raise ClusterError("The connection to the Dask scheduler is lost (closed).")

    monkeypatch.setattr(gang_driver, "begin_attempt", lambda spec, number: spec)
    monkeypatch.setattr(gang_driver, "Attempt", CutOff)
    client: Any = SimpleNamespace(status="closed")
    watch: Any = SimpleNamespace(look=look)
    with pytest.raises(ClusterError, match=r"is lost \(closed\)"):
        GangDriver(client, spec, watch).run()
    assert attempts == [1]


def test_a_worker_that_is_silent_or_gone_is_lost_to_its_gang() -> None:
    let_go = []
    watch: Any = SimpleNamespace(
        look=lambda: None,
        workers=lambda: {"well": 59.0, "silent": 61.0},
        has_lost=lambda address, since: address == "gone",
        let_go=lambda address, silent_s: let_go.append((address, silent_s)),
    )
    nodes = [SimpleNamespace(worker=name) for name in ("well", "silent", "gone")]
    options = GangOptions(silence_s=60.0)
    spec: Any = SimpleNamespace(token="t", options=options, nodes=nodes)
    client: Any = None
    attempt = Attempt(client, watch, spec, 1, lambda: None, lambda event: None)
    running: Any = SimpleNamespace(done=lambda: False)
    attempt._futures = dict.fromkeys(range(3), running)
    attempt._look_at_cluster()
    assert attempt._lost == {1: "was not heard of for 60 s", 2: "ended, or is out of reach"}
    assert let_go == [("silent", 61.0)]


def test_nodes_are_heard_of_though_the_first_wish_for_it_was_lost() -> None:
    """As it is where it is sent just before a connection is closed, and the tasks after that."""
    stream: list[str] = []
    client: Any = SimpleNamespace(
        subscribe_topic=lambda topic, hear: stream.append(topic),
        unsubscribe_topic=lambda topic: None,
        compute=lambda tasks, **_: stream.append("tasks") or [],
    )
    watch: Any = SimpleNamespace(workers=dict, look=lambda: None)
    options = GangOptions()
    spec: Any = SimpleNamespace(token="t", options=options, nodes=[], world_size=0)
    control: Any = SimpleNamespace(addresses=(), exchange=())
    attempt = Attempt(client, watch, spec, 1, lambda: CANCELLED, lambda event: None)
    attempt._joined[0] = control
    attempt.run()
    assert stream[:3] == ["gang-t-1", "tasks", "gang-t-1"]
