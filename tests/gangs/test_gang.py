"""A gang on a real cluster: what its ranks know, do, make and tell."""

import json
import os
import signal
import socket
import sys
import threading
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from partwise.cluster_calls import known_workers
from partwise.errors import ClusterError
from partwise.gangs.driver import run_gang
from partwise.gangs.errors import GangFailedError
from partwise.gangs.spec import Node
from partwise.models.serdes import PickleSerde
from partwise.outcomes import PartitionStatus, Result, Skip
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import get_context
from partwise.runs.bundle import content_file, decode
from tests.gangs.gang_maker import Events, make_gang
from tests.plain_cluster import plain_cluster


@pytest.fixture
def make_spec(dask_client, tmp_path):
    """Make a gang of a function or a command."""

    def make(function=None, words=(), **fields):
        return make_gang(dask_client, tmp_path, function or words, **fields)

    return make


def read_artifact(spec, end, filename):
    (stored,) = [one for one in end.artifacts if one.filename == filename]
    path = f"runs/{spec.run_id}/{stored.bundle}"
    content = spec.store.read_range(path, stored.offset, stored.stored_bytes)
    return decode(content, stored, "the gang")


def read_model(spec, end):
    with content_file(read_artifact(spec, end, "model.pkl"), "model.pkl") as path:
        return PickleSerde().read(path)


def tell_all(context: RankContext):
    assert get_context() is context
    print("hello from", context.rank)
    assert os.listdir(".") == []
    context.report(half=context.rank / 2)
    if context.rank != 1:
        context.report(losses=[3, 2.5], note=f"of {context.rank}")
    (context.model_directory / "notes").mkdir()
    (context.model_directory / "notes" / "rank.txt").write_text(str(context.rank))
    context.files["beside.bin"] = b"beside"
    facts = {
        "rank": (context.rank, context.local_rank, context.node_rank, context.local_world_size),
        "address": context.addresses[context.rank],
        "depth": context.params["depth"],
        "environment": dict(os.environ),
        "exec": os.getpid(),
    }
    gathered = [json.loads(one) for one in context.all_gather(json.dumps(facts).encode())]
    return Result({"ranks": gathered, "addresses": context.addresses}, {"whole": context.rank})


def test_ranks_know_each_other_and_rank_0_makes_the_model(dask_client, tmp_path):
    """Also three of them on two workers."""
    workers = sorted(dask_client.scheduler_info(n_workers=-1)["workers"])
    nodes = (
        Node(worker=workers[0], first_rank=0, ranks=2),
        Node(worker=workers[1], first_rank=2, ranks=1),
    )
    events = Events()
    spec = make_gang(dask_client, tmp_path, tell_all, nodes=nodes, threads=3)
    ends = run_gang(dask_client, spec, events)

    assert [end.rank for end in ends] == [0, 1, 2]
    assert ends[0].host == ends[1].host != ends[2].host
    assert {end.status for end in ends} == {PartitionStatus.DONE}
    assert [dict(end.metrics) for end in ends] == [{"half": r / 2, "whole": r} for r in range(3)]
    assert all(end.peak_memory_bytes > 10e6 and end.seconds > 0 for end in ends)
    model = read_model(spec, ends[0])
    told = model["ranks"]
    assert [one["rank"] for one in told] == [[0, 0, 0, 2], [1, 1, 0, 2], [2, 0, 1, 1]]
    assert [tuple(one["address"]) for one in told] == list(model["addresses"])
    assert len(set(model["addresses"])) == 3
    assert {one["depth"] for one in told} == {3}
    for rank, one in enumerate(told):
        variables = one["environment"]
        assert variables["RANK"] == variables["OMPI_COMM_WORLD_RANK"] == str(rank)
        assert variables["WORLD_SIZE"] == "3"
        assert variables["OMP_NUM_THREADS"] == "3"
        assert variables["MASTER_PORT"] == str(model["addresses"][0][1])
        assert variables["GLOO_SOCKET_IFNAME"] == "lo"
    assert read_artifact(spec, ends[0], "notes/rank.txt") == b"0"
    assert read_artifact(spec, ends[0], "beside.bin") == b"beside"
    names = [["log.txt"], ["reported.json", "log.txt"]]
    assert [[one.filename for one in end.artifacts] for end in ends[1:]] == names
    for rank in (0, 2):
        reported = json.loads(read_artifact(spec, ends[rank], "reported.json"))
        assert reported == {"losses": [3, 2.5], "note": f"of {rank}"}
    assert read_artifact(spec, ends[2], "log.txt") == b"hello from 2\n"
    assert sorted(events.lines()) == [f"[rank {rank}] hello from {rank}" for rank in range(3)]
    assert len(events.of("joined")) == len(events.of("started")) == 2
    assert sorted(event.rank for event in events.of("ended")) == [0, 1, 2]


