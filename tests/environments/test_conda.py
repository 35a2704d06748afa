"""Environments of a conda file, with a stand-in program: real conda is not installed here.

The stand-in takes the words that conda, mamba and micromamba take, and makes a folder as they do.
"""

import sys
from pathlib import Path

import pytest

from partwise.engine.worker.packages import try_environment
from partwise.environments.building import open_environment
from partwise.environments.cache import list_environments
from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from partwise.errors import EnvironmentBuildError, PackageError

STAND_IN = """#!{python}
import os, pathlib, sys
words = sys.argv[1:]
if words[0] == "env":
    words.pop(0)
elif os.path.basename(sys.argv[0]) != "micromamba":
    sys.exit("conda: create knows no files")
assert words.pop(0) == "create" and os.environ["CONDA_ALWAYS_YES"] == "true"
prefix = pathlib.Path(words[words.index("--prefix") + 1])
text = pathlib.Path(words[words.index("--file") + 1]).read_text()
if "nothing-of-the-kind" in text:
    sys.exit("ResolvePackageNotFound: - nothing-of-the-kind")
if "--dry-run" not in words:
    version = text.partition("python=")[2].split()[0]
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(sys.executable)
    (prefix / "lib" / ("python" + version) / "site-packages").mkdir(parents=True)
    if "breaks" in text:
        sys.exit("the disk made a noise")
"""
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(params=["micromamba", "mamba", "conda"])
def program(request, tmp_path, monkeypatch) -> str:
    path = tmp_path / "bin" / request.param
    path.parent.mkdir()
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o700)
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    return request.param


def of(folder: Path, *dependencies: str, python: str = HERE) -> Environment:
    lines = [f"python={python}", *dependencies]
    path = folder / "environment.yml"
    path.write_text("dependencies:\n" + "".join(f"  - {line}\n" for line in lines))
    return Environment(conda_file=str(path))


def test_a_conda_file_is_built_once_and_is_what_its_text_is(program, tmp_path) -> None:
    resolved = resolve(of(tmp_path, "numpy"))
    with open_environment(resolved) as built:
        assert Path(built.site_packages).is_dir()
    with open_environment(resolved) as again:
        assert again.entry == built.entry
        try_environment(resolved, again)
    other = resolve(of(tmp_path, "numpy=2"))
    assert (other.key, other.versions) != (resolved.key, resolved.versions)


def test_a_conda_file_that_begins_with_a_mark_of_its_encoding_is_read(program, tmp_path) -> None:
    environment = of(tmp_path, "numpy")
    plain = resolve(environment)
    path = Path(environment.conda_file)
    path.write_text(path.read_text(), "utf-8-sig")
    assert resolve(environment).conda == plain.conda


def test_a_conda_file_that_cannot_be_resolved_is_told_on_the_driver(program, tmp_path) -> None:
    with pytest.raises(PackageError, match=f"{program} says: ResolvePackageNotFound: - nothing-of"):
        resolve(of(tmp_path, "nothing-of-the-kind"))


def test_a_conda_that_fails_leaves_nothing(program, tmp_path) -> None:
    with pytest.raises(EnvironmentBuildError, match=f"{program} says: the disk made a noise"):
        open_environment(resolve(of(tmp_path, "breaks")))
    assert list_environments() == []


def test_functions_want_the_python_of_their_workers(program, tmp_path) -> None:
    resolved = resolve(of(tmp_path, python="3.9"))
    with (
        open_environment(resolved) as built,
        pytest.raises(EnvironmentBuildError, match=r"has Python 3\.9, and functions for"),
    ):
        try_environment(resolved, built)


def test_without_a_conda_program_it_is_told_which_would_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    resolved = resolve(of(tmp_path))
    with pytest.raises(EnvironmentBuildError, match="has none of micromamba, mamba, conda"):
        open_environment(resolved)
    with pytest.raises(PackageError, match="cannot be read"):
        resolve(Environment(conda_file=str(tmp_path / "gone.yml")))
