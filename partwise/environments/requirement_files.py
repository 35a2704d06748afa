"""Requirements, constraints and pyproject files, read on the driver into plain lines.

Workers do not see these files, so what they include is read as well, and what only this machine has
is refused: local folders and archives.
Formats: https://pip.pypa.io/en/stable/reference/requirements-file-format/ and PEP 621.
"""

import os
import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from partwise.environments.environment import Environment, without_passwords
from partwise.errors import PackageError
from partwise.formatting import shortened

_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_SEPARATOR = re.compile(r"\s*=|\s+")
_BETWEEN_OPTIONS = re.compile(r"\s+(?=--?[a-z])")
_EXTRAS = re.compile(r"(?P<path>.+\.toml)(\[(?P<extras>[^\]]*)\])?")
_SHORT = {"-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-f": "--find-links"}
_SHORT |= {"-i": "--index-url", "--pypi-url": "--index-url"}
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_KEPT = ("--no-binary", "--only-binary")
_WITH_VALUES = {"--requirement", "--constraint", "--index-url", "--extra-index-url"}
_WITH_VALUES |= {"--find-links", *_KEPT}


@dataclass(slots=True)
class Requested:
    """What is asked for, in one place, with nothing left to be read."""

    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    """Which packages are to be taken, or not, as wheels."""
    index_url: str = ""
    extra_index_urls: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    no_index: bool = False


def read_requested(
    environment: Environment, variables: Mapping[str, str] = os.environ
) -> Requested:
    """Read all files that an environment of pip packages names.

    `variables` stand for ${NAME} in the lines of files.
    """
    reader = _Reader(variables)
    for package in environment.packages:
        reader.add_package(package)
    for line in environment.constraints:
        reader.add_requirement(line, "constraints", reader.asked.constraints)
    if environment.requirements_file:
        reader.read(environment.requirements_file, Path.cwd(), reader.asked.requirements)
    if environment.pyproject_file:
        reader.read_project(environment.pyproject_file)
    if environment.constraints_file:
        reader.read(environment.constraints_file, Path.cwd(), reader.asked.constraints)
    asked = reader.asked
    asked.index_url = environment.index_url or asked.index_url
    asked.extra_index_urls[:0] = environment.extra_index_urls
    asked.find_links[:0] = [_absolute(place, Path.cwd()) for place in environment.find_links]
    asked.no_index |= environment.no_index
    for place in asked.find_links:
        if "," in place:
            raise PackageError(
                f"find_links names {without_passwords(place)!r}: a place cannot have a comma in it."
            )
    return asked


def without_files(environment: Environment) -> Environment:
    """Return an environment with what its files say in place of their names, to be sent elsewhere.

    A conda file is left: the machine that creates its environment has it.
    """
    if environment.conda_file or not environment.is_own:
        return environment
    asked = read_requested(environment)
    return Environment(
        packages=(*asked.options, *asked.requirements),
        constraints=tuple(asked.constraints),
        index_url=asked.index_url,
        extra_index_urls=tuple(asked.extra_index_urls),
        find_links=tuple(asked.find_links),
        no_index=asked.no_index,
    )


