"""Messages between a worker and its child process."""

import socket
import threading
from dataclasses import replace

import msgpack
import pytest

from partwise.engine.failures import Failure
from partwise.engine.messages import (
    Artifact,
    ArtifactFound,
    ArtifactMissing,
    ArtifactRequest,
    Connection,
    Idle,
    OpenShard,
    OpenWork,
    Report,
    ReportAnswer,
    RunPartitions,
    WorkReady,
    WorkUnusable,
)
from partwise.engine.outcome import Outcome, WrittenModel
from partwise.engine.works import StoredFile, StoredModel
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact

FAILURE = Failure(error_type="E", message="m", fingerprint="f", final=True, traceback="t")
FILE = StoredFile(
    path="/bundle.zip",
    offset=7,
    artifact=StoredArtifact(
        filename="model.txt",
        bundle="bundles/b.zip",
        offset=7,
        size_bytes=3,
        stored_bytes=2,
        compression="deflate",
        sha256="0",
        serde="lightgbm",
    ),
)
STORED = StoredModel(level=1, run_id="r", owner="a-1", file=FILE, weights=FILE)
MESSAGES = [
    OpenWork(path="/work.pkl"),
    OpenShard(
        path="/rows.arrow",
        keys=b"keys",
        key_columns=["a", "b"],
        partition_ids=["x", "é"],
        offsets=[0, 1, 1 << 40],
        seeds=[1, 2],
        params=None,
        models={1: [STORED, replace(STORED, level=2)]},
        run_id="run",
    ),
    RunPartitions(indices=[0, 1], attempt=2),
    ArtifactFound(question=1, path="/file"),
    ArtifactMissing(question=1, message="none"),
    ReportAnswer(question=1, gives_up=True),
    WorkReady(),
    WorkUnusable(failure=FAILURE),
    Artifact(index=0, filename="a.txt", content=b"\x00"),
    ArtifactRequest(index=0, question=1, filename="a.txt", run_id=None),
    Report(index=0, question=1, step=3, value=0.25),
    Outcome(
        index=0,
        status=PartitionStatus.FAILED,
        reason="e",
        metrics={},
        failure=FAILURE,
        model=None,
        rows=None,
        candidate="",
        seconds=0.0,
        log=b"",
        left=[],
        retired=False,
    ),
    Outcome(
        index=1,
        status=PartitionStatus.DONE,
        reason="",
        metrics={"rmse": 0.5},
        failure=None,
        model=WrittenModel(filename="model.txt", content="/content-1", serde="lightgbm"),
        rows=b"rows",
        candidate="linear",
        seconds=0.25,
        log=b"x" * 1000,
        left=["it replaced numpy.mean"],
        retired=True,
    ),
    Idle(libraries=["lightgbm", "pandas"]),
]


@pytest.fixture
def sockets():
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def ends(sockets):
    return tuple(map(Connection, sockets))


def test_messages_arrive_whole_and_in_order(ends) -> None:
    one, other = ends
    for message in MESSAGES:
        one.send(message)
    received = [other.receive(1) for _ in MESSAGES]
    assert received == MESSAGES
    assert [type(message) for message in received] == [type(message) for message in MESSAGES]
    assert isinstance(received[-2].status, PartitionStatus)
    assert other.receive(0) is None


def test_text_that_is_no_unicode_arrives_readable(ends) -> None:
    one, other = ends
    one.send(ArtifactMissing(question=1, message="no file \udcff.csv"))
    assert other.receive(1) == ArtifactMissing(question=1, message="no file ?.csv")


def test_the_end_is_seen_after_all_that_was_sent(ends) -> None:
    one, other = ends
    one.send(Idle([]))
    one.close()
    assert other.receive(1) == Idle([])
    with pytest.raises(EOFError, match="gone"):
        other.receive(1)


@pytest.mark.parametrize(
    "wire",
    [
        msgpack.packb(["Popen", ["true"]]),
        msgpack.packb(["Idle", [[], "one value too many"]]),
        msgpack.packb(["OpenWork", []]),
        msgpack.packb(["Outcome", 5]),
        msgpack.packb(["Outcome", [0, "NO STATUS", "", {}, None, None, None, 0.0, b"", [], False]]),
        msgpack.packb(42),
        b"\xc1",
    ],
)
def test_what_is_no_message_ends_the_connection_and_runs_nothing(sockets, wire) -> None:
    sockets[0].sendall(wire)
    with pytest.raises(EOFError, match="not a message"):
        Connection(sockets[1]).receive(1)


def test_messages_are_let_come_while_they_are_gathered():
    ours, theirs = (Connection(end) for end in socket.socketpair())
    ours.send(Idle(libraries=["first"]))
    later = threading.Timer(0.05, ours.send, [Idle(libraries=["second"])])
    later.start()
    assert theirs.receive(5, gather_s=0.5) == Idle(libraries=["first"])
    # Read with the first: nobody asks the kernel for it.
    ours.close()
    theirs.close()
    assert theirs.receive(0) == Idle(libraries=["second"])
