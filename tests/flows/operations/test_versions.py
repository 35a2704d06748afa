"""`partwise doctor --versions`: what is supported, tested and here."""

import json
import platform
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from partwise.flows.cli.main import main
from partwise.flows.operations import versions
from partwise.flows.operations.versions import (
    PROGRAMS,
    TESTED_PYTHON,
    Program,
    list_versions,
    read_constraints,
)

ROOT = Path(__file__).resolve().parents[3]


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["doctor", "--versions", *words]) == code
    return capsys.readouterr().out


def test_the_table_has_python_the_packages_and_the_programs(capsys) -> None:
    lines = printed(capsys).splitlines()
    columns = ["NAME", "NEEDED", "BY", "SUPPORTED", "TESTED", "INSTALLED", "VERDICT"]
    assert lines[0].split() == columns
    rows = {line.split()[0]: line.split() for line in lines[1:]}
    assert rows["python"][1:3] == [">=3.11", TESTED_PYTHON]
    assert rows["prefect"][1] == ">=3.8.8,<3.9"
    assert rows["prefect"][-1] == "tested"
    assert any(line.startswith("Open MPI") for line in lines)


def test_json_has_an_object_for_each(capsys) -> None:
    found = [json.loads(line) for line in printed(capsys, "--json").splitlines()]
    by_name = {one["name"]: one for one in found if not one["needed_by"]}
    prefect = by_name["prefect"]
    assert SpecifierSet(prefect["supported"]) == SpecifierSet(">=3.8.8,<3.9")
    assert prefect["tested"] == prefect["installed"]
    assert prefect["verdict"] == "tested"
    extras = {one["needed_by"] for one in found}
    assert {"torch", "cuda", "sqlite"} <= extras
    assert "dev" not in extras
    assert main(["doctor", "--json"]) == 2
    assert "--json goes with --versions" in capsys.readouterr().err


def test_every_dependency_is_in_the_table_with_the_version_of_the_constraints() -> None:
    """Breaks with a package that is declared and forgotten, or tested outside of its range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tested = read_constraints((ROOT / "constraints.txt").read_text())
    declared = {Requirement(text).name for text in project["dependencies"]}
    listed = {one.name: one for one in list_versions() if not one.needed_by}
    for name in declared & listed.keys():
        assert listed[name].tested == tested[name]
        assert SpecifierSet(listed[name].supported).contains(tested[name])
    # Those that are not listed are newer than the metadata of an editable installation.
    assert len(declared & listed.keys()) >= 20


def test_python_is_the_one_that_the_tests_run_on() -> None:
    if platform.python_version_tuple()[:2] != ("3", "11"):
        pytest.skip("CI runs on another Python")
    assert platform.python_version().startswith(f"{TESTED_PYTHON}.")


@given(
    supported=st.sampled_from(["", ">=2", ">=2,<3", "<2"]),
    tested=st.sampled_from(["", "2.5", "1.0"]),
    installed=st.sampled_from(["", "1.0", "2.4", "2.5", "2.5+cpu", "2.50", "2.5.1", "3.1rc1"]),
    needed_by=st.sampled_from(["", "torch"]),
)
def test_the_verdict_says_what_the_three_versions_say(
    supported: str, tested: str, installed: str, needed_by: str
) -> None:
    found = versions._judge("it", needed_by, supported, tested, installed)
    inside = not supported or installed in SpecifierSet(supported, prereleases=True)
    match found.verdict:
        case "missing" | "absent":
            assert not installed
            assert (found.verdict == "missing") == (not needed_by)
        case "outside":
            assert not inside
        case "tested":
            assert inside
            assert installed.removesuffix("+cpu") == tested
        case "supported":
            assert inside
            assert supported
            assert installed.removesuffix("+cpu") != tested
        case "unknown":
            assert not supported


def test_what_is_outside_or_missing_fails_the_command(capsys, monkeypatch) -> None:
    monkeypatch.setattr(versions, "_installed", lambda name: "" if name == "rich" else "99.0")
    out = printed(capsys, code=1)
    rows = {line.split()[0]: line.split()[-1] for line in out.splitlines()}
    assert rows["rich"] == "missing"
    assert rows["prefect"] == "outside"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'mpirun (Open MPI) 4.1.4'", "4.1.4"),
        ("echo nothing; exit 3", "does not tell"),
        ("sleep 60", "does not answer"),
    ],
)
def test_a_program_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\n{script}\n".replace("sleep", "exec sleep"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(versions, "PROGRAM_TIMEOUT_S", 0.5 if "sleep" in script else 10.0)
    only: dict[str, Any] = {"Open MPI": PROGRAMS["Open MPI"], "none": _nowhere()}
    monkeypatch.setattr(versions, "PROGRAMS", only)
    found = {one.name: one for one in list_versions()}
    assert found["Open MPI"].installed == told
    assert found["none"].verdict == "absent"


def _nowhere() -> Program:
    return Program(words=("no-such-program",), needed_by="nobody")
