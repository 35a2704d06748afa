"""The command line as a process of its own: how it starts, what it leaves on a terminal, Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.own_cluster import wait_for

COMMAND = [sys.executable, "-m", "partwise"]
# What such a process proposes is called in the same way.
NEXT = f"next: {sys.executable} -m partwise"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As a person has it: nothing said about what Prefect logs."""
    kept = {name: value for name, value in os.environ.items() if "LOGGING" not in name}
    return {**kept, "PARTWISE_STORE": str(tmp_path / "artifacts"), "COLUMNS": "100"}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A call that trains eight partitions, of which one fails."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": [i // 30 for i in range(240)], "y": [1.0] * 240}), path)
    (tmp_path / "mine.py").write_text(
        "import time\n"
        "def rows(data, context):\n"
        "    if context.key == 3:\n"
        "        raise ValueError('three')\n"
        "    time.sleep(0.05)\n"
        "    return data.to_arrow().slice(0, 1).select(['y'])\n"
        "def wait(data, context):\n"
        f"    open({str(tmp_path / 'waiting')!r}, 'w').close()\n"
        "    time.sleep(30)\n"
    )
    words = ["map", str(path), "-p", "k", "--function", "mine:rows", "--run-id", "r"]
    return [*COMMAND, *words, "--workers", "1", "--max-retries", "0"]


@pytest.mark.parametrize(
    "words",
    [["--help"], ["runs", "list"], ["runs", "show", "x"], ["promote", "x", "--models", "y"]],
)
def test_what_needs_no_prefect_does_not_import_it(words, environment) -> None:
    heavy = {"prefect", "distributed", "pandas", "lightgbm", "markdown_it"}
    code = (
        "import sys; from partwise.flows.cli.main import main; main(sys.argv[1:]); "
        f"sys.exit(str(sorted({heavy} & set(sys.modules))))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**environment, "PREFECT_API_URL": ""},
        capture_output=True,
        text=True,
    )
    assert ended.stderr.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["prefect", "direct"])
def test_elsewhere_than_in_a_terminal_there_are_plain_lines(
    prefect_server, words, environment, tmp_path, way
) -> None:
    if way == "direct":
        environment["PREFECT_API_URL"] = ""
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 3
    *told, rows, failure = ended.stderr.splitlines()
    expected = "running without a Prefect server; PREFECT_API_URL names one that shows runs"
    assert told == ([] if way == "prefect" else [expected])
    assert rows.startswith("Run r: 240 rows in 8 partitions, ")
    assert failure.startswith("warning: Run r: partition ")
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("r  PARTIAL_FAILURE in ")
    assert lines[-1] == f"{NEXT} runs show r --failures  (what failed, and where)"
    assert "\x1b" not in ended.stdout


@pytest.mark.slow
def test_in_a_terminal_there_is_a_bar(prefect_server, words, environment, tmp_path) -> None:
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = _read(terminal)
        out = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 3
    assert "Run r: 240 rows in 8 partitions" in seen
    assert "8/8" in seen
    assert "1 failed" in seen
    assert "Traceback" not in seen
    # The bar is wiped off when it has done its work.
    assert seen.rstrip().endswith("\x1b[2K")
    assert out.splitlines()[-1].startswith(f"{NEXT} runs show r --failures")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "news"),
    [
        ([], "running without a Prefect server; PREFECT_API_URL names one that shows runs"),
        (
            ["--prefect"],
            "starting Prefect's embedded server; PREFECT_API_URL names one to use instead",
        ),
    ],
    ids=["direct", "embedded"],
)
def test_ctrl_c_ends_a_run_in_order_where_no_server_answers(
    words, environment, tmp_path, asked, news
) -> None:
    words[words.index("mine:rows")] = "mine:wait"
    words += asked
    environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    log = tmp_path / "stderr"
    with (
        log.open("wb") as err,
        subprocess.Popen(
            words,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        ) as process,
    ):
        try:
            wait_for((tmp_path / "waiting").exists, "no partition waits", 120)
            # As a terminal does: to all processes of the command.
            os.killpg(process.pid, signal.SIGINT)
            out = process.communicate(timeout=90)[0].decode()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 130
    first, told, second, last = log.read_text().splitlines()
    assert first == "warning: no answer from the Prefect server at http://127.0.0.1:9/api"
    assert told == news
    assert second.startswith("Run r: 240 rows in 8 partitions")
    assert last.startswith("error: The run 'r' ended with CANCELLED: 8 partitions (8 CANCELLED).")
    assert out.splitlines()[-1] == f"{NEXT} runs resume r  (go on with what is not done)"
    assert Run.open("r", environment["PARTWISE_STORE"]).status is RunStatus.CANCELLED


@pytest.mark.slow
@pytest.mark.parametrize("asked", [[], ["--prefect"]], ids=["direct", "embedded"])
def test_ctrl_c_before_a_run_exists_says_that_nothing_was_begun(
    words, environment, tmp_path, asked
) -> None:
    (tmp_path / "late.py").write_text(
        f"import time\nopen({str(tmp_path / 'waiting')!r}, 'w').close()\ntime.sleep(60)\n"
    )
    words[words.index("mine:rows")] = "late:rows"
    environment["PREFECT_API_URL"] = ""
    with subprocess.Popen(
        [*words, *asked],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            wait_for((tmp_path / "waiting").exists, "no partition waits", 120)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=90)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 130, err
    *told, last = err.splitlines()
    assert last.startswith("error: ")
    assert "interrupted before anything was begun: there is nothing to go on with" in last
    assert len(told) <= 1
    assert out == ""
    assert not Path(environment["PARTWISE_STORE"], "runs").exists()


def test_ctrl_c_as_a_library_makes_its_dataclasses_is_like_any_other(environment, tmp_path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import signal, sys\n"
        "from partwise.flows.cli import main\n"
        "def app(*_, **__): exec('import signal; signal.raise_signal(signal.SIGINT)')\n"
        "main.app = app\n"
        "sys.exit(main.main())\n"
    )
    words = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted\n")


def test_a_reader_that_goes_away_is_no_error(environment, tmp_path) -> None:
    with subprocess.Popen(
        [*COMMAND, "runs", "list"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_command_whose_output_is_closed_does_its_work(environment, tmp_path) -> None:
    (tmp_path / "artifacts").mkdir()
    ended = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *COMMAND, "runs", "list", "--json"],
        env={**environment, "PREFECT_API_URL": ""},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def _read(terminal: int) -> str:
    seen = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return seen.decode()
        if not part:
            return seen.decode()
        seen += part
