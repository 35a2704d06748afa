"""The versions of installed packages, by the names under which they are imported."""

import contextlib
import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import metadata


def library_version(module: str) -> str:
    """Return the version of what provides a top-level module; "unknown" where nothing says it."""
    providers = {found.metadata["Name"] for found in _providers().get(module, ())}
    versions = [_installed(name) for name in sorted(providers)]
    if not versions:
        # An editable install lists none of its files, but has the name of its module as a rule.
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(module)
        versions = [str(getattr(sys.modules.get(module), "__version__", "unknown"))]
    return ", ".join(versions)


@functools.cache
def _providers() -> Mapping[str, list[metadata.Distribution]]:
    # `metadata.packages_distributions()` parses what each package says of itself, and asks the disk
    # for each of its files: 0.3 s for 270 packages, of which a run needs two or three.
    providers = defaultdict(list)
    for distribution in metadata.distributions():
        for module in set(_modules_of(distribution)):
            providers[module].append(distribution)
    return providers


def _modules_of(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield the top-level modules of a package: those that it declares, or those of its files."""
    if declared := (distribution.read_text("top_level.txt") or "").split():
        yield from declared
        return
    listed = distribution.read_text("RECORD")
    if listed is None:
        paths = [str(path) for path in distribution.files or ()]
    else:
        paths = [line.split(",", 1)[0].strip('"') for line in listed.splitlines()]
    for path in paths:
        folder, is_inside, _ = path.partition("/")
        module = folder if is_inside else inspect.getmodulename(path)
        if module and module.isidentifier():
            yield module


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
