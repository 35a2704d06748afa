"""The middle of a log, which is given back while the log is written and emptied."""

import os

import pytest

from partwise.engine.child.log import (
    LARGEST_LOG_BYTES,
    LOG_HEAD_BYTES,
    LOG_TAIL_BYTES,
    give_back_middle,
    is_large,
    read_log,
)

KEPT = LOG_HEAD_BYTES + LOG_TAIL_BYTES


@pytest.fixture
def log(tmp_path):
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def test_the_middle_takes_no_room_and_is_not_missed(log) -> None:
    size = LARGEST_LOG_BYTES + KEPT
    os.write(log, b"first" + b"x" * (size - 9) + b"last")
    before = read_log(log, size)
    assert is_large(log)
    give_back_middle(log)
    assert not is_large(log)
    assert read_log(log, size) == before


@pytest.mark.parametrize("size", [0, 100, KEPT])
def test_a_log_without_a_middle_stays_as_it_is(log, size) -> None:
    """The next partition may have begun since the log was found to be large."""
    os.write(log, b"x" * size)
    give_back_middle(log)
    assert os.fstat(log).st_size == size
    assert read_log(log, size) == b"x" * size
