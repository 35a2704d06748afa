"""A child's end of the connection, which its threads and its forks use too."""

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from partwise.engine import messages
from partwise.engine.child.parent_link import ParentLink, SharedConnection
from partwise.engine.messages import Artifact, ArtifactFound, ArtifactRequest, Connection


@pytest.fixture
def ends():
    sockets = socket.socketpair()
    child, worker = SharedConnection(sockets[0]), Connection(sockets[1])
    yield child, worker
    child.close()
    worker.close()


def test_the_answer_to_a_question_that_was_given_up_is_not_taken_for_another(
    ends, tmp_path
) -> None:
    child, worker = ends
    link = ParentLink(child, 0, lambda content: content)

    def interrupted() -> None:
        raise TimeoutError

    def download(filename: str) -> bytes:
        return link.download(filename, None)

    # As by a signal, between the question and its answer.
    child.receive = interrupted
    with pytest.raises(TimeoutError):
        download("given-up")
    del child.receive
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(download("wanted")))
    thread.start()
    for _ in range(2):
        asked = worker.receive(5)
        path = tmp_path / f"{asked.filename}-{asked.question}"
        path.write_text(f"content of {asked.filename}")
        worker.send(ArtifactFound(question=asked.question, path=str(path)))
    thread.join()
    assert found == [b"content of wanted"]


def test_a_fork_does_not_wait_for_a_thread_that_it_lacks(ends) -> None:
    child, worker = ends
    asked = ArtifactRequest(index=0, question=1, filename="a", run_id=None)
    thread = threading.Thread(target=child.ask, args=[asked])
    thread.start()
    assert worker.receive(5) == asked
    message = Artifact(index=0, filename="b", content=b"of a fork")
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        child.send(message)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert worker.receive(5) == message
    worker.send(ArtifactFound(question=1, path=""))
    thread.join()


@contextmanager
def handled(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_in_the_midst_of_a_large_message_cuts_nothing_off(ends) -> None:
    child, worker = ends
    large = Artifact(index=0, filename="large", content=b"x" * (4 << 20))
    small = Artifact(index=0, filename="small", content=b"y")
    received: list[Any] = []

    def work() -> None:
        # Until the kernel takes no more: from then on the child waits in the midst of the message.
        room = select.poll()
        room.register(child._socket, select.POLLOUT)
        while room.poll(0):
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        received.extend(worker.receive(5) for _ in range(2))

    def interrupt(*_: Any) -> None:
        raise TimeoutError

    thread = threading.Thread(target=work)
    with handled(interrupt):
        thread.start()
        with pytest.raises(TimeoutError):
            child.send(large)
        child.send(small)
        thread.join()
    assert received == [large, small]
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_handler_of_a_signal_may_send_while_a_message_is_made(ends, monkeypatch) -> None:
    child, worker = ends
    outer = Artifact(index=0, filename="outer", content=b"x")
    inner = Artifact(index=0, filename="inner", content=b"y")
    plain = messages._plain

    def interrupted(value: Any) -> Any:
        if value is outer:
            signal.raise_signal(signal.SIGUSR1)
        return plain(value)

    monkeypatch.setattr(messages, "_plain", interrupted)
    with handled(lambda *_: child.send(inner)):
        child.send(outer)
        child.send(inner)
    assert [worker.receive(5) for _ in range(3)] == [inner, outer, inner]
