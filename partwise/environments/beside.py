"""Packages that stand before the workers' own in one process, where partwise itself runs too.

A function for partitions is called by partwise, so that numpy, pyarrow and a few others are shared
by both. Their versions are those of the workers wherever they fit, and have to be such that
partwise works with them.
"""

from collections.abc import Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import PackageError

SHARED = (
    *("cloudpickle", "fsspec", "msgpack", "numpy", "packaging", "pandas", "psutil"),
    *("pyarrow", "pydantic"),
)
"""What partwise imports in the process of a function, or hands to it."""


def resolve_beside(
    environment: Environment, earlier: Mapping[str, str] | None = None
) -> ResolvedEnvironment:
    """Find a version of each package, for a process in which partwise runs too.

    The versions of an earlier time are taken where they fit; then come those installed here.
    """
    limits = [line for name, line in _requirements_of("partwise") if name in SHARED]
    resolved = resolve(environment, _versions({**_installed(), **(earlier or {})}), limits)
    _check_shared(resolved)
    return resolved


def _check_shared(resolved: ResolvedEnvironment) -> None:
    """See that what partwise imports, directly or not, finds versions that it needs."""
    chosen = _versions({canonicalize_name(n): v for n, v in resolved.versions.items()})
    waiting, seen = list(SHARED), set(SHARED)
    while waiting:
        name = waiting.pop()
        if name in chosen:
            # It brings what it needs, as uv has seen to.
            continue
        for needed, line in _requirements_of(name):
            specifier = Requirement(line).specifier
            # Whoever chose a prerelease has it, though a specifier alone would not take it.
            if needed in chosen and not specifier.contains(chosen[needed], prereleases=True):
                raise PackageError(
                    f"The environment of {resolved.name} has {needed} {chosen[needed]}, and {name} "
                    f"{metadata.version(name)}, which partwise uses in the same process, needs "
                    f"{line}: ask for such a {needed}, or for another {name} too."
                )
            if needed not in seen:
                seen.add(needed)
                waiting.append(needed)


def _installed() -> dict[str, str]:
    """Return the version of each package that is installed here."""
    return {
        canonicalize_name(name): found.version
        for found in metadata.distributions()
        if (name := found.metadata["Name"])
    }


def _versions(texts: Mapping[str, str]) -> dict[str, str]:
    """Return those texts that are versions, without what is noted beside them."""
    found = {}
    for name, text in texts.items():
        version = text.partition(" ")[0]
        try:
            Version(version)
        except InvalidVersion:
            continue
        found[name] = version
    return found


def _requirements_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield what an installed package needs without extras: a name, and the requirement."""
    try:
        lines = metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            requirement.extras = set()
            yield canonicalize_name(requirement.name), str(requirement)
