"""A child's end of the connection, which its threads and its forks use too."""

import os
import signal
import socket
import threading

import pytest

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
