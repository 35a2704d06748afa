"""What the suite says of itself: what lacks, what is left behind, and what may be run once more."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import COLLECTED_WITH, OPERATIONS, SERVED, scope_of

# None of them is needed before a test that uses it runs: see lazily.py. Together they are twelve
# seconds of each process.
HEAVY = {
    *("boto3", "botocore", "dask.dataframe", "datasets", "keras", "lightgbm", "moto", "optuna"),
    *("playwright.sync_api", "prefect.server.api.server", "prefect_docker.worker"),
    *("prefect_kubernetes.worker", "pyiceberg", "s3fs", "scipy", "sklearn", "sqlalchemy"),
    *("statsforecast", "tensorflow", "torch", "transformers", "xgboost"),
}
ROOT = Path(__file__).resolve().parents[1]
IMPATIENT = "from tests import conftest\nconftest.LEFT_S = 0.3\n"
Suite = Callable[..., tuple[str, list[str] | None]]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Run tests with our conftest.py: what is said, and which may be run once more."""

    def run(text: str, *options: str, **variables: str) -> tuple[str, list[str] | None]:
        (tmp_path / "test_it.py").write_text(f"import os, pytest, subprocess\n{text}")
        again = tmp_path / "again"
        words = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
        words += ["-c", str(ROOT / "pyproject.toml"), "--tb=line", *options, str(tmp_path)]
        variables = {"PARTWISE_TEST_SECOND_TRY": str(again), **variables}
        ended = subprocess.run(
            words, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
        )
        return ended.stdout, again.read_text().splitlines() if again.exists() else None

    return run


def test_collecting_imports_no_heavy_library(request) -> None:
    assert not HEAVY & request.config.stash[COLLECTED_WITH]


def test_one_process_of_the_quick_tests_starts_the_prefect_server(request, monkeypatch) -> None:
    monkeypatch.setattr(request.config.option, "markexpr", "not slow or program")
    scopes = {item.nodeid: scope_of(item.nodeid, request.config) for item in request.session.items}
    asking = [item for item in request.session.items if "prefect_server" in item.fixturenames]
    assert {scopes[item.nodeid] for item in asking} <= {SERVED}
    in_keys = "tests/tables/test_keys.py::test_it"
    assert scope_of(in_keys, request.config) == "tests/tables/test_keys.py"
    in_main = "tests/flows/cli/test_main.py::test_it"
    assert scope_of(in_main, request.config) == SERVED
    # The slow ones of these files take minutes each.
    monkeypatch.setattr(request.config.option, "markexpr", "slow and not alone")
    assert scope_of(in_main, request.config) == "tests/flows/cli/test_main.py"
    assert scope_of(f"{OPERATIONS}test_up.py::test_it", request.config) == OPERATIONS


@cache
def fixtures_of(path: Path) -> dict[str, list[str]]:
    """Return the names of a module's fixtures, each with those that it takes."""
    text = path.read_text()
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in ast.walk(ast.parse(text if "pytest.fixture" in text else ""))
        if isinstance(node, ast.FunctionDef)
        and any("pytest.fixture" in ast.unparse(mark) for mark in node.decorator_list)
    }


def taken_by(name: str, known: dict[str, list[str]]) -> set[str]:
    """Return all fixtures that come before one, those that others of them take included."""
    taken: set[str] = set()
    wanted = [*known[name]]
    while wanted:
        if (next_one := wanted.pop()) in known and next_one not in taken:
            taken.add(next_one)
            wanted += known[next_one]
    return taken


def test_no_fixture_waits_for_itself() -> None:
    """One that takes the name of one above it may be what another of those above it needs.

    pytest says so as the first test that takes it begins, which may be a slow one.
    """
    tests = ROOT / "tests"
    for module in tests.rglob("test_*.py"):
        above = [folder / "conftest.py" for folder in module.parents if tests in folder.parents]
        known: dict[str, list[str]] = {}
        for conftest in [tests / "conftest.py", *reversed(above)]:
            known |= fixtures_of(conftest) if conftest.exists() else {}
        # One that takes its own name takes the one above it.
        own = {
            name: [other for other in others if other != name]
            for name, others in fixtures_of(module).items()
        }
        for name in own.keys() & known.keys():
            assert name not in taken_by(name, known | own), (module, name)


