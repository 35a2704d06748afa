"""Environments on one machine: built once, whole or not at all, kept while they are used."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from partwise.environments.building import open_environment
from partwise.environments.cache import (
    collect_environments,
    environments_folder,
    list_environments,
    read_document,
)
from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import EnvironmentBuildError
from tests.environments.wheels import make_wheel

OPEN = """
import pickle, sys
from partwise.environments.building import open_environment
resolved = pickle.loads(bytes.fromhex(sys.argv[1]))
with open_environment(resolved) as built:
    print(built.site_packages, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


@pytest.fixture
def resolved(tmp_path) -> ResolvedEnvironment:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "shop", "1.0", "def main():\n    print('open')\n", ["till"], script="shop")
    make_wheel(wheels, "till", "2.0")
    return resolve(Environment(packages=("shop",), find_links=(str(wheels),), no_index=True))


def opener(resolved: ResolvedEnvironment) -> subprocess.Popen[str]:
    """Open an environment in another process, which holds it until its input ends."""
    import pickle

    return subprocess.Popen(
        [sys.executable, "-c", OPEN, pickle.dumps(resolved).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_environment_has_its_packages_and_nothing_of_this_one(resolved) -> None:
    with open_environment(resolved) as built:
        code = "import shop, sys; print(shop.__version__, sys.prefix)"
        said = subprocess.run([built.python, "-c", code], capture_output=True, text=True).stdout
        assert said.split() == ["1.0", str(built.entry / "env")]
        missing = subprocess.run([built.python, "-c", "import numpy"], capture_output=True)
        assert missing.returncode == 1
        program = subprocess.run([Path(built.scripts, "shop")], capture_output=True, text=True)
        assert program.stdout == "open\n"
        assert Path(built.site_packages, "shop").is_dir()


def test_it_is_built_once(resolved) -> None:
    with open_environment(resolved) as first:
        document = read_document(first.entry)
    with open_environment(resolved) as second:
        assert read_document(second.entry) == document
    assert document.packages.keys() == {"shop", "till"}
    assert [each.in_use for each in list_environments()] == [False]


def test_processes_and_threads_that_ask_at_once_build_one(resolved) -> None:
    processes = [opener(resolved) for _ in range(2)]
    found = []

    def ask() -> None:
        with open_environment(resolved) as built:
            found.append((built.site_packages, os.stat(built.entry / "complete.json").st_ino))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = {process.communicate()[0].strip() for process in processes}
    assert len({*found}) == 1
    assert said == {found[0][0]}


def test_without_packages_it_is_the_python_of_the_workers() -> None:
    for environment in (Environment(), Environment(user_managed=True)):
        with open_environment(resolve(environment)) as built:
            assert (built.python, built.site_packages, built.hold()) == (sys.executable, "", -1)


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.06, 0.15, 0.3])
def test_a_builder_that_is_killed_leaves_nothing_that_counts(resolved, moment) -> None:
    process = opener(resolved)
    folder = environments_folder()
    while not (folder.is_dir() and any(folder.iterdir())) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with open_environment(resolved) as built:
        said = subprocess.run([built.python, "-c", "import shop, till"], capture_output=True)
        assert said.returncode == 0, said.stderr


def test_what_a_killed_builder_left_does_not_count_and_is_collected(resolved) -> None:
    with open_environment(resolved) as built:
        entry = built.entry
    (entry / "complete.json").unlink()
    Path(built.site_packages, "shop", "__init__.py").unlink()
    assert [each.document for each in list_environments()] == [None]
    assert [each.entry for each in collect_environments(timedelta(days=1), dry_run=True)] == [entry]
    with open_environment(resolved) as built:
        assert Path(built.site_packages, "shop", "__init__.py").is_file()