@pytest.mark.slow
def test_ranks_find_each_other_over_ipv6(tmp_path):
    with plain_cluster(2, host="[::1]") as client:
        spec = make_gang(client, tmp_path, tell_all)
        told = read_model(spec, run_gang(client, spec)[0])["ranks"]
    for one in told:
        host, port = one["address"]
        assert host == "::1"
        with socket.create_server((host, port), family=socket.AF_INET6):
            """Nobody holds it any more."""
        assert one["environment"]["GLOO_SOCKET_IFNAME"] == "lo"


@pytest.mark.parametrize("modules", [(), ("colorsys",)])
def test_ranks_find_loaded_what_their_function_is_sure_to_import(dask_client, tmp_path, modules):
    def function(context):
        return Result("model", {"found": "colorsys" in sys.modules})

    spec = make_gang(dask_client, tmp_path, function, modules=modules)
    found = {end.metrics["found"] for end in run_gang(dask_client, spec)}
    assert found == {float(bool(modules))}


def test_rank_0_may_decline(dask_client, tmp_path):
    spec = make_gang(dask_client, tmp_path, lambda context: Skip("too few rows"))
    ends = run_gang(dask_client, spec)
    assert [end.status for end in ends] == [PartitionStatus.SKIPPED, PartitionStatus.DONE]
    assert ends[0].reason == "too few rows"


COMMAND = """
import os, socket, sys
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(master) as server:
        print("got", server.accept()[0].recv(100).decode())
else:
    while True:
        try:
            socket.create_connection(master).sendall(sys.argv[1].encode())
            break
        except ConnectionRefusedError:
            pass
sys.exit(int(sys.argv[2]) * int(os.environ["RANK"]))
"""


def share_memory(context: RankContext) -> None:
    memory = SharedMemory(create=True, size=200 << 20)
    memory.buf[:] = bytes(200 << 20)
    time.sleep(1.0)
    memory.close()
    memory.unlink()


def test_shared_memory_of_a_rank_counts(dask_client, tmp_path):
    [end] = run_gang(dask_client, make_gang(dask_client, tmp_path, share_memory, ranks=1))
    assert end.peak_memory_bytes > 200 << 20


def test_programs_find_the_port_of_rank_0_free(dask_client, tmp_path):
    words = [sys.executable, "-c", COMMAND, "a word", "0"]
    spec = make_gang(dask_client, tmp_path, words)
    ends = run_gang(dask_client, spec)
    assert [end.exit_code for end in ends] == [0, 0]
    assert read_artifact(spec, ends[0], "log.txt") == b"got a word\n"


def test_the_scratch_of_a_killed_rank_is_gone(dask_client, tmp_path):
    told = tmp_path / "told"

    def die(context: RankContext):
        pages = context.scratch_directory / "pages"
        pages.write_bytes(b"much")
        told.write_text(str(pages))
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(GangFailedError, match="SIGKILL"):
        run_gang(dask_client, make_gang(dask_client, tmp_path, die, ranks=1))
    pages = Path(told.read_text())
    assert not pages.parent.exists()


def test_functions_see_their_own_gpus_and_scripts_those_of_their_node(dask_client, tmp_path):
    worker = min(known_workers(dask_client))
    node = Node(worker=worker, first_rank=0, ranks=2, gpus=("GPU-a", "GPU-b"))

    def show(context: RankContext):
        print(context.local_rank, *context.gpus, os.environ["CUDA_VISIBLE_DEVICES"])
        return Skip("this is all")

    script = "import os; print(os.environ['LOCAL_RANK'], os.environ['CUDA_VISIBLE_DEVICES'])"
    # Of a worker that sees some itself, as those of dask-cuda do.
    hidden = Node(worker=worker, first_rank=0, ranks=2, hides_gpus=True)
    for target, shares, placed, logs in (
        (show, False, node, [b"0 GPU-a GPU-a\n", b"1 GPU-b GPU-b\n"]),
        (show, False, hidden, [b"0 \n", b"1 \n"]),
        ([sys.executable, "-c", script], True, node, [b"0 GPU-a,GPU-b\n", b"1 GPU-a,GPU-b\n"]),
    ):
        fields = {"nodes": (placed,), "gpus": len(placed.gpus) // 2, "shares_gpus": shares}
        spec = make_gang(dask_client, tmp_path, target, **fields)
        ends = run_gang(dask_client, spec)
        assert [read_artifact(spec, end, "log.txt") for end in ends] == logs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([sys.executable, "-c", COMMAND, "a word", "5"], "exit status 5"),
        ([sys.executable, "-c", "import os; os.abort()"], "SIGABRT"),
    ],
)
def test_a_program_that_fails_is_told_with_the_end_of_its_log(
    dask_client, tmp_path, words, message
):
    spec = make_gang(dask_client, tmp_path, words)
    with pytest.raises(GangFailedError, match=message) as caught:
        run_gang(dask_client, spec)
    assert caught.value.__cause__ is None


