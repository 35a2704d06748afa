import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from partwise.errors import RunBusyError, RunFormatError, StoreError
from partwise.store import lease as lease_module
from partwise.store.lease import Lease, LeaseOwner, OwnerWatch, request_cancel
from partwise.store.store import Store

RUN = "runs/nightly"

OWNER_SCRIPT = """
import json, sys
from partwise.errors import RunBusyError
from partwise.store import lease as lease_module, lease_owner
from partwise.store.store import Store
if sys.argv[2] == "elsewhere":
    lease_owner._boot_id = lambda: "another machine"
try:
    gives_way = sys.argv[2] == "gives way"
    store = Store.parse(sys.argv[1])
    lease = lease_module.Lease.acquire(store, "runs/nightly", gives_way=gives_way)
except RunBusyError as error:
    print("busy", flush=True)
    sys.exit()
print("acquired", flush=True)
for line in sys.stdin:
    try:
        getattr(lease, line.strip())()
        print("done", flush=True)
    except RunBusyError as error:
        print(f"busy: {error}", flush=True)
"""


def owner_elsewhere(**changes) -> LeaseOwner:
    values = {
        "host": "other-host",
        "pid": 4711,
        "process_start": "1",
        "boot_id": "another machine",
        "pid_namespace": "pid:[1]",
        "writer_id": "w",
        "claimed_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return LeaseOwner(**values | changes)


def claim(store: Store, owner: LeaseOwner) -> None:
    store.create(f"{RUN}/lease/0001.json", owner.model_dump_json().encode())
    store.create(f"{RUN}/lease/0001.heartbeat", b'{"counter": 7}')


@pytest.fixture
def start_owner(start_python):
    def start(store, where="here"):
        process = start_python(OWNER_SCRIPT, store.url, where)
        assert process.stdout.readline() == "acquired\n"
        return process

    return start


def test_a_process_of_an_impossible_number_is_gone() -> None:
    here = LeaseOwner.of_this_process()
    assert here.model_copy(update={"pid": 10**20}).state() == "gone"


def tell(process, command: str) -> str:
    process.stdin.write(f"{command}\n")
    process.stdin.flush()
    return process.stdout.readline()


class TestBothKindsOfStore:
    def test_one_after_the_other(self, store):
        for number in (1, 2, 3):
            with Lease.acquire(store, RUN) as lease:
                lease.check()
                names = store.list_folder(f"{RUN}/lease")
                assert f"{number:04d}.json" in names
                assert f"{number:04d}.released" not in names
        assert f"{number:04d}.released" in store.list_folder(f"{RUN}/lease")

    def test_not_two_at_once(self, store):
        with Lease.acquire(store, RUN) as lease:
            with pytest.raises(
                RunBusyError, match=r"Run nightly is worked on by .* this very process"
            ):
                Lease.acquire(store, RUN)
            lease.check()
            Lease.acquire(store, "runs/other").release()

    def test_one_of_many_takes_over(self, store):
        claim(store, owner_elsewhere(**_here(), process_start="0"))
        barrier = threading.Barrier(8)

        def acquire(number):
            barrier.wait()
            try:
                return Lease.acquire(store, RUN)
            except RunBusyError:
                return None

        with ThreadPoolExecutor(8) as pool:
            leases = [lease for lease in pool.map(acquire, range(8)) if lease]
        assert len(leases) == 1
        leases[0].check()
        leases[0].release()
        assert sorted(store.list(f"{RUN}/lease/"))[-2:] == [
            f"{RUN}/lease/0002.json",
            f"{RUN}/lease/0002.released",
        ]

    def test_the_counter_moves(self, store, monkeypatch):
        monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.01)
        seen = set()
        with Lease.acquire(store, RUN):
            deadline = time.monotonic() + 10
            while len(seen) < 4 and time.monotonic() < deadline:
                if store.exists(f"{RUN}/lease/0001.heartbeat"):
                    seen.add(json.loads(store.read(f"{RUN}/lease/0001.heartbeat"))["counter"])
        assert len(seen) == 4


def _refused(*arguments):
    raise StoreError("no")


def _soon(is_so) -> bool:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()


