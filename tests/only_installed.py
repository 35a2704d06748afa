"""Processes in which nothing can be imported but what a page tells to install.

All tests share one environment, in which everything is installed. So each process of a page hides
the distributions that an installation by the page's words would not bring: what Python imports at
its start, from a folder in PYTHONPATH, and so in all processes that this one starts.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "flows" / "project" / "template"
# pip itself is in every environment that a person makes.
ALWAYS = ("partwise", "pip")
_LEFT_OUT = frozenset({"nvidia-nccl-cu12"})
"""What `make` installs only where there is a GPU, though XGBoost asks for it everywhere."""
# What the tests' environment has in the place of another.
_INSTEAD = {"tensorflow": "tensorflow-cpu"}
_HIDING = '''"""Hides what is not installed, in this process and in those that it starts."""

import sys
from importlib import metadata
from importlib.machinery import PathFinder

MODULES = frozenset({modules!r})
DISTRIBUTIONS = frozenset({distributions!r})


class OnlyInstalled(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in MODULES:
            return None
        return PathFinder.find_spec(fullname, path, target)


def is_hidden(name):
    return name.partition(".")[0] in MODULES


def discovered(discover):
    def those_installed(*args, **kwargs):
        for each in discover(*args, **kwargs):
            if each.metadata["Name"] not in DISTRIBUTIONS:
                yield each

    return staticmethod(those_installed)


# By whichever finder: `importlib_metadata` brings one of its own.
metadata.Distribution.discover = discovered(metadata.Distribution.discover)
# Files ending in .pth may have imported some of them already.
sys.meta_path[:] = [each for each in sys.meta_path if not is_hidden(type(each).__module__)]
sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyInstalled
for name in [name for name in sys.modules if is_hidden(name)]:
    del sys.modules[name]
'''


def told_by(text: str) -> list[str]:
    """Return the requirements that the words of a page tell to install, without partwise itself."""
    found = re.findall(r"partwise\[[\w,]+\]", text)
    for line in re.findall(r"pip install ([^`\n]+)", text):
        words = shlex.split(line)
        if words[0] == "-r":
            found += (TEMPLATE / f"{words[1]}.template").read_text().split()
        else:
            found += words
    # In capitals stands what a reader puts something of his own for.
    return [re.sub(r"==.*", "", each) for each in found if not each.isupper()]


def distributions_of(requirements: Iterable[str]) -> set[str]:
    """Return the canonical names of what is installed with requirements, and of what they need.

    Raises:
        metadata.PackageNotFoundError: One of them is not installed here, nor what stands for it.
    """
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in (*ALWAYS, *requirements)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        name = _INSTEAD.get(name, name)
        if name in _LEFT_OUT:
            continue
        for extra in {"", *requirement.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            needed = map(Requirement, metadata.requires(name) or ())
            waiting += [
                r for r in needed if r.marker is None or r.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found}


@cache
def _installed() -> tuple[Mapping[str, list[str]], frozenset[str]]:
    """Return the distributions of each module, and the names of all: many files are read for it."""
    names = frozenset(str(each.metadata["Name"]) for each in metadata.distributions())
    return metadata.packages_distributions(), names


def hide_others(folder: Path, requirements: Iterable[str]) -> Path:
    """Write what hides all that is not installed with requirements.

    Args:
        folder: For it; made if need be.
        requirements: Beside partwise.

    Returns:
        The folder, which is to come first in PYTHONPATH.
    """
    there = distributions_of(requirements)
    owners, names = _installed()
    modules = {
        module
        for module, owned in owners.items()
        if there.isdisjoint(canonicalize_name(name) for name in owned)
    }
    others = {name for name in names if canonicalize_name(name) not in there}
    folder.mkdir(exist_ok=True)
    text = _HIDING.format(modules=sorted(modules), distributions=sorted(others))
    (folder / "sitecustomize.py").write_text(text)
    return folder
