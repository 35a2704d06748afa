"""The log of a rank: live lines are bounded, and so is what is kept."""

import os
import subprocess

import pytest

from partwise.gangs import logs
from partwise.gangs.logs import RankLog


@pytest.fixture
def log(tmp_path):
    log = RankLog(str(tmp_path / "log"))
    yield log
    log.close()


def test_lines_come_whole_and_once(log):
    os.write(log.descriptor, b"one\ntw")
    assert log.new_lines() == ["one"]
    os.write(log.descriptor, b"o\nthree")
    assert log.new_lines() == ["two"]
    assert log.new_lines() == []
    assert log.new_lines(ended=True) == ["three"]
    assert log.content() == b"one\ntwo\nthree"


def test_of_many_lines_the_last_are_told(log):
    os.write(log.descriptor, b"".join(b"%d\n" % i for i in range(30_000)))
    told = log.new_lines()
    assert "left out" in told[0]
    assert told[1:] == [str(i) for i in range(29_950, 30_000)]


def test_a_line_without_an_end_is_told_in_parts(log):
    os.write(log.descriptor, b"x" * 5_000)
    assert log.new_lines() == ["x" * logs.LINE_BYTES]


def test_a_log_that_grows_for_ever_stays_small(log, monkeypatch):
    monkeypatch.setattr(logs, "LARGEST_FILE_BYTES", 4 << 20)
    total = 0
    for number in range(40):
        total += os.write(log.descriptor, b"%06d%s\n" % (number, b"y" * 500_000))
        log.new_lines()
        assert os.fstat(log.descriptor).st_size < 5 << 20
    content = log.content()
    assert len(content) < 2 << 20
    assert content.startswith(b"000000yyy")
    assert content.rstrip().endswith(b"y" * 1000)
    assert b"bytes left out" in content


def test_what_a_rank_says_while_its_log_is_cut_is_kept(log, monkeypatch):
    """It may be the last: of a gigabyte of output the last line was lost, once in a while."""
    monkeypatch.setattr(logs, "LARGEST_FILE_BYTES", 1 << 20)
    os.write(log.descriptor, b"y" * (2 << 20) + b"\n")
    read, said = os.pread, []

    def meanwhile(*place: int) -> bytes:
        content = read(*place)
        if len(said) < 3:
            said.append(os.write(log.descriptor, b"the end\n"))
        return content

    monkeypatch.setattr(logs.os, "pread", meanwhile)
    log.new_lines()
    assert log.new_lines(ended=True) == ["the end"] * 3
    assert log.content().endswith(b"y\n" + b"the end\n" * 3)


@pytest.mark.parametrize("is_cut", [False, True])
def test_what_is_kept_of_a_log_is_without_secrets_also_where_it_was_cut(log, monkeypatch, is_cut):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    monkeypatch.setattr(logs, "LARGEST_FILE_BYTES", 1 << 20 if is_cut else 64 << 20)
    for _ in range(40):
        os.write(log.descriptor, b"the token is hf_0123456789abcdef" + b"." * 100_000 + b"\n")
        log.new_lines()
    content = log.content()
    assert b"bytes left out" in content
    assert content.count(b"the token is ***") > 2
    assert b"hf_0123456789abcdef" not in content


def test_a_log_that_a_program_empties_is_read_on(log):
    os.write(log.descriptor, b"one\ntwo\nthr")
    assert log.new_lines() == ["one", "two"]
    # It opens the file anew, with O_TRUNC.
    subprocess.run(["sh", "-c", "echo four > /dev/stderr"], stderr=log.descriptor, check=True)
    assert log.new_lines(ended=True) == ["four"]
    assert log.content() == b"four\n"