def test_what_a_test_leaves_behind_fails_it_and_not_the_next(suite) -> None:
    said, again = suite("""
def test_sets(): os.environ["LEFT"] = "x"
def test_unsets(): del os.environ["PATH"]
def test_goes(): os.chdir("/")
def test_prefect(): import prefect.main
def test_settings():
    from prefect.settings import temporary_settings
    global kept
    (kept := temporary_settings({})).__enter__()
def test_finds_all_as_it_was():
    assert "LEFT" not in os.environ and os.environ["PATH"] and os.getcwd() != "/"
""")
    assert "the test leaves behind: LEFT='x'\n" in said
    assert "the test leaves behind: PATH unset\n" in said
    assert "the test leaves behind: the working directory /\n" in said
    assert "the test leaves behind: other settings of Prefect\n" in said
    assert "6 passed, 4 errors" in said
    assert again is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{IMPATIENT}def test_leaks():\n    leaked = subprocess.Popen(['sleep', '60'])", ()),
        ("@pytest.fixture(scope='session')\ndef no(): 1 / 0\ndef test_shared(no): pass", ()),
        ("def test_dies(): os._exit(1)", ("-n", "1")),
        ("1 / 0", ()),
    ],
    ids=["a process is left", "what all share", "a worker dies", "no tests"],
)
def test_only_a_test_that_failed_by_itself_is_run_once_more(suite, text, options) -> None:
    wrong = "def test_fails(): assert 1 == 2\n"
    said, again = suite(f"{wrong}{text}", *options)
    assert again is None, said
    for process in [word.split()[0] for word in said.split("outlive the tests: ['")[1:]]:
        os.kill(int(process), signal.SIGKILL)


def test_a_worker_that_died_ends_the_tests(tmp_path) -> None:
    for number in range(6):
        text = "import os\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"
        dies = "def test_dies(): os._exit(1)\ndef test_next(): pass\n" if number == 3 else ""
        (tmp_path / f"test_{number}.py").write_text(text + dies)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
    words += ["-v", "--dist", "loadfile", "-c", str(ROOT / "pyproject.toml"), str(tmp_path)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "worker restarting disabled" in ended.stdout


def test_a_test_that_failed_by_itself_is_run_once_more(suite) -> None:
    _, again = suite("def test_fails(): assert 1 == 2\n")
    assert again is not None
    assert [one.rpartition("::")[2] for one in again] == ["test_fails"]


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "shared"])
def test_no_test_is_started_when_the_time_is_over(suite, options) -> None:
    said, again = suite(
        """
from tests import time_left
@pytest.fixture
def broken(): 1 / 0
def test_last_in_time(): time_left.UNTIL -= 10_000
def test_late(broken): pass
def test_later(): 1 / 0
""",
        *options,
        PARTWISE_TEST_UNTIL=str(time.time() + 9_000),
    )
    assert "1 passed, 2 skipped" in said
    assert "not run, for want of time" in said
    assert "\n2 tests of " in said
    assert again is None


def test_a_thread_hears_of_no_prefect_server_that_nobody_has_begun(suite) -> None:
    """What a flow in a thread of a test was told at first: the test then waited for it for ever."""
    said, _ = suite("""
def test_imports_it(): import prefect.settings
def test_asks_in_a_thread():
    from concurrent.futures import ThreadPoolExecutor
    from prefect.settings import get_current_settings
    assert get_current_settings().api.url is None
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(get_current_settings).result().api.url is None
""")
    assert "2 passed" in said, said


def test_a_test_that_hangs_fails_and_the_next_one_runs(suite) -> None:
    said, again = suite(
        """
import threading
def test_hangs(): threading.Event().wait()
def test_next(): pass
""",
        *("-o", "timeout=2"),
    )
    assert "1 failed, 1 passed" in said, said
    assert again is not None
    assert [each.rpartition("::")[2] for each in again] == ["test_hangs"]


def test_logging_that_is_set_up_anew_ends_no_capture(suite) -> None:
    said, _ = suite("""
import logging.config
class Handler(logging.StreamHandler):  # as TensorFlow's, when it is imported
    def close(self):
        self.stream.close()
        super().close()
kept = Handler()
def test_sets_it_up(capsys): logging.config.dictConfig({"version": 1})
def test_next(): pass
""")
    assert "2 passed" in said


def test_a_missing_program_is_said_and_a_failure_where_all_are_wanted(suite, tmp_path) -> None:
    # A machine without it, and one with it.
    bare, full = tmp_path / "bare", tmp_path / "full"
    for folder in (bare, full):
        folder.mkdir()
        (folder / "env").symlink_to(shutil.which("env") or "")
    (full / "fish").write_text("#!/bin/sh\n")
    (full / "fish").chmod(0o700)
    text = """
import shutil
def test_fish(fish): assert fish == shutil.which("fish")
@pytest.mark.slow
def test_slow_fish(fish): pass
def test_path(): assert bool(shutil.which("fish")) is WANTED and shutil.which("env")
"""
    absent, present = (text.replace("WANTED", word) for word in ("False", "True"))
    program = ("-m", "not slow or program")
    lacks = "There is no fish: apt-get install fish"
    said, _ = suite(absent, *program, PATH=str(bare))
    assert f"2 tests: {lacks}\n" in said
    assert "1 passed, 2 skipped" in said
    said, _ = suite(absent, *program, PATH=str(full), PARTWISE_TEST_PROGRAMS="none")
    assert f"2 tests: {lacks}\n" in said
    assert "1 passed, 2 skipped" in said
    said, again = suite(absent, PATH=str(bare), PARTWISE_TEST_PROGRAMS="all")
    assert f"CI has to have all programs. {lacks}" in said
    assert again is None
    said, _ = suite(present, PATH=str(full), PARTWISE_TEST_PROGRAMS="all")
    assert "2 passed, 1 deselected" in said
