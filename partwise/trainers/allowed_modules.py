"""Which modules a document of a store may name: partwise's, the project's, and those configured.

What a caller passes is not asked: `resolve_trainer` takes a function of any module.
"""

import importlib.util
import os
import sys
from pathlib import Path

from partwise.errors import FunctionError

MODULES_VARIABLE = "PARTWISE_MODULES"
"""Names more of them, with commas between: "sales_models, shared.training"."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def check_allowed(name: str) -> None:
    """Refuse "package.module:name" where a document must not name that module.

    No module is imported for the question. Allowed are partwise, the modules that
    `PARTWISE_MODULES` names with all below them, and those whose file lies in the current directory
    and is not an installed package's.
    """
    module = name.partition(":")[0]
    given = os.environ.get(MODULES_VARIABLE, "").replace(",", " ").split()
    for prefix in ("partwise", *given):
        if f"{module}.".startswith(f"{prefix}."):
            return
    if not _is_of_project(module):
        raise FunctionError(
            f"{name[:200]!r} is named by a document in the store, and its module is neither "
            f"partwise's nor of the project in {Path.cwd()}: call from the project's folder, name "
            f"the module in {MODULES_VARIABLE} if you trust it, or repeat the call itself."
        )


def _is_of_project(module: str) -> bool:
    """Whether the file of a module lies in the current directory."""
    # Looking for one that has dots in its name would import what is before the last one.
    package, *names = module.split(".")
    if not package or package in sys.stdlib_module_names:
        return False
    here = Path.cwd().resolve()
    if str(here) not in sys.path:
        sys.path.append(str(here))
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    if spec.submodule_search_locations is None:
        return spec.origin is not None and _is_below(Path(spec.origin), here)
    # A folder without __init__.py is one package with all folders of its name, those of installed
    # packages too: the first that has the module is the one that Python takes.
    for place in spec.submodule_search_locations:
        path = Path(place, *names)
        if path.is_dir() or path.with_suffix(".py").is_file():
            return _is_below(path, here)
    return False


def _is_below(place: Path, folder: Path) -> bool:
    found = place.resolve()
    return found.is_relative_to(folder) and _INSTALLED.isdisjoint(found.parts)
