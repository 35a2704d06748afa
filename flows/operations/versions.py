"""Which versions partwise supports, which its tests were run with, and which are here.

Supported is what the package's own metadata allows, and tested what constraints.txt holds, of which
a copy is in the package: every test of a release is run with exactly these.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

Verdict = Literal["tested", "supported", "outside", "missing", "unknown", "absent"]
"""Of what is here: the tested version, another one that is supported, one that is not, none of what
is needed always, one of which nothing is said, none of what is needed sometimes."""

PYTHON = "python"
TESTED_PYTHON = "3.11"
"""Of Python, any of its patch releases counts as tested."""
PROGRAM_TIMEOUT_S = 10.0
DEVELOPMENT = ("dev", "docs")
"""The extras of those who change partwise."""

_NUMBER = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is not a Python package, and used where it is there."""

    words: tuple[str, ...]
    """What prints its version."""
    needed_by: str
    tested: str = ""


PROGRAMS: Mapping[str, Program] = {
    "Open MPI": Program(
        words=("mpirun", "--version"), needed_by='scripts, backend "mpi"', tested="4.1.4"
    ),
    "conda": Program(words=("conda", "--version"), needed_by="environments of a conda file"),
    "uv": Program(words=("uv", "--version"), needed_by="environments"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A package or program: what is supported, tested, and here."""

    name: str
    needed_by: str
    """The extra that asks for it, or what it is used for; empty: always needed."""
    supported: str
    """A range such as ">=3.8.8,<3.9"; empty: nothing is said."""
    tested: str
    """Empty: no test is run with it."""
    installed: str
    """Empty: not here."""
    verdict: Verdict


def list_versions() -> Iterator[Version]:
    """Return Python, the packages by name, those always needed first, then programs."""
    about = metadata.metadata("partwise")
    yield _judge(PYTHON, "", about["Requires-Python"], TESTED_PYTHON, platform.python_version())
    tested = read_constraints(resources.files("partwise").joinpath("constraints.txt").read_text())
    found = []
    for text in metadata.requires("partwise") or ():
        requirement = Requirement(text)
        for extra in _extras(requirement, about.get_all("Provides-Extra") or ()):
            name = str(canonicalize_name(requirement.name))
            found.append(
                _judge(name, extra, _range(requirement), tested.get(name, ""), _installed(name))
            )
    yield from sorted(found, key=lambda one: (one.needed_by, one.name))
    names = {one.name for one in found}
    for name, program in PROGRAMS.items():
        if name not in names:
            yield _judge(name, program.needed_by, "", program.tested, _program_version(program))


def read_constraints(constraints: str) -> dict[str, str]:
    """Return the versions of a constraints file by the canonical names of packages."""
    pairs = (line.split("==") for line in constraints.splitlines() if "==" in line)
    return {str(canonicalize_name(name.strip())): version.strip() for name, version in pairs}


def _extras(requirement: Requirement, known: list[str] | tuple[str, ...]) -> list[str]:
    """Return which extras ask for a requirement; the empty one: it is always needed."""
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return [""]
    return [name for name in known if name not in DEVELOPMENT and marker.evaluate({"extra": name})]


def _range(requirement: Requirement) -> str:
    # The lower end first, as people write it.
    return ",".join(sorted(map(str, requirement.specifier), reverse=True))


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _program_version(program: Program) -> str:
    path = shutil.which(program.words[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 (one of our own table)
            [path, *program.words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROGRAM_TIMEOUT_S,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer"
    found = _NUMBER.search(done.stdout)
    return found.group() if found is not None else "does not tell"


def _judge(name: str, needed_by: str, supported: str, tested: str, installed: str) -> Version:
    verdict: Verdict
    # What follows a plus says how it was built, such as 2.13.0+cpu.
    here = installed.partition("+")[0]
    same = here == tested or (name == PYTHON and here.startswith(f"{tested}."))
    if not installed:
        verdict = "absent" if needed_by else "missing"
    elif supported and not SpecifierSet(supported).contains(installed, prereleases=True):
        verdict = "outside"
    elif same:
        verdict = "tested"
    else:
        verdict = "supported" if supported else "unknown"
    return Version(
        name=name,
        needed_by=needed_by,
        supported=supported,
        tested=tested,
        installed=installed,
        verdict=verdict,
    )
