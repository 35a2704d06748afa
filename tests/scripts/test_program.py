"""A program and what it prints: metrics, its end, and much of it."""

import json
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.scripts.program import parse_metrics
from tests.scripts.script_ranks import run_script_ranks


@given(st.binary() | st.text().map(str.encode))
def test_any_line_is_a_report_or_none(line):
    assert all(isinstance(value, float) for value in parse_metrics(line).values())


@given(
    st.dictionaries(st.text(), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)),
    st.dictionaries(st.text().filter(lambda key: key != "metrics"), st.integers()),
)
def test_a_report_is_found_beside_anything(metrics, others):
    line = json.dumps({**others, "metrics": metrics}).encode()
    found = parse_metrics(line)
    assert list(found.values()) == [float(value) for value in metrics.values()]


@pytest.mark.parametrize(
    "line",
    [
        b'{"metrics": 3}',
        b'{"metrics": {"loss": "low"}}',
        b'{"metrics": {"a": 1}',
        b"[" * 5000,
        b'{"metrics": {"tokens": %d}}' % 10**400,
    ],
)
def test_what_is_no_report_is_output(line):
    assert parse_metrics(line) == {}


PRINTS = """
import json, os, subprocess, sys
from pathlib import Path
sys.stdout.write("no end of line")
sys.stdout.flush()
# It holds the pipe for longer than the script lives.
orphan = subprocess.Popen(["sleep", "30"])
Path(sys.argv[2]).write_text(str(orphan.pid))
block = (b"x" * 99 + b"\\n") * 10_000
for number in range(int(sys.argv[1])):
    os.write(1, block[:500_050])
    os.write(1, b"\\n" + json.dumps({"metrics": {f"m{number % 5}": number}}).encode() + b"\\n")
    os.write(1, block[500_050:])
print(json.dumps({"metrics": {"last": 1}}), end="")
"""


def prints(tmp_path, megabytes):
    (ended,) = run_script_ranks(
        tmp_path,
        {"main.py": PRINTS},
        words=("main.py", str(megabytes), str(tmp_path / "orphan")),
        resume_argument="",
    )
    # It is there still: not the program's reader but the guard of a gang ends it.
    os.kill(int((tmp_path / "orphan").read_text()), signal.SIGKILL)
    last = range(megabytes - 5, megabytes)
    assert ended.code == 0
    assert ended.metrics == {"last": 1, **{f"m{n % 5}": n for n in last}}


def test_reports_are_found_in_much_output_and_orphans_are_not_waited_for(tmp_path, capfd):
    prints(tmp_path, 5)
    assert capfd.readouterr().out.count("x" * 99) >= 5 * 9_999


def test_what_was_printed_before_a_traceback_stands_before_it(tmp_path, capfd):
    """Also after a line of which the end is missing, as progress bars write them."""
    script = """
import sys
for number in range(200):
    sys.stderr.write(f"\\r{number} %")
    print(f"printed {number}", flush=True)
raise ValueError("at the end")
"""
    (ended,) = run_script_ranks(tmp_path, {"main.py": script}, words=("main.py",))
    assert ended.code == 1
    text = capfd.readouterr().out
    assert text.rstrip().endswith("ValueError: at the end")
    assert "printed 199\n" in text


@pytest.mark.slow
def test_a_hundred_megabytes_of_output_are_followed_to_their_end(tmp_path):
    prints(tmp_path, 100)