def test_a_gang_begins_again_with_new_ports_and_keeps_nothing_of_before(dask_client, tmp_path):
    folder = str(tmp_path)

    def fail_twice(context: RankContext):
        print("attempt", context.attempt, os.environ["TORCHELASTIC_RESTART_COUNT"])
        told = Path(folder, f"addresses-{context.attempt}-{context.rank}")
        told.write_text(json.dumps([*context.addresses[0], context.exchange is None]))
        found = context.resume_from()
        seen = (found / "steps").read_text() if found else ""
        context.checkpoint(
            lambda folder: (folder / "steps").write_text(f"{seen}{context.attempt}"),
            step=context.attempt,
        )
        context.barrier()
        if context.attempt < 3 and context.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        context.barrier()
        return context.attempt, seen

    events = Events()
    spec = make_gang(dask_client, tmp_path, fail_twice, max_retries=2)
    ends = run_gang(dask_client, spec, events)

    assert read_model(spec, ends[0]) == (3, "12")
    assert [end.attempt for end in ends] == [3, 3]
    assert len({path.read_text() for path in tmp_path.glob("addresses-*-0")}) == 3
    assert [event.attempt for event in events.of("restart")] == [2, 3]
    assert "SIGKILL" in events.of("restart")[0].error
    bundles = spec.store.list("runs/gang/bundles/")
    assert sorted(bundles) == sorted(
        {f"runs/gang/{one.bundle}" for end in ends for one in end.artifacts}
    )
    assert read_artifact(spec, ends[1], "log.txt") == b"attempt 3 2\n"


def test_a_gang_that_fails_again_and_again_is_told_of_its_last_attempt(dask_client, tmp_path):
    def fail(context: RankContext):
        context.barrier()
        raise ValueError(f"rank {context.rank} of attempt {context.attempt}")

    spec = make_gang(dask_client, tmp_path, fail, max_retries=1)
    with pytest.raises(GangFailedError, match=r"in attempt 2: ValueError: rank \d of") as caught:
        run_gang(dask_client, spec)
    assert type(caught.value.__cause__) is ValueError


def hold(path):
    while not Path(path).exists():
        time.sleep(0.01)


def test_a_busy_slot_is_waited_for_and_not_for_ever(dask_client, tmp_path):
    spec = make_gang(dask_client, tmp_path, ["true"], join_timeout_s=1.0)
    busy = dask_client.submit(
        hold, str(tmp_path / "go"), workers=[spec.nodes[1].worker], pure=False
    )
    with pytest.raises(ClusterError, match="1 of 2 workers were busy"):
        run_gang(dask_client, spec)

    again = make_gang(dask_client, tmp_path, ["true"])
    threading.Timer(0.5, (tmp_path / "go").touch).start()
    assert [end.exit_code for end in run_gang(dask_client, again)] == [0, 0]
    busy.result()


def test_gangs_that_need_the_same_slots_follow_one_another(dask_client, tmp_path):
    results: list[object] = []

    def run(number: int) -> None:
        spec = make_gang(dask_client, tmp_path, ["sleep", "0.2"], join_timeout_s=25.0)
        results.append([end.exit_code for end in run_gang(dask_client, spec)])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0, 0]] * 4


def test_a_port_is_held_until_the_rank_releases_it(dask_client, tmp_path):
    def bind(context: RankContext):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("", context.addresses[context.rank][1]))
        with socket.create_server(context.release_port()):
            return "bound"

    spec = make_gang(dask_client, tmp_path, bind)
    assert read_model(spec, run_gang(dask_client, spec)[0]) == "bound"