class Clock:
    """Time that goes by in sleeping only, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    monkeypatch.setattr(lease_module, "time", made := Clock())
    return made


def _counter(store: Store) -> int:
    return json.loads(store.read(f"{RUN}/lease/0001.heartbeat"))["counter"]


def _here() -> dict[str, str]:
    here = LeaseOwner.of_this_process()
    return {"boot_id": here.boot_id, "pid_namespace": here.pid_namespace}


class TestOwnerOnThisMachine:
    def test_alive_is_refused_at_once_by_name(self, local_store, start_owner, clock):
        process = start_owner(local_store)
        with pytest.raises(RunBusyError, match="stop that process") as caught:
            Lease.acquire(local_store, RUN)
        assert clock.now == 0
        message = str(caught.value)
        assert f"process {process.pid} on {os.uname().nodename}, since 20" in message
        assert "\n" not in message

    @pytest.mark.parametrize("collected", [True, False])
    def test_killed_is_taken_over_at_once(self, local_store, start_owner, collected, clock):
        process = start_owner(local_store)
        process.send_signal(signal.SIGKILL)
        if collected:
            process.wait()
        else:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, still in /proc
        with Lease.acquire(local_store, RUN) as lease:
            assert clock.now == 0
            lease.check()

    def test_killed_while_it_is_asked_to_give_way(self, local_store, start_owner, monkeypatch):
        monkeypatch.setattr(lease_module, "GIVE_WAY_S", 5.0)
        process = start_owner(local_store, "gives way")
        killer = threading.Timer(0.2, process.kill)
        killer.start()
        with Lease.acquire(local_store, RUN) as lease:
            lease.check()
        killer.join()

    def test_another_process_of_the_same_id_is_not_the_owner(self, local_store):
        claim(local_store, owner_elsewhere(**_here(), pid=os.getpid(), process_start="1"))
        Lease.acquire(local_store, RUN).release()

    def test_released_by_another_process(self, local_store, start_owner):
        process = start_owner(local_store)
        assert tell(process, "release") == "done\n"
        Lease.acquire(local_store, RUN).release()


class TestOwnerElsewhere:
    def test_alive_is_refused_at_its_next_heartbeat(self, local_store, start_owner):
        process = start_owner(local_store, "elsewhere")
        _soon(lambda: local_store.exists(f"{RUN}/lease/0001.heartbeat"))
        before = _counter(local_store)
        with pytest.raises(RunBusyError, match=f"worked on by process {process.pid}"):
            Lease.acquire(local_store, RUN)
        assert before < _counter(local_store) <= before + 2

    @pytest.mark.parametrize(
        "owner",
        [
            owner_elsewhere(),
            owner_elsewhere(**_here() | {"pid_namespace": "pid:[a container's]"}),
            owner_elsewhere(**_here() | {"boot_id": ""}),
        ],
        ids=["another machine", "another container", "a machine without boot ID"],
    )
    def test_silent_is_taken_over_after_the_wait_only(self, local_store, owner, clock):
        claim(local_store, owner)
        with Lease.acquire(local_store, RUN, wait_s=30.0):
            assert 30 <= clock.now < 31

    def test_release_ends_the_wait(self, local_store, monkeypatch):
        monkeypatch.setattr(lease_module, "_POLL_S", 0.05)
        claim(local_store, owner_elsewhere())
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(Lease.acquire, local_store, RUN, wait_s=60)
            local_store.create(f"{RUN}/lease/0001.released", b"w")
            waiting.result(timeout=10).release()

    def test_a_frozen_owner_notices_that_it_was_replaced(
        self, local_store, start_owner, monkeypatch
    ):
        monkeypatch.setattr(lease_module, "_POLL_S", 0.05)
        process = start_owner(local_store, "elsewhere")
        assert tell(process, "check") == "done\n"
        process.send_signal(signal.SIGSTOP)
        # A heartbeat may be on its way until it has stopped indeed.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with Lease.acquire(local_store, RUN, wait_s=0.5) as lease:
            process.send_signal(signal.SIGCONT)
            answer = tell(process, "check")
            assert answer.startswith(f"busy: Run nightly was taken over by process {os.getpid()}")
            assert "what it has committed is kept" in answer
            assert tell(process, "release") == "done\n"
            lease.check()
        with Lease.acquire(local_store, RUN):
            pass


def refuse(store: Store, path: str, data: bytes) -> None:
    raise StoreError(f"no {path}")


class TestRelease:
    def test_happens_once_and_after_errors(self, local_store):
        with (
            pytest.raises(ZeroDivisionError, match="by zero"),
            Lease.acquire(local_store, RUN) as it,
        ):
            1 / 0  # noqa: B018
        it.release()
        Lease.acquire(local_store, RUN).release()

    def test_does_not_hide_the_error_that_led_there(self, local_store, monkeypatch):
        def work():
            with Lease.acquire(local_store, RUN):
                monkeypatch.setattr(Store, "create", refuse)
                return 1 / 0

        with pytest.raises(ZeroDivisionError, match="by zero"):
            work()

    def test_tells_of_its_own_errors(self, local_store, monkeypatch):
        lease = Lease.acquire(local_store, RUN)
        monkeypatch.setattr(Store, "create", refuse)
        with pytest.raises(StoreError, match=r"no runs/nightly/lease/0001\.released"):
            lease.release()

    def test_that_a_store_refuses_leaves_the_run_free(self, local_store, start_python, monkeypatch):
        monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.1)
        lease = Lease.acquire(local_store, RUN)
        self.refuse(monkeypatch, lease)
        # This process holds it no more, so it may have it again at once.
        with Lease.acquire(local_store, RUN) as again:
            again.check()
            self.refuse(monkeypatch, again)
        # Others see only that this process lives, until the store takes its word.
        path = f"{local_store.url}/{RUN}/lease/0002.released"
        assert _soon(lambda: os.path.exists(path))
        process = start_python(OWNER_SCRIPT, local_store.url, "here")
        assert process.stdout.readline() == "acquired\n"

    def refuse(self, monkeypatch, lease):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "create", _refused)
            with pytest.raises(StoreError, match="no"):
                lease.release()

    def test_of_a_claim_whose_answer_was_lost_is_not_needed(self, local_store, monkeypatch):
        create = Store.create

        def lose(store, path, data):
            create(store, path, data)
            raise StoreError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "create", lose)
            with pytest.raises(StoreError, match="no answer"):
                Lease.acquire(local_store, RUN)
        with Lease.acquire(local_store, RUN) as lease:
            lease.check()

    def test_is_not_a_forked_child_s_to_do(self, local_store, run_python):
        script = """