class _Reader:
    """Gathers what files say."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.asked = Requested()
        self._variables = variables
        self._at_work: list[Path] = []

    def read(self, name: str, folder: Path, lines: list[str]) -> None:
        """Read a requirements file, and those it includes, into requirements or constraints.

        Its name is relative to the folder.
        """
        path = _path(name, folder)
        text = read_text(path)
        # Files may include each other, by ".." under another path at each turn.
        if (file := path.resolve()) in self._at_work:
            return
        self._at_work.append(file)
        for number, line in _lines(text):
            where = f"{path}, line {number}"
            # As pip does it: a variable that is not set stays as it is written.
            line = _VARIABLE.sub(lambda name: self._variables.get(name[1], name[0]), line)
            if line.startswith("-"):
                for option in _BETWEEN_OPTIONS.split(line):
                    self._add_option(option, path, where, lines)
            else:
                self.add_requirement(line, where, lines)
        self._at_work.remove(file)

    def read_project(self, name: str) -> None:
        """Read the dependencies of a pyproject.toml, and of its extras: pyproject.toml[plots]."""
        match = _EXTRAS.fullmatch(name)
        path = _path(match["path"] if match else name, Path.cwd())
        try:
            document = tomllib.loads(read_text(path))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise PackageError(f"The file {str(path)!r} is not TOML: {error}.") from error
        if "project" not in document:
            raise PackageError(
                f"{path} has no [project], which is where dependencies are read from: write them "
                "there, or into a requirements file. Those of [tool.poetry] are of a form that "
                "only Poetry reads."
            )
        project = _table(document, "project", path)
        if "dependencies" in _texts(project, "dynamic", path):
            raise PackageError(
                f"{path} leaves its dependencies to its build backend (project.dynamic): write "
                "them into a requirements file."
            )
        lines = _texts(project, "dependencies", path)
        lines += _lines_of_extras(project, (match and match["extras"]) or "", path)
        wanted = project.get("requires-python", "")
        try:
            allowed = SpecifierSet(wanted, prereleases=True)
        except (InvalidSpecifier, TypeError, AttributeError):
            raise _wrong(path, "requires-python", wanted, 'such as ">=3.11"') from None
        if platform.python_version() not in allowed:
            raise PackageError(
                f"{path} needs Python {wanted}, and this is {platform.python_version()}."
            )
        places = _table(_table(_table(document, "tool", path), "uv", path), "sources", path)
        named = {canonicalize_name(name) for name in places}
        for line in lines:
            requirement = self.add_requirement(line, str(path))
            if requirement is not None and canonicalize_name(requirement.name) in named:
                raise PackageError(
                    f"{path} takes {requirement.name} from a place of its own ([tool.uv.sources]), "
                    "which only uv's projects know: name a wheel's URL, or a folder in find_links."
                )

    def add_package(self, line: str) -> None:
        """Add a package of the caller's own list: a requirement, or whether wheels are taken."""
        if line.startswith(_KEPT):
            self.asked.options.append(line)
        else:
            self.add_requirement(line, "packages")

    def add_requirement(
        self, line: str, where: str, lines: list[str] | None = None
    ) -> Requirement | None:
        """Add one requirement; return what it says, or None where it is a bare URL."""
        text = line.partition(" --")[0].strip()
        found = None
        try:
            found = Requirement(text)
            place = found.url or ""
        except (InvalidRequirement, RecursionError) as error:
            place = text
            if "://" not in text and not _is_local(text):
                raise PackageError(
                    f"{where}: {text!r} is not a requirement: {str(error).splitlines()[0]}."
                ) from error
        # A name may have a point in it, and x.whl be one.
        if _is_local(place or text):
            raise PackageError(
                f"{where}: {without_passwords(text)!r} lies on this machine, and workers are to "
                "install it too: build a wheel, and name the folder that it is in as find_links."
            )
        (self.asked.requirements if lines is None else lines).append(line)
        return found

    def _add_option(self, line: str, path: Path, where: str, lines: list[str]) -> None:
        name, value = _split_option(line)
        if name in _WITH_VALUES and not value:
            raise PackageError(f"{where}: {name} has no value.")
        match name:
            case "--requirement":
                self.read(value, path.parent, lines)
            case "--constraint":
                self.read(value, path.parent, self.asked.constraints)
            case "--index-url":
                self.asked.index_url = value
            case "--extra-index-url":
                self.asked.extra_index_urls.append(value)
            case "--find-links":
                self.asked.find_links.append(_absolute(value, path.parent))
            case "--no-index":
                self.asked.no_index = True
            case "--no-binary" | "--only-binary":
                self.asked.options.append(f"{name} {value}")
            case "--require-hashes" | "--prefer-binary":
                pass  # hashes are compared wherever there are some
            case "--editable" if "://" in value and not _is_local(value):
                raise PackageError(
                    f"{where}: {without_passwords(line)!r} is to be editable, which packages of "
                    "environments are not: write it without -e, as NAME @ URL."
                )
            case "--editable":
                raise PackageError(
                    f"{where}: {without_passwords(line)!r} is a folder of this machine, and "
                    "workers are to install it too: build a wheel, and name the folder that it is "
                    "in as find_links."
                )
            case _:
                raise PackageError(f"{where}: {name} is an option that environments do not have.")