def test_a_builder_waits_until_what_a_killed_one_started_has_ended(resolved, tmp_path) -> None:
    """A uv that outlives its worker must not write into the folder of the next builder."""
    from partwise.environments import building

    with open_environment(resolved) as built:
        entry = built.entry
    (entry / "complete.json").unlink()
    code = (
        "import fcntl, os, sys, time; from partwise.store.entry_locks import lock_entry;"
        "from pathlib import Path; lock = lock_entry(Path(sys.argv[1]), fcntl.LOCK_EX);"
        "import subprocess; subprocess.Popen(['sleep', '0.6'], pass_fds=[lock]); print('locked');"
        "sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(entry)], stdout=subprocess.DEVNULL)
    with building.open_environment(resolved):
        assert time.monotonic() - began > 0.6


@pytest.mark.parametrize("gone", ["wheel", "folder"])
def test_a_wheel_that_vanished_is_named_and_nothing_is_left(resolved, gone, tmp_path) -> None:
    wheels = tmp_path / "wheels"
    shutil.rmtree(tmp_path / "uv")
    if gone == "wheel":
        next(wheels.glob("till-*")).unlink()
    else:
        shutil.rmtree(wheels)
    told = "environment of shop cannot be built on .* uv says: .*" + (
        # uv shows a path relative to the folder that it works in.
        "till was not found" if gone == "wheel" else str(wheels).lstrip("/")
    )
    with pytest.raises(EnvironmentBuildError, match=told):
        open_environment(resolved)
    assert list_environments() == []


def test_a_wheel_that_is_another_one_by_now_is_refused(resolved, tmp_path) -> None:
    shutil.rmtree(tmp_path / "uv")
    make_wheel(tmp_path / "wheels", "till", "2.0", "changed = True")
    with pytest.raises(EnvironmentBuildError, match="Hash mismatch"):
        open_environment(resolved)


@pytest.mark.parametrize(
    "said", ["No space left on device (os error 28)", "Disk quota exceeded (os error 122)"]
)
def test_a_full_disk_is_told_with_what_to_do(resolved, tmp_path, monkeypatch, said) -> None:
    """uv in this process's place says what uv says when a disk is full."""
    program = tmp_path / "uv-on-a-full-disk"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2; exit 2\n")
    program.chmod(0o700)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(program))
    with pytest.raises(EnvironmentBuildError, match=rf"{said[:10]}.* PARTWISE_SCRATCH to"):
        open_environment(resolved)
    assert list_environments() == []


def test_workers_of_another_python_refuse(resolved) -> None:
    from dataclasses import replace

    with pytest.raises(EnvironmentBuildError, match=r"for Python 3\.9 on .* the Python of the"):
        open_environment(replace(resolved, python="3.9"))


def test_a_folder_that_cannot_be_written_is_named(resolved, tmp_path, monkeypatch) -> None:
    # To root a folder without the right to write is none; a file in its place is one for all.
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "environments").write_text("")
    with pytest.raises(EnvironmentBuildError, match=r"environment of shop.*PARTWISE_SCRATCH"):
        open_environment(resolved)


def test_what_was_used_lately_stays_and_what_is_used_never_goes(resolved) -> None:
    built = open_environment(resolved)
    old = time.time() - 40 * 86400
    os.utime(built.entry / "complete.json", (old, old))
    assert [each.in_use for each in list_environments()] == [True]
    assert collect_environments(timedelta(days=30)) == []
    built.close()
    # Its time is that of its last use.
    assert collect_environments(timedelta(days=30)) == []
    os.utime(built.entry / "complete.json", (old, old))
    assert len(collect_environments(timedelta(days=30), dry_run=True)) == 1
    assert built.entry.is_dir()
    (gone,) = collect_environments(timedelta(days=30))
    assert gone.entry == built.entry
    assert list(environments_folder().iterdir()) == []
    with open_environment(resolved) as again:
        assert Path(again.python).exists()


def test_what_could_not_be_removed_is_not_said_to_be(resolved, monkeypatch, caplog) -> None:
    with open_environment(resolved) as built:
        entry = built.entry
    with monkeypatch.context() as patch:
        # As where a folder in it is read-only, or somebody else's.
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert collect_environments(timedelta(0)) == []
    assert f"the environment in {entry} could not be removed" in caplog.text
    assert [each.entry for each in collect_environments(timedelta(0))] == [entry]
    assert list(environments_folder().iterdir()) == []


def test_what_inherited_a_hold_keeps_it_when_its_opener_is_gone(resolved) -> None:
    with open_environment(resolved) as built:
        held = built.hold()
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[held])
        os.close(held)
    assert collect_environments(timedelta(0)) == []
    child.communicate()
    assert len(collect_environments(timedelta(0))) == 1


def test_another_process_that_uses_it_keeps_it(resolved) -> None:
    process = opener(resolved)
    process.stdout.readline()
    assert collect_environments(timedelta(0)) == []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(collect_environments(timedelta(0))) == 1