import json, os, sys
from partwise.store.lease import Lease
from partwise.store.store import Store
store = Store.parse(sys.argv[1])
with Lease.acquire(store, "runs/nightly") as lease:
    child = os.fork()
    if not child:
        lease.release()
        os._exit(0)
    os.waitpid(child, 0)
    print(json.dumps(store.exists("runs/nightly/lease/0001.released")))
"""
        assert run_python(script, local_store.url) is False

    def test_stops_the_heartbeat(self, local_store):
        before = set(threading.enumerate())
        lease = Lease.acquire(local_store, RUN)
        (heartbeat,) = set(threading.enumerate()) - before
        assert heartbeat.name == "lease-heartbeat"
        lease.release()
        assert not heartbeat.is_alive()


class TestWhatItWroteIsGone:
    """The store is another one: its folder was deleted, unmounted, or made again."""

    @pytest.fixture
    def lease(self, store, monkeypatch):
        monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.01)
        with Lease.acquire(store, RUN) as lease:
            # Until the first beat is over.
            while not store.exists(f"{RUN}/lease/0001.heartbeat"):
                time.sleep(0.01)
            yield lease

    def test_check_says_so(self, store, lease):
        store.delete_folder(RUN)
        with pytest.raises(StoreError, match=r"does not hold any more what .* runs/nightly"):
            lease.check()

    def test_it_is_not_made_anew(self, store, lease):
        store.delete_folder(RUN)
        lease._thread.join(timeout=10)
        store.delete_folder(RUN)  # a beat may have been on its way
        lease.release()
        assert store.list("") == []

    def test_a_claim_of_somebody_else_is_not_ours(self, store, lease):
        store.write(f"{RUN}/lease/0001.json", owner_elsewhere().model_dump_json().encode())
        with pytest.raises(StoreError, match="does not hold any more"):
            lease.check()


SAID = (b"first", b"second")


class TestSteps:
    def test_are_given_to_the_next_owner_in_order_once(self, store):
        claim(store, owner_elsewhere(**_here(), process_start="0"))
        lost = Lease.acquire(store, RUN)
        assert lost.next_step == f"{RUN}/lease/0002.step-0001"
        for step in SAID:
            lost.announce(step)
        lost.owner = owner_elsewhere(**_here(), process_start="0")
        store.write(f"{RUN}/lease/0002.json", lost.owner.model_dump_json().encode())
        with Lease.acquire(store, RUN) as lease:
            steps = [(f"{RUN}/lease/0002.step-000{n}", step) for n, step in enumerate(SAID, 1)]
            assert list(lease.earlier_steps()) == steps
            with pytest.raises(RunBusyError, match="was taken over by process"):
                lost.announce(b"third")
            lease.announce(b"mine")
        with Lease.acquire(store, RUN) as lease:
            assert list(lease.earlier_steps()) == [], "what was released is done"
        lost._stop.set()

    def test_that_were_not_carried_out_are_given_again(self, store):
        claim(store, owner_elsewhere(**_here(), process_start="0"))
        step = f"{RUN}/lease/0001.step-0001", b"first"
        store.create(*step)
        for _ in range(2):
            with Lease.acquire(store, RUN) as lease:
                assert next(lease.earlier_steps()) == step
        with Lease.acquire(store, RUN) as lease:
            assert list(lease.earlier_steps()) == [step]


def test_a_claim_of_a_newer_release_names_its_format(local_store):
    local_store.write(f"{RUN}/lease/0001.json", b'{"format_version": 9, "new": 1}')
    with pytest.raises(RunFormatError, match=r"can read \(format version 9\); install a newer"):
        Lease.acquire(local_store, RUN)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format_version": 2}', b"\xff"])
def test_an_unreadable_claim_is_named(local_store, content):
    local_store.write(f"{RUN}/lease/0001.json", content)
    with pytest.raises(RunFormatError, match=r"runs/nightly/lease/0001\.json .* is not a claim"):
        Lease.acquire(local_store, RUN)


def test_ten_thousandth_claim_follows_the_one_before(local_store):
    owner = owner_elsewhere(**_here())
    local_store.create(f"{RUN}/lease/9999.json", owner.model_dump_json().encode())
    for number in (10_000, 10_001):
        with Lease.acquire(local_store, RUN):
            assert local_store.exists(f"{RUN}/lease/{number}.json")


class TestCancel:
    def test_the_owner_learns_of_it_once(self, store, monkeypatch) -> None:
        monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.02)
        heard = threading.Semaphore(0)
        assert not request_cancel(store, RUN), "nobody ever worked on it"
        with Lease.acquire(store, RUN, on_cancel=heard.release):
            assert not heard.acquire(timeout=0.2), "nobody has asked"
            assert request_cancel(store, RUN)
            assert heard.acquire(timeout=10)
            assert request_cancel(store, RUN)
            assert not heard.acquire(timeout=0.2), "one is enough"
        assert not request_cancel(store, RUN), "it was released"
        with Lease.acquire(store, RUN, on_cancel=heard.release):
            assert not heard.acquire(timeout=0.2), "the wish was for the owner before"

    def test_of_one_elsewhere_it_is_written_and_of_one_that_died_not(self, local_store) -> None:
        claim(local_store, owner_elsewhere())
        assert request_cancel(local_store, RUN)
        gone = LeaseOwner.of_this_process().model_copy(update={"process_start": "1"})
        local_store.create(f"{RUN}/lease/0002.json", gone.model_dump_json().encode())
        assert not request_cancel(local_store, RUN)


class TestOwnerWatch:
    def test_sees_an_owner_come_and_go(self, store) -> None:
        watch = OwnerWatch(store, RUN)
        assert not watch.is_at_work()
        with Lease.acquire(store, RUN):
            assert watch.is_at_work()
        assert not watch.is_at_work()

    def test_gives_up_one_elsewhere_that_is_silent(self, local_store, monkeypatch) -> None:
        now = [0.0]
        monkeypatch.setattr(lease_module.time, "monotonic", lambda: now[0])
        claim(local_store, owner_elsewhere())
        watch = OwnerWatch(local_store, RUN)
        for counter in range(3):
            local_store.write(f"{RUN}/lease/0001.heartbeat", b"%d" % counter)
            now[0] += 29
            assert watch.is_at_work()
        now[0] += 29
        assert watch.is_at_work()
        now[0] += 2
        assert not watch.is_at_work()
