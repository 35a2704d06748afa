"""Which code is the user's own, and what stands in modules that were not imported.

A fingerprint goes into a project's own code, and only names everything else: the standard library
and what was installed, whose versions the environment records.
"""

import ast
import hashlib
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)


class OwnCode:
    """Tells own modules from others.

    Args:
        package: The top-level package that is own wherever it lies, being that of the function or
            trainer in question. Elsewhere all that is not installed is own; partwise never is.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._known: dict[str, bool] = {}

    def has_module(self, name: str) -> bool:
        """Tell whether a module is the user's own."""
        if name not in self._known:
            self._known[name] = self._has_module(name)
        return self._known[name]

    def _has_module(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in ("__main__", "__mp_main__"):
            return True
        if top in sys.stdlib_module_names:
            return False
        if top in (self._package, "partwise"):
            return top == self._package
        module = sys.modules.get(name)
        if module is None:
            # What came by value from another process has no module here; what can be found does.
            spec = find_module(name)
            return spec is None or _is_own_file(spec.origin, spec)
        return _is_own_file(getattr(module, "__file__", None), getattr(module, "__spec__", None))

    def module_digest(self, name: str) -> tuple[str, list[str]]:
        """Hash the statements of a module without importing it, or say "missing".

        Returns:
            The hash, and the names of the own modules that it imports in turn.
        """
        module = sys.modules.get(name)
        spec = find_module(name) if module is None else None
        path = spec.origin if spec else getattr(module, "__file__", None)
        if not path or not os.path.isfile(path):
            return "missing", []
        with open(path, "rb") as file:
            content = file.read()
        try:
            tree = _without_docstrings(ast.parse(content)) if path.endswith(".py") else None
        except SyntaxError:
            tree = None
        if tree is None:
            return hashlib.sha256(content).hexdigest(), []
        is_package = os.path.basename(path) == "__init__.py"
        package = name if is_package else name.rpartition(".")[0]
        imported = {found for found in _imports(tree, package) if self.is_imported_own(found)}
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), sorted(imported)

    def is_imported_own(self, name: str) -> bool:
        """Tell whether a name in an import statement is an own module that exists."""
        exists = name in sys.modules or find_module(name) is not None
        return exists and self.has_module(name)


def absolute_name(name: str, level: int, package: str) -> str:
    """Return the full name of a module that is imported with `level` leading dots."""
    if not level:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


def find_module(name: str) -> ModuleSpec | None:
    """Find a module without running any of it, nor of the packages above it."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for place in range(len(rest)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            full = ".".join([top, *rest[: place + 1]])
            spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
    except (ImportError, ValueError):
        return None
    return spec


def _is_own_file(path: str | None, spec: ModuleSpec | None) -> bool:
    if path is None or path in ("built-in", "frozen"):
        # A namespace package, or a module made by hand.
        return spec is None or spec.submodule_search_locations is not None
    path = os.path.realpath(path)
    return not _INSTALLED & set(path.split(os.sep)) and not path.startswith(_STANDARD)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body):
                pass
            case ast.AsyncFunctionDef(body=body):
                pass
            case _:
                continue
        match body:
            case [ast.Expr(value=ast.Constant(value=str())), *_]:
                del body[0]
    return tree


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                name = absolute_name(module or "", level, package)
                yield name
                yield from (f"{name}.{alias.name}" for alias in names)


def defining_module(value: types.FunctionType | type) -> str:
    """Return the name of the module in whose code a function or class is written.

    Of a wrapper made by a decorator that is the decorator's, whatever its `__module__` says.
    """
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__", value.__module__))
    return value.__module__
