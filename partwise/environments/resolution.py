"""From what is asked for to a list of packages, each of one version: on the driver."""

import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from partwise.environments.conda import resolve_conda
from partwise.environments.environment import Environment, without_passwords
from partwise.environments.requirement_files import Requested, read_requested
from partwise.environments.resolved_environment import ResolvedEnvironment, python_version
from partwise.environments.uv import PackageSources, UvError, run_uv
from partwise.errors import PackageError

_FROM = "# from "


def resolve(
    environment: Environment,
    preferred: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
) -> ResolvedEnvironment:
    """Find a version of each package, for this Python and this kind of machine.

    `preferred` versions are taken where they fit; `constraints` are requirements that packages must
    fulfil where they are needed at all.
    """
    if environment.conda_file:
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
    """Return a line for each package that is needed, and where each was found, by name."""
    with tempfile.TemporaryDirectory(prefix="partwise-packages-") as directory:
        found = Path(directory, "requirements.txt")
        # uv keeps the versions that its earlier output has, as far as they fit.
        found.write_text("".join(f"{name}=={preferred[name]}\n" for name in sorted(preferred)))
        limits = Path(directory, "constraints.txt")
        limits.write_text("\n".join([*asked.constraints, *constraints, ""]))
        # With hashes: workers refuse a file that was replaced since. With the place of each, as
        # only in folders and pages of wheels a file may be another one tomorrow.
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