def _path(name: str, folder: Path) -> Path:
    """Return where a file lies whose name is relative to a folder."""
    if "://" in name:
        raise PackageError(
            f"The file {without_passwords(name)!r} is not on this machine: download it, and name "
            "the copy."
        )
    return (folder / name).absolute()


def _lines_of_extras(project: Mapping[str, Any], given: str, path: Path) -> list[str]:
    """Return the requirements of a project's extras, with commas between their names."""
    known = _table(project, "optional-dependencies", path)
    names = {canonicalize_name(name): name for name in known}
    own = canonicalize_name(str(project.get("name", "")))
    waiting = [extra.strip() for extra in given.split(",") if extra.strip()]
    lines: list[str] = []
    for extra in waiting:
        if canonicalize_name(extra) not in names:
            raise PackageError(f"{path} has no extra {extra!r}; it has {[*known]}.")
        for line in _texts(known, names[canonicalize_name(extra)], path):
            try:
                found = Requirement(line)
            except (InvalidRequirement, RecursionError):
                found = None  # it is refused with its reason below
            # 'all = ["mine[plots]"]': the project's own name stands for its other extras. An index
            # may have a package of that name that is somebody else's.
            if found is None or canonicalize_name(found.name) != own:
                lines.append(line)
            elif found.marker is None or found.marker.evaluate():
                waiting += sorted(found.extras - {*waiting})
    return lines


def _table(table: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    """Return a table of a pyproject.toml; an empty one where there is none."""
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise _wrong(path, name, found, f"a table: [{name}]")
    return found


def _texts(table: Mapping[str, Any], name: str, path: Path) -> list[str]:
    """Return a list of texts of a pyproject.toml; an empty one where there is none."""
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _wrong(path, name, found, f'a list of texts: {name} = ["..."]')
    return [*found]


def _wrong(path: Path, name: str, found: Any, wanted: str) -> PackageError:
    shown = shortened(without_passwords(repr(found)), 80)
    return PackageError(f"{path}: {name} is {shown}, and has to be {wanted}.")


def read_text(path: Path) -> str:
    """Return what a file of the caller's says."""
    try:
        return path.read_text("utf-8-sig")  # editors of Windows begin a file with a mark
    except (OSError, ValueError) as error:  # ValueError: its name or its text is no text
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PackageError(f"The file {str(path)!r} cannot be read: {reason}.") from error


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that say something, without comments, continued ones as one."""
    found: list[tuple[int, str]] = []
    lines, begun = text.splitlines(), ""
    for number, line in enumerate(lines, 1):
        # Of a continued line, a comment ends with the line that it stands in.
        begun += _COMMENT.sub("", line)
        if begun.endswith("\\"):
            begun = begun[:-1]
            if number < len(lines):
                continue
        if begun.strip():
            found.append((number, begun.strip()))
        begun = ""
    return found


def _split_option(line: str) -> tuple[str, str]:
    """Return an option's long name and its value: -rbase.txt, --requirement=base.txt."""
    if not line.startswith("--"):
        return _SHORT.get(line[:2], line[:2]), line[2:].lstrip("= \t").rstrip()
    # What comes after the first of them is the value, which may have more, as URLs do.
    name, *values = _SEPARATOR.split(line, maxsplit=1)
    return _SHORT.get(name, name), "".join(values).strip()


def _is_local(place: str) -> bool:
    """Whether a place is a file or folder of this machine."""
    scheme, separator, _ = place.partition("://")
    if separator:
        return scheme.lower().endswith("file")
    return place.startswith((".", "/", "~", "file:")) or place.endswith(_ARCHIVES)


def _absolute(place: str, folder: Path) -> str:
    return place if "://" in place else str(folder / Path(place).expanduser())
