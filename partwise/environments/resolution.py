"""From what is asked for to a list of packages, each of one version: on the driver."""

import hashlib
import json
import re
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from partwise.environments.environment import Environment, without_passwords
from partwise.environments.requirement_files import Requested, read_requested
from partwise.environments.uv import PackageSources, UvError, run_uv
from partwise.errors import PackageError

_FORMAT = 1
_HASH = re.compile(r"--hash=sha256:([0-9a-f]+)")
_FROM = "# from "
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?\s*(==\s*(?P<version>\S+)|@\s*(?P<url>\S+))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnvironment:
    """An environment of which every package is known; travels to workers."""

    name: str
    """How messages name it."""
    pins: tuple[str, ...] = field(default=(), repr=False)
    """Requirement lines, each of one version with the checksums of its files."""
    replaceable: frozenset[str] = frozenset()
    """Names of those that come from a folder or page of wheels, where a file of the same version
    may be another one tomorrow; an index never replaces a file."""
    options: tuple[str, ...] = ()
    """Which of them are to be taken, or not, as wheels."""
    conda: str = field(default="", repr=False)
    """The text of a conda file, which conda itself resolves; empty: it is of pip packages."""
    is_own: bool = True
    """False: it is the workers' own Python, as it is."""
    python: str
    """Of which Python, such as 3.11."""
    platform: str
    sources: PackageSources = field(default=PackageSources(), repr=False)

    @property
    def key(self) -> str:
        """What it is named by where it is built: equal for equal packages, whatever was asked."""
        content = [_FORMAT, self.python, self.platform, sorted(self.pins), self.options, self.conda]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package, or the address that it comes from, without passwords.

        Equal where the packages are: of what may be replaced, a part of the checksum is there too.
        """
        if self.conda:
            return {"conda-file": hashlib.sha256(self.conda.encode()).hexdigest()[:12]}
        found = {}
        for pin in self.pins:
            if match := _PIN.match(pin):
                name = match["name"]
                found[name] = match["version"] or without_passwords(match["url"])
                if name in self.replaceable:
                    found[name] += f" ({'/'.join(digest[:12] for digest in _HASH.findall(pin))})"
        return found


def python_version() -> str:
    """Return the version of this Python by which packages are chosen, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def resolve(
    environment: Environment,
    preferred: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
) -> ResolvedEnvironment:
    """Find a version of each package, for this Python and this kind of machine.

    Args:
        environment: What is asked for.
        preferred: Versions by name, taken where they fit.
        constraints: Requirements that packages must fulfil where they are needed at all.

    Raises:
        PackageError: A file cannot be read, or there are no packages that fit; has the resolver's
            own words.

    Example:
        >>> resolve(Environment()).is_own
        False
    """
    if environment.conda_file:
        from partwise.environments.conda import resolve_conda

        return resolve_conda(environment)
    name, kind = str(environment), sysconfig.get_platform()
    if not environment.is_own:
        return ResolvedEnvironment(name=name, is_own=False, python=python_version(), platform=kind)
    asked = read_requested(environment)
    sources = PackageSources(
        index_url=asked.index_url,
        extra_index_urls=tuple(asked.extra_index_urls),
        find_links=tuple(asked.find_links),
        no_index=asked.no_index,
    )
    try:
        pins, places = _compile(asked, sources, preferred or {}, constraints)
    except UvError as error:
        raise PackageError(
            f"The environment of {name} cannot be resolved. uv says: {error}"
        ) from None
    flat = {place if "://" in place else Path(place).as_uri() for place in sources.find_links}
    flat = {without_passwords(place) for place in flat}
    return ResolvedEnvironment(
        name=name,
        pins=pins,
        replaceable=frozenset(name for name, place in places.items() if place in flat),
        options=tuple(asked.options),
        python=python_version(),
        platform=kind,
        sources=sources,
    )


def _compile(
    asked: Requested,
    sources: PackageSources,
    preferred: Mapping[str, str],
    constraints: Sequence[str],
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a line for each package that is needed, and the place where each was found, by name.

    Raises:
        UvError: There are none that fit.
    """
    with tempfile.TemporaryDirectory(prefix="partwise-packages-") as directory:
        found = Path(directory, "requirements.txt")
        # uv keeps the versions that its earlier output has, as far as they fit.
        found.write_text("".join(f"{name}=={preferred[name]}\n" for name in sorted(preferred)))
        limits = Path(directory, "constraints.txt")
        limits.write_text("\n".join([*asked.constraints, *constraints, ""]))
        run_uv(
            [
                *("pip", "compile", "-", "--output-file", str(found), "--constraint", str(limits)),
                *("--python", sys.executable, "--generate-hashes", "--no-header", "--no-annotate"),
                *sources.options(),
                *("--emit-index-annotation", "--no-strip-extras", "--quiet"),
            ],
            sources,
            directory,
            text="\n".join([*asked.options, *asked.requirements, ""]),
        )
        text = found.read_text().replace("\\\n", " ")
    pins: list[str] = []
    places: dict[str, str] = {}
    for line in (" ".join(line.split()) for line in text.splitlines()):
        if line.startswith(_FROM) and pins:
            places[pins[-1].partition("=")[0].partition("[")[0].strip()] = line.removeprefix(_FROM)
        elif line and not line.startswith("#"):
            pins.append(line)
    return tuple(pins), places
