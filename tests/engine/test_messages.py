"""Messages between a worker and its child process."""

import socket

import pytest

from partwise.engine.messages import Connection


@pytest.fixture
def ends():
    one, other = map(Connection, socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_messages_arrive_whole_and_in_order(ends) -> None:
    one, other = ends
    messages = [["run", [1, 2], 1], ["outcome", 0, {"log": b"x" * 1000, "seconds": 0.5}], ["idle"]]
    for message in messages:
        one.send(message)
    assert [other.receive(1) for _ in messages] == messages
    assert other.receive(0) is None


def test_text_that_is_no_unicode_arrives_readable(ends) -> None:
    one, other = ends
    one.send(["outcome", 0, {"error_message": "no file \udcff.csv"}])
    assert other.receive(1) == ["outcome", 0, {"error_message": "no file ?.csv"}]


def test_the_end_is_seen_after_all_that_was_sent(ends) -> None:
    one, other = ends
    one.send(["idle"])
    one.close()
    assert other.receive(1) == ["idle"]
    with pytest.raises(EOFError, match="gone"):
        other.receive(1)
