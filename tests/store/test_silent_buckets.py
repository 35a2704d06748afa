"""Buckets that take connections and then say nothing: each operation is an error in time."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from partwise.store import remote_objects
from partwise.store.remote_objects import RemoteObjects, open_filesystem

ANSWER_S = 0.3
MOST_S = 60.0
MUCH = bytes(64 * 2**20)
"""More than sockets keep, and one request all the same."""


@pytest.fixture(params=["reads nothing", "reads all"])
def silent_server(request: pytest.FixtureRequest, monkeypatch) -> Iterator[str]:
    """A server that never answers, and takes what it is sent or does not."""
    monkeypatch.setattr(remote_objects, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(remote_objects, "RECEIVE_S", ANSWER_S)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

        def read(connection: socket.socket) -> None:
            while connection.recv(2**20):
                pass

        def take() -> None:
            while True:
                try:
                    connection = opened.enter_context(server.accept()[0])
                except OSError:
                    return
                if request.param == "reads all":
                    threading.Thread(target=read, args=[connection], daemon=True).start()

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def silent_bucket(silent_server: str) -> RemoteObjects:
    filesystem = open_filesystem("s3", {}, endpoint_url=silent_server, region=None, profile=None)
    filesystem.retries = 1
    return RemoteObjects(filesystem, "s3", "bucket/store")


@pytest.mark.parametrize(
    "ask",
    [
        lambda bucket: bucket.read("a"),
        lambda bucket: bucket.create("a", b"few"),
        lambda bucket: bucket.write("a", b"few"),
        lambda bucket: bucket.write("a", MUCH),
        lambda bucket: list(bucket.list_prefix("a")),
        lambda bucket: bucket.delete("a"),
    ],
    ids=["read", "create", "write", "write much", "list", "delete"],
)
def test_what_gets_no_answer_is_an_error(
    ask: Callable[[RemoteObjects], object], silent_bucket: RemoteObjects
) -> None:
    _ends(lambda: ask(silent_bucket))


@pytest.mark.parametrize("silent_server", ["reads nothing"], indirect=True)
def test_google_is_not_waited_for_either(silent_server: str, monkeypatch) -> None:
    async def at_once(_: float) -> None:
        pass

    # It asks six times, and waits up to sixteen seconds in between.
    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=at_once))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", silent_server)
    # Another test may have opened one, with the limits as they are.
    monkeypatch.setattr(remote_objects, "_filesystems", {})
    filesystem = open_filesystem("gs", {}, endpoint_url=None, region=None, profile=None)
    _ends(lambda: RemoteObjects(filesystem, "gs", "bucket/store").read("a"))


def _ends(ask: Callable[[], object]) -> None:
    """See that something is an error in time."""
    error: list[BaseException] = []

    def work() -> None:
        try:
            ask()
        except Exception as raised:
            error.append(raised)

    thread = threading.Thread(target=work, daemon=True)
    begun = time.monotonic()
    thread.start()
    # Not by the clock of the operation, which may have none: nobody waits for ever here.
    thread.join(MOST_S)
    assert error, f"it goes on after {time.monotonic() - begun:.0f} s"
